// torch.profiler without CUPTI: torch records an event on the current stream before and after each
// operator (ProfilerState::KINETO_GPU_FALLBACK), by these methods.
#include "profiler.hpp"

#include <torch/csrc/profiler/stubs/base.h>

#include "clock.hpp"
#include "memory.hpp"
#include "settings.hpp"
#include "timeline.hpp"

namespace groundwire {
namespace {

using torch::profiler::impl::ProfilerVoidEventStub;

struct Methods final : torch::profiler::impl::ProfilerStubs {
  void record(c10::DeviceIndex* device, ProfilerVoidEventStub* event,
              int64_t* cpu_ns) const override {
    if (device) *device = current_device();
    if (cpu_ns) *cpu_ns = host_now_ns();
    *event = record_moment(current_stream());
  }
  float elapsed(const ProfilerVoidEventStub* begin,
                const ProfilerVoidEventStub* end) const override {
    auto from = std::static_pointer_cast<Moment>(*begin), to = std::static_pointer_cast<Moment>(*end);
    await_moment(from);
    await_moment(to);
    return time_between_ns(from, to) / 1e3;  // microseconds
  }
  void mark(const char*) const override {}
  void rangePush(const char*) const override {}
  void rangePop() const override {}
  bool enabled() const override { return true; }
  void onEachDevice(std::function<void(int)> act) const override {
    for (int device = 0; device < settings.devices; device++) act(device);
  }
  void synchronize() const override { await_device(current_device()); }
};

}  // namespace

void install_profiler() {
  static Methods methods;
  torch::profiler::impl::registerCUDAMethods(&methods);
}

}  // namespace groundwire
