// SPDX-License-Identifier: GPL-2.0-only
// The event loop, and what ports and packets do in it.
#pragma once
#include "bbr.hpp"
#include "cells.hpp"
#include "choices.hpp"
#include "copies.hpp"
#include "fifo.hpp"
#include "fluid.hpp"
#include "hosts.hpp"
#include "leaps.hpp"
#include "programs.hpp"
#include "queued.hpp"
#include "receiver.hpp"
#include "recovery.hpp"
#include "requester.hpp"
#include "reroutes.hpp"
#include "responder.hpp"
#include "steps.hpp"
#include "timers.hpp"
#include "transmitter.hpp"
#include "verbs.hpp"

inline void Network::tell_sender(const Packet& packet, Time leaves_ns) {
    if (packet.hop != 1 || packet.sender == kNobody) return;
    if (packet.frame == Frame::kSegment) endpoints[packet.sender]->leaves_port(leaves_ns, packet.data);
    else queue_pairs[packet.sender]->leaves_port(packet, leaves_ns);
}

inline Time Network::next_of(const Port& port) const {
    Time following = port.flying.empty() ? kNever : port.flying.front().arrives;
    if (!port.queued) return port.ticks.empty() ? following : std::min(following, port.ticks.front());
    const QueuedState& state = *port.queued;
    if (state.sending || (state.shares_buffer && state.can_send())) following = std::min(following, port.ready());
    if (!state.credits.empty()) following = std::min(following, state.credits.front().time);
    return following;
}

inline void Network::impair(uint32_t link, int64_t rate_bps, Time delay_ns, const LinkFaults& faults, Time now) {
    for (uint32_t number : {2 * link, 2 * link + 1}) {
        if (!ports[number].queued) continue;  // nothing goes over it
        Queued(*this, number).impair(rate_bps, delay_ns, faults, now);
        if (ports[number].queued->cells) ports[number].queued->cells->rate_bps = uint64_t(rate_bps);
        arm(number);
    }
}

inline Programs::~Programs() = default;

inline Network::Network(size_t ports) : ports(ports), wheel_(ports) {}

inline Network::~Network() = default;

inline void Programs::flow_by(std::unique_ptr<Fluid> fluid) { fluid_ = std::move(fluid); }

inline void Programs::copy_by(std::unique_ptr<Copies> copies) { copies_ = std::move(copies); }

inline bool Programs::is_copied(int32_t message) const {
    return copies_ && copies_->carries(messages_[size_t(message)].pair);
}

inline void Programs::copy(int32_t message, Time now) { copies_->begin(message, now); }

inline void Programs::copies_fire(Time now) { copies_->fire(now); }

inline bool Programs::flow(int32_t pair, int32_t message, bool invites, Time now) {
    return fluid_->send(pair, message, invites, now);
}

inline void Programs::impair(int32_t row, Time now) {
    constexpr size_t kNumbers = 6;
    const int64_t* numbers = faults_.data + size_t(row) * kNumbers;
    if (row < 0 || size_t(row + 1) * kNumbers > faults_.size || size_t(numbers[0]) * 2 + 1 >= net_.ports.size())
        throw BadScenario("fault.rows: found a fault of no link");
    net_.impair(uint32_t(numbers[0]), numbers[1], numbers[2], {numbers[3], numbers[4], numbers[5] != 0}, now);
}

// Ways from hosts change; those from switches are looked up by each packet.
inline void Programs::reroute(int32_t state) {
    Reroutes& ways = *net_.reroutes;
    if (pair_places_.size != std::max(pairs_.size(), value_routes_.size()))
        throw BadScenario("pair.place: found " + std::to_string(pair_places_.size) + " places");
    ways.enter(size_t(state));
    size_t values = value_routes_.empty() ? 0 : value_routes_.size() / pairs_.size();
    for (size_t i = 0; i < pairs_.size(); ++i) {
        if (!pairs_[i].hops) continue;
        uint32_t place = uint32_t(pair_places_[i * std::max<size_t>(values, 1)]);
        pairs_[i].route = ways.route(place);
        pairs_[i].hops = ways.hops(place);
        for (size_t value = 0; value < values; ++value)
            value_routes_[i * values + value] = ways.route(uint32_t(pair_places_[i * values + value]));
        if (Endpoint* end = net_.endpoints[i]) end->route = pairs_[i].route, end->hops = pairs_[i].hops;
        if (QueuePair* end = net_.queue_pairs[i]) end->route = pairs_[i].route, end->hops = pairs_[i].hops;
    }
}

inline Time Network::send(uint32_t number, uint32_t packet, Time now) {
    Port& port = ports[number];
    ++hops;
    ++port.packets;
    return port.queued ? Queued(*this, number).send(packet, now) : fifo_send(port, packet, packets[packet], now);
}

inline Time Network::next_ns() const {
    Time first = std::min(std::min(wheel_.first_ns(), timers_.first_ns()),
                          std::min(tasklets_.first_ns(), processes_.first_ns()));
    return std::min(first, sleepers_.first_ns());
}

