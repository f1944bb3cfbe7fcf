// The host's time. It is the kernel's own clock, in virtual time, plus what this process is ahead or
// behind: ahead by launches whose time it has not let pass yet, behind where it had to wait for the
// contents of a tensor that the host of a real device would not have looked at.
#pragma once
#include <cstdint>

namespace groundwire {

int64_t kernel_now_ns();
void kernel_sleep_until(int64_t ns);

int64_t host_now_ns();
int64_t host_launch_ns();                  // as above, after the time of a launch
void host_reach(int64_t ns);               // the host waits until then
void host_disregard(int64_t blocked_ns);   // it was blocked for so long, for no reason of its own

}  // namespace groundwire
