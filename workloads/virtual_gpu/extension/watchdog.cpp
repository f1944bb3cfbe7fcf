#include "watchdog.hpp"

#include <c10/util/Exception.h>
#include <c10/util/Logging.h>
#include <c10/util/thread_name.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <limits>
#include <mutex>
#include <thread>
#include <vector>

#include "clock.hpp"
#include "settings.hpp"

namespace groundwire {

constexpr int64_t never_ns = std::numeric_limits<int64_t>::max();
constexpr int64_t millisecond_ns = 1'000'000;
constexpr int64_t beat_ns = 100 * millisecond_ns;  // torch's looks so often (kWatchdogThreadSleepMillis)

namespace {

int64_t number_of(std::initializer_list<const char*> variables, int64_t otherwise) {
  for (auto* name : variables)
    if (auto* value = std::getenv(name)) return std::atoll(value);
  return otherwise;
}

struct Watched {
  CollectivePtr collective;
  uint64_t sequence;
  int64_t posted_ns, timeout_ms;

  std::string words() const {  // torch's, of a WorkNCCL
    auto& about = collective->about;
    return "WorkNCCL(SeqNum=" + std::to_string(sequence) + ", OpType=" + about.kind +
           ", NumelIn=" + std::to_string(about.in_elements) +
           ", NumelOut=" + std::to_string(about.out_elements) +
           ", Timeout(ms)=" + std::to_string(timeout_ms) + ")";
  }
};

}  // namespace

struct Watchdog::Group {
  GroupName name;
  std::string description;
  int64_t since_ns = kernel_now_ns();
  int64_t handling = number_of({"TORCH_NCCL_ASYNC_ERROR_HANDLING", "NCCL_ASYNC_ERROR_HANDLING"}, 3);
  bool blocks = number_of({"TORCH_NCCL_BLOCKING_WAIT", "NCCL_BLOCKING_WAIT"}, 0) != 0;
  std::deque<Watched> watched;
  int64_t last_posted = -1, last_over = -1, last_over_ns = 0;
  bool given_up = false;

  std::string of_rank() const { return "[Rank " + std::to_string(name.rank) + "] "; }
  std::string of_group() const {
    bool told = !description.empty() && description != "undefined";
    return "[PG ID " + std::to_string(name.number) + " PG GUID " + name.id +
           (told ? "(" + description + ")" : "") + " Rank " + std::to_string(name.rank) + "] ";
  }
  int64_t beat_after(int64_t ns) const {
    if (ns == never_ns || settings.steps_clock) return ns;
    return since_ns + (std::max<int64_t>(ns - since_ns, 0) + beat_ns - 1) / beat_ns * beat_ns;
  }
  // A collective's time counts from its post on, and not before the one ahead of it is over: without a queue of
  // limited depth, as CUDA has, a host posts many iterations ahead.
  int64_t begin_ns(const Watched& each) const { return std::max(each.posted_ns, last_over_ns); }
  int64_t ends_ns(const Watched& each) const {  // when it has to be over
    if (each.timeout_ms <= 0 || settings.steps_clock) return never_ns;
    return begin_ns(each) + each.timeout_ms * millisecond_ns;
  }
  int64_t looked_at_ns(const Watched& each) const {  // when it is found to be wrong
    int64_t failed_ns = each.collective->failed_ns;
    return beat_after(failed_ns < 0 ? ends_ns(each) : std::min(failed_ns, ends_ns(each)));
  }
  void forget_those_over() {
    for (auto& each : watched)
      if (each.collective->over) {
        last_over = std::max<int64_t>(last_over, each.sequence);
        last_over_ns = std::max(last_over_ns, each.collective->end_ns);
      }
    watched.erase(std::remove_if(watched.begin(), watched.end(),
                                 [](auto& each) { return bool(each.collective->over); }),
                  watched.end());
  }
  // Tells the fault of a collective, as torch does.
  std::string tell(const Watched& each, int64_t now_ns, bool told_of_group) const {
    std::string words;
    if (now_ns >= ends_ns(each)) {
      words = of_rank() + "Watchdog caught collective operation timeout: " + each.words() + " ran for " +
              std::to_string((now_ns - begin_ns(each)) / millisecond_ns) +
              " milliseconds before timing out.";
      LOG(ERROR) << words;
    } else {
      words = "NCCL error: remote process exited or there was a network error\n"
              "ncclRemoteError: A call failed possibly due to a network error or a remote process "
              "exiting prematurely.\nLast error:\n" + each.collective->error;
      LOG(ERROR) << of_rank() << "found async exception when checking for NCCL errors: " << words;
    }
    if (told_of_group)
      LOG(ERROR) << of_group() << " failure detected by watchdog at work sequence id: " << each.sequence
                 << " PG status: last enqueued work: " << last_posted
                 << ", last completed work: " << last_over;
    return words;
  }
  void tell_of_contents() const {
    LOG(ERROR) << of_rank()
               << "Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA "
                  "kernels, subsequent GPU operations might run on corrupted/incomplete data.";
  }
  void tell_of_end() const {
    LOG(ERROR) << of_rank()
               << "To avoid data inconsistency, we are taking the entire process down.";
  }
  std::vector<CollectivePtr> give_up() {
    std::vector<CollectivePtr> all;
    for (auto& each : watched) all.push_back(each.collective);
    watched.clear();
    given_up = true;
    return all;
  }
};

namespace {

struct Thread {  // one for all groups; never freed, as it never ends
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::weak_ptr<Watchdog::Group>> groups;
  int64_t wakes_ns = never_ns;
  bool runs = false;