inline void Network::run(const std::function<void()>& looks) {
    constexpr uint32_t kTurnsBetween = 1 << 12;
    for (uint32_t turns = 1;; ++turns) {
        Time now = next_ns();
        if (now == kNever || turn(now)) return;
        if (turns % kTurnsBetween == 0) looks();
    }
}

inline bool Network::turn(Time now) {
    bool interrupted = now != now_ns;
    now_ns = now;
    // Events that are set for this nanosecond from here on are done once all of this is.
    bool tasklets = tasklets_.first_ns() == now, processes = processes_.first_ns() == now;
    if (tasklets) tasklets_.take(now, due_tasklets_);
    if (interrupted) {
        sleepers_.take(now, due_processes_);
        sleepers_.take(now + kSlackNs, due_processes_);
    }
    if (processes) processes_.take(now, due_processes_);
    processes = !due_processes_.empty();
    if (timers_.first_ns() == now) {
        timers_.take(now, due_timers_);
        if (due_timers_.size() > 1) order_timers();
        for (const Event& event : due_timers_) begin(event, now);
        due_timers_.clear();
    }
    wheel_.turn(now);
    fire_ports(now);
    if (!arrived_.empty() && go_on(now)) return true;
    if (tasklets) {
        if (due_tasklets_.size() > 1) order_tasklets();
        for (const Event& event : due_tasklets_) begin(event, now);
        due_tasklets_.clear();
    }
    if (now >= soft_ns_ || (softirq_runs_ && soft_ns_ != kNever)) expire(now);
    softirq_runs_ = false;
    if (processes) {
        for (const Event& event : due_processes_) begin(event, now);
        due_processes_.clear();
    }
    return programs->is_endless() && programs->are_over();
}

// Takes what has arrived by ports whose timers fire, which are set anew. Many fire at once: what one reads is on its
// way into the cache while those before it are served.
inline void Network::fire_ports(Time now) {
    for (uint32_t number = wheel_.first_at(now); number != kNobody;) {
        uint32_t following = wheel_.after(number);
        if (following != kNobody) {
            ports[following].flying.prefetch_front();
            uint32_t then = wheel_.after(following);
            if (then != kNobody) {
                __builtin_prefetch(&ports[then]);
                __builtin_prefetch(&ports[then].armed_ns);
            }
        }
        Port& port = ports[number];
        if (port.queued) {
            port.armed_ns = kNever;
            wheel_.remove(number);
            Queued(*this, number).fire(now, arrived_);
            arm(number);
            number = wheel_.first_at(now);  // it may have set or stopped the timers of others
            continue;
        }
        while (!port.ticks.empty() && port.ticks.front() <= now) port.ticks.pop_front();
        while (!port.flying.empty() && port.flying.front().arrives <= now) {
            arrived_.push_back(port.land());
            packets.prefetch(arrived_.back());
        }
        port.armed_ns = kNever;
        wheel_.remove(number);
        if (!port.flying.empty()) packets.prefetch(port.flying.front().packet);
        arm(number);
        number = following;
    }
}

// Has a packet's next port, or the socket that it is for, in the cache by the time that it goes on.
inline void Network::prefetch_place(const Packet& packet) const {
    if (packet.hop == packet.hops) {
        if (packet.frame == Frame::kSegment) __builtin_prefetch(endpoints[packet.target]);
        return;
    }
    uint32_t number = links[packet.route + packet.hop];
    if (number >= ports.size()) return;
    const Port& next = ports[number];
    __builtin_prefetch(&next, 1);
    __builtin_prefetch(&next.armed_ns, 1);
}

// Has all that arrived go on, in order; whether all programs are over.
inline bool Network::go_on(Time now) {
    constexpr size_t kAhead = 4;
    size_t count = arrived_.size();
    for (size_t i = 0; i < std::min(kAhead, count); ++i) prefetch_place(packets[arrived_[i]]);
    for (size_t i = 0; i < count; ++i) {
        if (i + kAhead < count) prefetch_place(packets[arrived_[i + kAhead]]);
        if (goes_on(arrived_[i], now) && programs->are_over()) return true;
    }
    arrived_.clear();
    return false;
}

// The kernel's worker does what it finds, and lets others go on between any two tasks.
inline void Network::take_tasks(Time now) {
    worker_is_awake_ = false;
    while (!tasks_.empty()) {
        Task task = tasks_.front();
        tasks_.pop_front();
        if (!tasks_.empty()) wake_worker();
        queue_pairs[task.queue_pair]->fire(task.what, now);
    }
    worker_is_awake_ = false;
}

// Timers of queue pairs interrupt. Those of sockets are the wheel's, which goes through its levels from the longest
// timers on, and at each from what was put there last (kernel/time/timer.c: expire_timers).
inline void Network::order_timers() {
    auto place = [this](const Event& event) {
        bool on_wheel = event.what == What::kRetransmitTimer || event.what == What::kAckTimer;
        if (!on_wheel) return WheelPlace{0, INT32_MAX, 0};
        return endpoints[event.whose]->place_of(event.what);
    };
    std::stable_sort(due_timers_.begin(), due_timers_.end(), [&](const Event& a, const Event& b) {
        WheelPlace first = place(a), second = place(b);
        return first.level != second.level ? first.level > second.level : first.number > second.number;
    });
}

