#include "timeline.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>

#include "carrier.hpp"
#include "clock.hpp"
#include "interpreter.hpp"
#include "meter.hpp"
#include "profiler.hpp"
#include "watchdog.hpp"

namespace groundwire {
namespace {

enum class Kind { kernel, record, wait, collective };

struct Item {
  Kind kind;
  int64_t earliest_ns;
  int64_t duration_ns = 0;
  Work work{};
  MomentPtr moment;
  CollectivePtr collective;
  int64_t number = -1;
  ProfileRowPtr row{};          // while a profile is taken
};

struct Stream {
  int64_t ns = 0;               // when all that is not pending is done
  std::deque<Item> pending;
  bool carrying = false;        // its first pending item is a collective that is on its way
  CollectivePtr cause;
  std::vector<std::pair<CollectivePtr, std::pair<int64_t, int64_t>>> stalls;  // kept if work follows
  size_t stretch = SIZE_MAX;
  int64_t number = -1;          // of its last launch
  Launches behind;              // of others, that its next one waits for
  int64_t host_waits = 0;       // of the host, that it knows of
};

std::mutex mutex;
std::condition_variable changed;
std::map<StreamKey, Stream> streams;
std::vector<Stretch> all_stretches;
std::vector<KernelTime> all_kernels;
std::vector<CommunicationTime> all_communications;
std::map<const char*, Total> all_totals;
size_t kept_kernels = 0;  // at most
int64_t launches = 0;
std::vector<std::pair<int64_t, int64_t>> all_dependencies;
Launches host_behind;  // that the host has last waited for
int64_t host_waits = 0;

void settle_stalls(Stream& stream) {
  for (auto& [collective, stall] : stream.stalls) {
    int64_t begin_ns = std::max(stall.first, collective->begin_ns);
    int64_t end_ns = std::min(stall.second, collective->end_ns);
    if (end_ns > begin_ns) collective->stalls.push_back({begin_ns, end_ns});
  }
  stream.stalls.clear();
}

void log_kernel(const StreamKey& key, Stream& stream, const Item& item, int64_t begin_ns) {
  settle_stalls(stream);
  auto& total = all_totals[item.work.name];
  total.kernels++;
  total.ns += item.duration_ns;
  total.flops += item.work.flops;
  total.bytes += item.work.bytes;
  int64_t end_ns = begin_ns + item.duration_ns;
  if (!item.work.copies) meter_busy(key.first, begin_ns, end_ns);
  if (all_kernels.size() < kept_kernels)
    all_kernels.push_back({key, item.work.name, item.work.phase, item.earliest_ns, begin_ns, end_ns,
                           item.work.flops, item.work.bytes, item.number});
  if (item.row) item.row->set_times(begin_ns, end_ns);
  if (item.work.copies) return;
  auto* last = stream.stretch == SIZE_MAX ? nullptr : &all_stretches[stream.stretch];
  if (last && last->end_ns == begin_ns && last->phase == item.work.phase) {
    last->end_ns = end_ns;
    last->flops += item.work.flops;
    last->bytes += item.work.bytes;
    last->kernels++;
  } else {
    stream.stretch = all_stretches.size();
    all_stretches.push_back(
        {key, item.work.phase, begin_ns, end_ns, item.work.flops, item.work.bytes, 1});
  }
}

// The collective that a stream has been at is over now.
void end_collective(const StreamKey& key, Stream& own) {
  auto collective = own.pending.front().collective;
  int64_t launched_ns = own.pending.front().earliest_ns;
  auto row = std::move(own.pending.front().row);
  own.pending.pop_front();
  own.carrying = false;
  own.ns = collective->end_ns = std::max(kernel_now_ns(), collective->begin_ns);
  own.cause = collective;
  meter_busy(key.first, collective->begin_ns, collective->end_ns);
  if (key.second == 0) own.stalls.push_back({collective, {collective->begin_ns, collective->end_ns}});
  if (all_communications.size() < kept_kernels)
    all_communications.push_back(
        {key, collective->about, launched_ns, collective->begin_ns, collective->end_ns});
  if (row) row->set_times(collective->begin_ns, collective->end_ns);
  collective->over = true;
}

void go_on();

// Gives items their times, as far as they can be known. Returns whether there was one.
bool advance(const StreamKey& key, Stream& stream) {
  bool any = false;
  while (!stream.pending.empty() && !stream.carrying) {
    auto& item = stream.pending.front();
    int64_t begin_ns = std::max(stream.ns, item.earliest_ns);
    if (item.kind == Kind::kernel) {
      stream.ns = begin_ns + item.duration_ns;
      log_kernel(key, stream, item, begin_ns);
    } else if (item.kind == Kind::record) {
      item.moment->known = true;
      item.moment->ns = begin_ns;
      item.moment->cause = stream.cause;
    } else if (item.kind == Kind::wait) {
      if (!item.moment->known) return any;
      if (item.moment->ns > begin_ns && item.moment->cause) {
        stream.cause = item.moment->cause;
        if (key.second == 0) stream.stalls.push_back({stream.cause, {begin_ns, item.moment->ns}});
      }
      stream.ns = std::max(stream.ns, item.moment->ns);
    } else {
      auto collective = item.collective;
      collective->begin_ns = begin_ns;
      stream.carrying = true;
      if (collective->abandoned) {
        end_collective(key, stream);
        return true;
      }
      collective->carrier->take(collective, [key, collective] {
        std::lock_guard<std::mutex> guard(mutex);
        if (collective->over) return;  // it has been abandoned
        end_collective(key, streams[key]);
        go_on();
      });
      return true;
    }
    stream.pending.pop_front();
    any = true;
  }
  return any;
}

// With the lock held: all that follows from the end of a collective.
void go_on() {
  bool more = true;
  while (more) {
    more = false;
    for (auto& [other, stream] : streams) more = advance(other, stream) || more;
  }
  changed.notify_all();
}

void add_launches(Launches& to, const Launches& more) {
  for (auto& [key, number] : more) {
    auto [found, is_new] = to.insert({key, number});
    if (!is_new) found->second = std::max(found->second, number);
  }
}

// All that a stream has been given by now.
Launches launches_of(const StreamKey& key, const Stream& stream) {
  auto found = stream.behind;
  if (stream.number >= 0) found[key] = stream.number;
  return found;
}

// With the lock held: the host goes on when these are over.
void host_waited(Launches behind) {
  if (behind.empty()) return;
  host_behind = std::move(behind);
  host_waits++;
}

// With the lock held: the number of a launch, and what it waits for.
void order(const StreamKey& key, Stream& stream, Item& item) {
  if (item.kind == Kind::record) {
    item.moment->behind = launches_of(key, stream);
  } else if (item.kind == Kind::wait) {
    add_launches(stream.behind, item.moment->behind);
  } else {
    item.number = launches++;
    if (item.collective) item.collective->number = item.number;
    if (stream.host_waits != host_waits) add_launches(stream.behind, host_behind);
    stream.host_waits = host_waits;
    if (size_t(item.number) < kept_kernels)
      for (auto& [other, number] : stream.behind)
        if (other != key) all_dependencies.push_back({item.number, number});
    stream.behind.clear();
    stream.number = item.number;
  }
}

// With the lock held: one more item, and all that follows from it.
void add(const StreamKey& key, Item item) {
  auto& stream = streams[key];
  order(key, stream, item);
  stream.pending.push_back(std::move(item));
  if (stream.pending.size() > 1) return;
  bool more = advance(key, stream);
  while (more) {  // a record may be what others wait for
    more = false;
    for (auto& [other, each] : streams)
      if (!each.pending.empty()) more = advance(other, each) || more;
  }
}

}  // namespace

void run_kernel(const StreamKey& key, int64_t duration_ns, const Work& work) {
  int64_t earliest_ns = host_launch_ns();
  std::lock_guard<std::mutex> guard(mutex);
  auto row = profile_kernel(key, work, earliest_ns);
  add(key, {Kind::kernel, earliest_ns, duration_ns, work, nullptr, nullptr, -1, std::move(row)});
}

MomentPtr record_moment(const StreamKey& key) {
  auto moment = std::make_shared<Moment>();
  int64_t earliest_ns = host_now_ns();
  std::lock_guard<std::mutex> guard(mutex);
  add(key, {Kind::record, earliest_ns, 0, {}, moment, nullptr});
  return moment;
}

void wait_for(const StreamKey& key, const MomentPtr& moment) {
  int64_t earliest_ns = host_now_ns();
  std::lock_guard<std::mutex> guard(mutex);
  add(key, {Kind::wait, earliest_ns, 0, {}, moment, nullptr});
}

void run_collective(const StreamKey& key, const CollectivePtr& collective) {
  int64_t earliest_ns = host_launch_ns();
  std::lock_guard<std::mutex> guard(mutex);
  auto row = profile_collective(key, collective->about, earliest_ns);
  add(key, {Kind::collective, earliest_ns, 0, {}, nullptr, collective, -1, std::move(row)});
}

bool has_come(const MomentPtr& moment) {
  int64_t now_ns = host_now_ns();
  std::lock_guard<std::mutex> guard(mutex);
  return moment->known && moment->ns <= now_ns;
}

bool is_idle(const StreamKey& key) {
  int64_t now_ns = host_now_ns();
  std::lock_guard<std::mutex> guard(mutex);
  auto& stream = streams[key];
  return stream.pending.empty() && stream.ns <= now_ns;
}

void await_moment(const MomentPtr& moment) {
  LetGo interpreter;
  int64_t ns;
  {
    std::unique_lock<std::mutex> guard(mutex);
    changed.wait(guard, [&] { return moment->known; });
    ns = moment->ns;
    host_waited(moment->behind);
  }
  host_reach(ns);
}

bool await_moment_until(const MomentPtr& moment, const CollectivePtr& collective, int64_t until_ns) {
  LetGo interpreter;
  using namespace std::chrono;
  auto told = [&] { return moment->known || collective->failed_ns >= 0; };
  int64_t ns;
  {
    std::unique_lock<std::mutex> guard(mutex);
    if (until_ns == INT64_MAX)
      changed.wait(guard, told);
    else
      changed.wait_until(guard, steady_clock::time_point(nanoseconds(until_ns)), told);
    if (!moment->known) return false;
    ns = moment->ns;
    host_waited(moment->behind);
  }
  host_reach(std::min(ns, until_ns));
  return ns <= until_ns;
}

void await_stream(const StreamKey& key) {
  LetGo interpreter;
  int64_t ns;
  {
    std::unique_lock<std::mutex> guard(mutex);
    auto& stream = streams[key];
    changed.wait(guard, [&] { return stream.pending.empty(); });
    settle_stalls(stream);
    ns = stream.ns;
    host_waited(launches_of(key, stream));
  }
  host_reach(ns);
}

void await_device(int device) {
  LetGo interpreter;
  int64_t ns = 0;
  {
    std::unique_lock<std::mutex> guard(mutex);
    changed.wait(guard, [&] {
      return std::all_of(streams.begin(), streams.end(), [&](auto& each) {
        return each.first.first != device || each.second.pending.empty();
      });
    });
    Launches behind;
    for (auto& [key, stream] : streams)
      if (key.first == device) {
        settle_stalls(stream);
        ns = std::max(ns, stream.ns);
        add_launches(behind, launches_of(key, stream));
      }
    host_waited(std::move(behind));
  }
  host_reach(ns);
}

void await_carried(const Collective& collective) {
  {
    std::lock_guard<std::mutex> guard(mutex);
    if (collective.over) {
        return;
    }
  }
  LetGo interpreter;
  int64_t began_ns = kernel_now_ns();
  {
    std::unique_lock<std::mutex> guard(mutex);
    changed.wait(guard, [&] { return collective.over.load(); });
  }
  host_disregard(kernel_now_ns() - began_ns);
}

void fail(const CollectivePtr& collective, const std::string& error) {
  {
    std::lock_guard<std::mutex> guard(mutex);
    collective->error = error;
    collective->failed_ns = kernel_now_ns();
    changed.notify_all();
  }
  look_after_failures();
}

void abandon(const std::vector<CollectivePtr>& collectives) {
  std::lock_guard<std::mutex> guard(mutex);
  for (auto& each : collectives) each->abandoned = !each->over;
  for (auto& [key, stream] : streams)
    if (stream.carrying && stream.pending.front().collective->abandoned) end_collective(key, stream);
  go_on();
}

int64_t time_between_ns(const MomentPtr& begin, const MomentPtr& end) {
  std::lock_guard<std::mutex> guard(mutex);
  return end->ns - begin->ns;
}

void keep_kernels(int64_t at_most) { kept_kernels = at_most; }

std::vector<Stretch> stretches() {
  std::lock_guard<std::mutex> guard(mutex);
  return all_stretches;
}

std::vector<KernelTime> kernels() {
  std::lock_guard<std::mutex> guard(mutex);
  return all_kernels;
}

std::vector<CommunicationTime> communications() {
  std::lock_guard<std::mutex> guard(mutex);
  return all_communications;
}

int64_t next_number() {
  std::lock_guard<std::mutex> guard(mutex);
  return launches;
}

std::vector<std::pair<int64_t, int64_t>> dependencies() {
  std::lock_guard<std::mutex> guard(mutex);
  return all_dependencies;
}

std::map<std::string, Total> totals() {
  std::lock_guard<std::mutex> guard(mutex);
  std::map<std::string, Total> found;
  for (auto& [name, total] : all_totals) {
    auto& sum = found[name];
    sum.kernels += total.kernels;
    sum.ns += total.ns;
    sum.flops += total.flops;
    sum.bytes += total.bytes;
  }
  return found;
}

}  // namespace groundwire