  void run() {
    c10::setThreadName("pt_nccl_watchdg");
    std::unique_lock<std::mutex> guard(mutex);
    for (;;) {
      std::vector<CollectivePtr> given_up;
      wakes_ns = never_ns;
      int64_t now_ns = kernel_now_ns();
      for (auto& weak : groups)
        if (auto group = weak.lock()) look_at(*group, now_ns, given_up);
      if (!given_up.empty()) {
        guard.unlock();
        abandon(given_up);
        guard.lock();
      } else if (wakes_ns == never_ns) {
        changed.wait(guard);
      } else {
        using namespace std::chrono;
        changed.wait_until(guard, steady_clock::time_point(nanoseconds(wakes_ns)));
      }
    }
  }

  void look_at(Watchdog::Group& group, int64_t now_ns, std::vector<CollectivePtr>& given_up) {
    group.forget_those_over();
    for (size_t i = 0; i < group.watched.size(); i++) {
      auto each = group.watched[i];
      int64_t at_ns = group.looked_at_ns(each);
      if (at_ns > now_ns) {
        wakes_ns = std::min(wakes_ns, at_ns);
        continue;
      }
      auto words = group.tell(each, now_ns, true);
      group.tell_of_contents();
      if (group.handling == 0) {  // it is watched no more, and never over
        group.watched.erase(group.watched.begin() + i--);
      } else if (group.handling == 2) {
        given_up = group.give_up();
        return;
      } else {
        group.tell_of_end();
        auto last = group.of_group() + "Process group watchdog thread terminated with exception: " + words;
        LOG(ERROR) << last;
        throw c10::DistBackendError(last, nullptr);  // nobody catches it: the process gets SIGABRT
      }
    }
  }
};

Thread& thread() {
  static auto* only = new Thread();
  return *only;
}

}  // namespace

Watchdog::Watchdog(GroupName name) : group_(std::make_shared<Group>()) {
  group_->name = std::move(name);
  if (group_->blocks) return;
  auto& all = thread();
  std::lock_guard<std::mutex> guard(all.mutex);
  all.groups.erase(std::remove_if(all.groups.begin(), all.groups.end(),
                                  [](auto& each) { return each.expired(); }),
                   all.groups.end());
  all.groups.push_back(group_);
  if (all.runs) return;
  all.runs = true;
  std::thread([&all] { all.run(); }).detach();
}

void Watchdog::watch(const CollectivePtr& collective, uint64_t sequence, int64_t timeout_ms,
                     const std::string& description) {
  int64_t now_ns = host_now_ns();
  auto& all = thread();
  std::lock_guard<std::mutex> guard(all.mutex);
  group_->forget_those_over();
  group_->description = description;
  group_->last_posted = sequence;
  group_->watched.push_back({collective, sequence, now_ns, timeout_ms});
  if (!group_->blocks && group_->looked_at_ns(group_->watched.back()) < all.wakes_ns)
    all.changed.notify_one();
}

void Watchdog::await(const CollectivePtr& collective, const MomentPtr& end, int64_t timeout_ms) {
  if (!group_->blocks && timeout_ms == 0) return;
  auto& all = thread();
  Watched found{};
  int64_t ends_ns;
  {
    std::lock_guard<std::mutex> guard(all.mutex);
    for (auto& each : group_->watched)
      if (each.collective == collective) found = each;
    if (timeout_ms) found.timeout_ms = timeout_ms;
    ends_ns = group_->ends_ns(found);
  }
  if (!found.collective) return;  // it is over
  if (await_moment_until(end, collective, ends_ns)) return;
  std::vector<CollectivePtr> given_up;
  std::string words;
  {
    std::lock_guard<std::mutex> guard(all.mutex);
    words = group_->tell(found, kernel_now_ns(), false);
    if (kernel_now_ns() >= ends_ns)
      LOG(ERROR) << group_->of_rank() << "Work " << found.words() << " timed out in blocking wait.";
    group_->tell_of_contents();
    group_->tell_of_end();
    given_up = group_->give_up();
  }
  abandon(given_up);
  throw c10::DistBackendError(words, nullptr);
}

void Watchdog::expect_alive() const {
  TORCH_CHECK_WITH(DistBackendError, !group_->given_up, "NCCL communicator was aborted on rank ",
                   group_->name.rank, ".");
}

void look_after_failures() {
  auto& all = thread();
  std::lock_guard<std::mutex> guard(all.mutex);
  all.changed.notify_one();
}

}  // namespace groundwire