// Sockets of a host that wait for what has left its port on this nanosecond go on from the last one of them: each goes to
// the head of one list, which a tasklet then takes from its head (tcp_wfree, tcp_tasklet_func).
inline void Network::order_tasklets() {
    auto left = [](const Event& event) { return event.what == What::kHasLeft; };
    auto port = [this](const Event& event) { return links[endpoints[event.whose]->route]; };
    for (size_t i = 0; i < due_tasklets_.size(); ++i) {
        if (!left(due_tasklets_[i])) continue;
        for (size_t j = i + 1; j < due_tasklets_.size(); ++j)
            if (left(due_tasklets_[j]) && port(due_tasklets_[i]) == port(due_tasklets_[j]) &&
                due_tasklets_[i].value < due_tasklets_[j].value)
                std::swap(due_tasklets_[i], due_tasklets_[j]);
    }
}

inline void Network::expire(Time now) {
    std::stable_sort(soft_.begin(), soft_.end(), [](const Soft& a, const Soft& b) { return a.until < b.until; });
    while (!soft_.empty() && soft_.front().from <= now) {
        uint32_t endpoint = soft_.front().endpoint;
        soft_.pop_front();
        endpoints[endpoint]->release_acks(now);
    }
    find_soft();
}

inline void Network::begin(const Event& event, Time now) {
    switch (event.what) {
        case What::kSoft:
            return;
        case What::kPaceIsOver:
            softirq_runs_ = true;
            return endpoints[event.whose]->fire(event.what, now);
        case What::kRead:
            if (programs->hosts()) return programs->hosts()->has_events(event.whose);
            return programs->read(endpoints[event.whose]->expected, event.value, endpoints[event.whose], now);
        case What::kReadWithin:
            return programs->read_within(event.whose, event.value, now);
        case What::kWritable:
            if (programs->hosts()) return programs->hosts()->has_events(event.whose);
            return programs->write_on(*endpoints[event.whose], now);
        case What::kHost:
            return programs->hosts()->goes_on(event.whose);
        case What::kUnreachable:
            return endpoints[event.whose]->is_unreachable(event.value, now);
        case What::kAwake:
            return programs->has_slept(int32_t(event.whose), now);
        case What::kTurn:
            return programs->has_turn(int32_t(event.whose), event.value, now);
        case What::kWorker:
            return take_tasks(now);
        case What::kFluid:
            return programs->fluid()->fire(event.whose, event.value, now);
        case What::kDriver:
            return programs->driver()->is_due(event.value, now);
        case What::kLeap:
            return programs->leaps->goes_on(int32_t(event.whose), event.value, now);
        case What::kStage:
            return programs->stages->goes_on(int32_t(event.whose), event.value, now);
        case What::kCells:
            return chassis[event.whose]->fire(now);
        case What::kCopies:
            return programs->copies_fire(now);
        case What::kCompletions:
            return programs->take_completions(event.whose, now);
        case What::kQueuePairTimer:
        case What::kQueuePairPace:
        case What::kQueuePairLost:
        case What::kHasLeftPort:
            return queue_pairs[event.whose]->fire(event.what, now);
        default:
            return endpoints[event.whose]->fire(event.what, now);
    }
}

// The link that a packet takes where its route's word is none; kNoRoute where nothing leads on.
inline uint32_t Network::onward(Packet& packet, uint32_t word, Time now) {
    if (word >= ports.size() + choices->size()) {
        word = reroutes->take(packet, word);
        if (word == Reroutes::kNoRoute || word < ports.size()) return word;
    }
    return choices->take(packet, uint32_t(word - ports.size()), now);
}

// To its next port; whether it has come instead.
inline bool Network::goes_on(uint32_t number, Time now) {
    Packet& packet = packets[number];
    if (packet.hop == packet.hops) {
        if (packet.frame == Frame::kSegment) endpoints[packet.target]->receive(packet, now);
        else queue_pairs[packet.target]->receive(number, now);
        packets.drop(number);
        return true;
    }
    uint32_t next = links[packet.route + packet.hop];
    came_by = links[packet.route + packet.hop - 1];
    if (next >= ports.size()) {
        uint32_t word = next;
        next = onward(packet, word, now);
        if (next == Reroutes::kNoRoute) {
            if (reroutes->tells(word, packet.sender, now) && packet.frame == Frame::kSegment)
                at_processes(now + programs->pair(packet.sender).base_ns / 2, What::kUnreachable, packet.sender, packet.seq);
            packets.drop(number);
            return false;
        }
    }
    ++packet.hop;
    Time leaves = send(next, number, now);
    if (leaves >= 0) {
        Port& port = ports[next];
        if (port.flying.size() == 1 || !port.ticks.empty()) arm(next);
    } else if (leaves == kLost) {
        packets.drop(number);
    }
    return false;
}
