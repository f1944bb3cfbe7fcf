// torch.profiler's view of the device.
#pragma once
#include <cstdint>
#include <memory>

#include "timeline.hpp"

namespace groundwire {

// A kernel, a copy or a collective, launched while a profile is taken.
struct ProfileRow {
  StreamKey stream;
  Work work;
  std::unique_ptr<Communication> about;  // of a collective
  int64_t launched_ns, begin_ns = -1, end_ns = -1;
  uint64_t caller;                       // torch's number of the operator that launched it; 0: none
  int32_t process, thread;               // of the host

  void set_times(int64_t begin, int64_t end) { begin_ns = begin, end_ns = end; }
};
using ProfileRowPtr = std::shared_ptr<ProfileRow>;

// Null where no profile is taken.
ProfileRowPtr profile_kernel(const StreamKey& stream, const Work& work, int64_t launched_ns);
ProfileRowPtr profile_collective(const StreamKey& stream, const Communication& about, int64_t launched_ns);

bool profiles_streams();  // whether this torch lets others write into its profiles
void install_profiler();

}  // namespace groundwire
