// SPDX-License-Identifier: GPL-2.0-only
// The clock of a simulated fabric: packets that arrive, and timers, in the order of their times.
//
// Events of a nanosecond are done in phases, as the kernel's softirqs are ordered: timers of the
// wheel; ports, which hand over what has arrived and go on to transmit; the packets that were handed
// over; tasklets; processes. Within a phase it is done in the order in which the timers were set
// (include/linux/interrupt.h; emulator/kernel: gw_arm_timer). A port has one timer: for what arrives
// next, and before that for the end of a transmission that somebody waits to hear of. All ports whose
// timers fire at once have set them anew before the first of the packets goes on.
#pragma once
#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "heap.hpp"
#include "packet.hpp"
#include "port.hpp"
#include "wheel.hpp"

struct Endpoint;
class QueuePair;
class Programs;
class Choices;
class Reroutes;
struct LinkFaults;
class Chassis;

// The place of a socket's timer on the kernel's timer wheel: until when, at what level, and since how many others were
// put there.
struct WheelPlace {
    Time until = 0;
    int level = 0;
    uint64_t number = 0;
};

class Network {
  public:
    explicit Network(size_t ports);
    ~Network();
    Network(const Network&) = delete;
    Network& operator=(const Network&) = delete;

    std::vector<Port> ports;
    Packets packets;
    std::vector<uint32_t> links;        // of all routes, one after the other
    std::vector<Endpoint*> endpoints;   // by number; null until a connection is made
    std::vector<QueuePair*> queue_pairs;  // likewise
    Programs* programs = nullptr;
    Choices* choices = nullptr;         // of next hops
    Reroutes* reroutes = nullptr;       // while links go down and come back
    std::vector<std::unique_ptr<Chassis>> chassis;  // of switches that have a fabric of cells
    uint32_t came_by = kNobody;         // the link over which the packet came that goes on
    int64_t sent = 0, hops = 0;         // packets that left hosts; passages of ports
    Time now_ns = 0;

    void at_timers(Time time, What what, uint32_t whose) { timers_.add(time, what, whose); }
    void at_tasklets(Time time, What what, uint32_t whose, int64_t value = 0) {
        tasklets_.add(time, what, whose, value);
    }
    // The place of a packet among all that hosts have put into ports.
    int64_t next_place() { return ++places_; }
    void at_processes(Time time, What what, uint32_t whose, int64_t value) {
        processes_.add(time, what, whose, value);
    }

    // A task of a queue pair waits for the kernel's worker (kernel/workqueue.c). One that is woken takes up all that waits
    // by then; it wakes another where that is more than one, and is the first that is woken once it rests itself.
    void at_worker(What what, uint32_t queue_pair) {
        tasks_.push_back({what, queue_pair});
        wake_worker();
    }

    uint64_t next_process() { return processes_.next_number(); }
    void at_processes(const Event& event) { processes_.add(event); }

    // A timer of the wheel is set. One that is in that place already stays there.
    void put_on_wheel(WheelPlace& place, Time until, int level, Time now) {
        if (place.until > now && place.until == until && place.level == level) return;
        place = {until, level, ++put_on_wheel_};
    }

    // Time begins later than at 0.
    void begin_at(Time now) {
        now_ns = now;
        wheel_.turn(now);
    }

    // A program sleeps until then. Its timer has a slack of a nanosecond, as ranks ask for: it goes on in the nanosecond
    // after that, or then if something else interrupts just then (kernel/time/hrtimer.c).
    void sleeps_until(Time time, uint32_t program, What what = What::kAwake) {
        if (time < now_ns) at_processes(now_ns, what, program, 0);
        else sleepers_.add(time + kSlackNs, what, program);
    }

    // A program goes on at this time, which is when a rank was seen to post: in this nanosecond, if that has come, or
    // as one that has slept until then.
    void goes_on_at(Time time, uint32_t program) {
        sleeps_until(time > now_ns ? std::max(now_ns, time - kSlackNs) : now_ns - 1, program);
    }

