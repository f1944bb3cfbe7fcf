// NCCL's watchdog, as torch has it in ProcessGroupNCCL: a collective that is not over in its time, or that has failed,
// ends the process, by torch's own words. Environment variables choose otherwise, as there:
//   TORCH_NCCL_ASYNC_ERROR_HANDLING  0: it is told, and never over; 2: it is over, without contents; else: the process ends
//   TORCH_NCCL_BLOCKING_WAIT         1: there is no watchdog, and who waits for the collective gets the error
#pragma once
#include <memory>
#include <string>

#include "timeline.hpp"

namespace groundwire {

struct GroupName {          // as torch's logs have it
  int number, rank;         // among the groups of this process; in the group
  std::string id;
};

class Watchdog {            // of one group
 public:
  explicit Watchdog(GroupName name);
  // A collective has been posted, which may take so long (0: for ever). `description` is the group's.
  void watch(const CollectivePtr& collective, uint64_t sequence, int64_t timeout_ms,
             const std::string& description);
  // The host waits, where it is to, until a collective that is watched is over; `end` is when it is. At most
  // `timeout_ms` from the post on (0: the collective's own time, if the host waits at all). Raises DistBackendError.
  void await(const CollectivePtr& collective, const MomentPtr& end, int64_t timeout_ms);
  void expect_alive() const;  // raises DistBackendError when its collectives have been given up

  struct Group;

 private:
  std::shared_ptr<Group> group_;
};

void look_after_failures();  // a collective has failed

}  // namespace groundwire
