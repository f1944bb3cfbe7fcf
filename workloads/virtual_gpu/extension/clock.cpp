#include "clock.hpp"

#include <c10/util/Exception.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>

#include "interpreter.hpp"
#include "settings.hpp"

namespace groundwire {
namespace {

// In virtual time, a program that reads the clock thousands of times at one instant is taken for a
// poller and naps for microseconds (docs/virtual-kernel.md). A nanosecond now and then prevents it.
constexpr int reads_at_an_instant = 8000;

std::mutex mutex;
int64_t ahead_ns = 0;
int64_t stepped_ns = 0;

}  // namespace

int64_t kernel_now_ns() {
  if (settings.steps_clock) return __atomic_load_n(&stepped_ns, __ATOMIC_SEQ_CST);
  static thread_local int64_t last_ns = 0;
  static thread_local int reads = 0;
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  int64_t found_ns = t.tv_sec * int64_t{1000000000} + t.tv_nsec;
  reads = found_ns == last_ns ? reads + 1 : 0;
  last_ns = found_ns;
  if (reads > reads_at_an_instant) {
    reads = 0;
    kernel_sleep_until(found_ns + 1);
  }
  return found_ns;
}

void kernel_sleep_until(int64_t ns) {
  if (settings.steps_clock) {
    std::lock_guard<std::mutex> guard(mutex);
    stepped_ns = std::max(stepped_ns, ns);
    return;
  }
  LetGo interpreter;
  // A thread that sleeps goes on a nanosecond late, unless something else of the guest interrupts in time. A timer that
  // is a file goes off then, whatever the network does.
  int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
  TORCH_CHECK(timer >= 0, "no timer: ", strerror(errno));
  itimerspec until{{0, 0}, {ns / 1000000000, ns % 1000000000}};
  uint64_t times;
  bool set = timerfd_settime(timer, TFD_TIMER_ABSTIME, &until, nullptr) == 0;
  while (set && read(timer, &times, sizeof times) < 0 && errno == EINTR) {
  }
  close(timer);
}

int64_t host_now_ns() {
  int64_t now_ns = kernel_now_ns();
  std::lock_guard<std::mutex> guard(mutex);
  return now_ns + ahead_ns;
}

int64_t host_launch_ns() {
  int64_t now_ns = kernel_now_ns();
  std::lock_guard<std::mutex> guard(mutex);
  ahead_ns += settings.launch_ns;
  return now_ns + ahead_ns;
}

void host_reach(int64_t ns) {
  int64_t goal_ns = std::max(ns, host_now_ns());
  if (goal_ns > kernel_now_ns()) kernel_sleep_until(goal_ns);
  int64_t now_ns = kernel_now_ns();
  std::lock_guard<std::mutex> guard(mutex);
  ahead_ns = std::min<int64_t>(goal_ns - now_ns, 0);
}

void host_disregard(int64_t blocked_ns) {
  std::lock_guard<std::mutex> guard(mutex);
  ahead_ns -= blocked_ns;
}

}  // namespace groundwire