    // Whoever drives the network wants to go on then: as a process, or as one that sleeps until then.
    void tell_driver(Time time, int64_t what, bool sleeps) {
        if (sleeps) sleepers_.add(time + kSlackNs, What::kDriver, 0, what);
        else at_processes(time, What::kDriver, 0, what);
    }

    // Has an end release its acknowledgements at the end of a range, or before that with what else is done at the
    // end of its own range, or when a pace is over: timers with slack expire together, and timers of paces run in the
    // same softirq (kernel/time/hrtimer.c: hrtimer_run_softirq).
    void within(Time from, Time until, uint32_t endpoint) {
        soft_.push_back({until, from, endpoint});
        soft_ns_ = std::min(soft_ns_, until);
        at_tasklets(until, What::kSoft, 0);
    }
    void without(uint32_t endpoint) {
        std::erase_if(soft_, [&](const Soft& each) { return each.endpoint == endpoint; });
        find_soft();
    }

    // A packet's last bit leaves a host's port then, of which the host wants to know.
    void leaves_host(uint32_t number, Time leaves_ns) {
        ++sent;
        ports[number].ticks.push_back(leaves_ns);
        arm(number);
    }
    // The end that has sent a packet is told when it leaves its host's port, which held it.
    void tell_sender(const Packet& packet, Time leaves_ns);

    // Sets a port's timer.
    void arm(uint32_t number) {
        Port& port = ports[number];
        Time following = next_of(port);
        if (following == port.armed_ns) return;
        port.armed_ns = following;
        if (following == kNever) wheel_.remove(number);
        else wheel_.set(number, std::max(following, now_ns));
    }

    // Queues a packet at a port: when its last bit leaves, of which nobody is told yet, kLost, or kHeld while that
    // is not known.
    Time send(uint32_t port, uint32_t packet, Time now);
    // The load of a port, by which next hops are chosen.
    uint64_t load(uint32_t port, Time now);
    // The ports of both directions of a link change from now on (gwport_change).
    void impair(uint32_t link, int64_t rate_bps, Time delay_ns, const LinkFaults& faults, Time now);

    // When the next thing happens, kNever if nothing does.
    Time next_ns() const;
    // All that falls on a nanosecond and is set by now; whether all programs are over.
    bool turn(Time now);
    // Follows all that happens, until nothing does or all programs are over; `looks` is called now and then.
    void run(const std::function<void()>& looks);

  private:
    struct Task {
        What what;
        uint32_t queue_pair;
    };
    void wake_worker() {
        if (worker_is_awake_) return;
        worker_is_awake_ = true;
        at_processes(now_ns, What::kWorker, 0, 0);
    }
    void take_tasks(Time now);

    struct Soft {
        Time until, from;
        uint32_t endpoint;
    };

    Time next_of(const Port& port) const;
    void order_timers();
    void order_tasklets();
    void find_soft() {
        soft_ns_ = kNever;
        for (const Soft& each : soft_) soft_ns_ = std::min(soft_ns_, each.until);
    }
    void expire(Time now);
    void fire_ports(Time now);
    void begin(const Event& event, Time now);
    bool go_on(Time now);
    bool goes_on(uint32_t packet, Time now);
    uint32_t onward(Packet& packet, uint32_t word, Time now);
    void prefetch_place(const Packet& packet) const;

    PortWheel wheel_;
    static constexpr Time kSlackNs = 1;
    uint64_t put_on_wheel_ = 0;
    int64_t places_ = 0;
    EventHeap timers_, tasklets_, processes_, sleepers_;
    std::deque<Task> tasks_;
    bool worker_is_awake_ = false;  // the one that is woken next
    std::deque<Soft> soft_;
    Time soft_ns_ = kNever;
    bool softirq_runs_ = false;  // in this nanosecond
    std::vector<uint32_t> arrived_;
    std::vector<Event> due_timers_, due_tasklets_, due_processes_;
};
