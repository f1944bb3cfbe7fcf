// Streams and events in virtual time.
//
// A stream is a line of items in order: kernels, which take a time, waits for events, records of
// events, and collectives, whose end nobody knows before the fabric has carried them. An item's times
// are known as soon as those before it are; until then it is pending. A collective is carried by a
// thread of its group, from the moment on at which its stream gets to it.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace groundwire {

using StreamKey = std::pair<int, int64_t>;  // device, number; 0 is the device's default stream

// The number of a launch on each of some streams: the last one that something waits for.
using Launches = std::map<StreamKey, int64_t>;

class Carrier;

struct Communication {   // what a collective is
  std::string kind, group, type;
  std::vector<int64_t> ranks;
  int64_t in_elements = 0, out_elements = 0;
  int peer = -1;         // of a message: its other end, a position among the ranks
};

struct Collective {
  Communication about;
  int64_t begin_ns = -1, end_ns = -1;
  int64_t stream = 0, posted_ns = -1;  // when the host posted it
  int64_t number = -1;                 // among the launches of the process
  // What each of its operations brings, or gets, and how much of that is sent; bytes.
  std::vector<std::pair<int64_t, int64_t>> sizes;
  std::atomic<bool> over{false};
  std::string error;             // known when it has failed
  std::atomic<int64_t> failed_ns{-1};
  bool abandoned = false;        // it is over, though nobody carried it: its results are not known
  std::vector<std::pair<int64_t, int64_t>> stalls;  // of the default stream, which waited for it
  std::vector<std::string> told;  // how each of its operations ran, as ring.hpp has it
  std::function<void()> carry;   // called by the carrier's thread; returns when it is over
  std::shared_ptr<Carrier> carrier;
  int64_t place = 0;             // in the order in which the carrier's were posted
};
using CollectivePtr = std::shared_ptr<Collective>;

struct Moment {          // of an event's record
  bool known = false;
  int64_t ns = 0;
  CollectivePtr cause;   // the collective that its stream last waited for
  Launches behind;       // that are over then
};
using MomentPtr = std::shared_ptr<Moment>;

struct Work {            // of a kernel
  const char* name;
  int64_t flops = 0, bytes = 0;
  int phase = 0;         // 0 forward, 1 backward, 2 optimizer
  bool copies = false;   // between host and device
};

struct Stretch {         // kernels of one phase, one after the other without a gap
  StreamKey stream;
  int phase;
  int64_t begin_ns, end_ns, flops, bytes, kernels;
};

struct KernelTime {      // for a trace
  StreamKey stream;
  const char* name;
  int phase;
  int64_t launched_ns, begin_ns, end_ns, flops, bytes, number;
};

struct CommunicationTime {
  StreamKey stream;
  Communication about;
  int64_t launched_ns, begin_ns, end_ns;
};

struct Total {
  int64_t kernels = 0, ns = 0, flops = 0, bytes = 0;
};

void run_kernel(const StreamKey& stream, int64_t duration_ns, const Work& work);
MomentPtr record_moment(const StreamKey& stream);
void wait_for(const StreamKey& stream, const MomentPtr& moment);
void run_collective(const StreamKey& stream, const CollectivePtr& collective);

bool has_come(const MomentPtr& moment);    // by the host's time
bool is_idle(const StreamKey& stream);
void await_moment(const MomentPtr& moment);  // the host waits
// The host waits until then at most, and until a collective has failed. Whether the moment has come.
bool await_moment_until(const MomentPtr& moment, const CollectivePtr& collective, int64_t until_ns);
void await_stream(const StreamKey& stream);
void await_device(int device);
void await_carried(const Collective& collective);  // for its contents; the host's time stands still

void fail(const CollectivePtr& collective, const std::string& error);  // its stream stands still
void abandon(const std::vector<CollectivePtr>& collectives);           // their streams go on

int64_t time_between_ns(const MomentPtr& begin, const MomentPtr& end);

void keep_kernels(int64_t at_most);  // and communications
std::vector<Stretch> stretches();
std::vector<KernelTime> kernels();
std::vector<CommunicationTime> communications();
// Launches of kernels and collectives are numbered in their order. Pairs of a launch and one before it on
// another stream, or for which the host has waited in between: the first begins when the second is over.
int64_t next_number();
std::vector<std::pair<int64_t, int64_t>> dependencies();
std::map<std::string, Total> totals();

}  // namespace groundwire
