// SPDX-License-Identifier: GPL-2.0-only
// The event loop, and what ports and packets do in it.
#pragma once
#include "bbr.hpp"
#include "fifo.hpp"
#include "pausable.hpp"
#include "programs.hpp"
#include "receiver.hpp"
#include "recovery.hpp"
#include "served.hpp"
#include "timers.hpp"
#include "transmitter.hpp"

inline void Served::drop(Held found, Time now) {
    ++port_.drops;
    const Packet& packet = net_.packets[found.packet];
    if (packet.hop == 1 && packet.sender != kNobody) net_.endpoints[packet.sender]->leaves_port(now, packet.data);
    net_.packets.drop(found.packet);
}

inline void Network::transmit(uint32_t number, uint32_t place) {
    Port& port = ports[number];
    const Packet& packet = packets[place];
    Time leaves = port.occupy(packet.length);
    if (packet.sender != kNobody && packet.hop == 1) endpoints[packet.sender]->leaves_port(leaves, packet.data);
    port.fly(leaves, place, packet.length, false);
    if (packet.hop == 1) leaves_host(number, leaves);
    else arm(number);
}

inline Time Network::send(uint32_t number, uint32_t packet, Time now) {
    Port& port = ports[number];
    ++hops;
    if (!port.serves) return fifo_send(port, packet, packets[packet], now);
    if (port.discipline == Discipline::kPausable) return Pausable(*this, number).send(packet, now);
    return Served(*this, number).send(packet, now);
}

inline void Network::serve(uint32_t number, Time now) {
    if (ports[number].discipline == Discipline::kPausable) Pausable(*this, number).serve(now);
    else Served(*this, number).serve(now);
}

inline void Network::run() {
    for (;;) {
        Time now = std::min(std::min(wheel_.first_ns(), timers_.first_ns()),
                            std::min(tasklets_.first_ns(), processes_.first_ns()));
        if (now == kNever) return;
        now_ns = now;
        // What is set for this nanosecond from here on is done once all of this is.
        bool tasklets = tasklets_.first_ns() == now, processes = processes_.first_ns() == now;
        if (tasklets) tasklets_.take(now, due_tasklets_);
        if (processes) processes_.take(now, due_processes_);
        if (timers_.first_ns() == now) {
            timers_.take(now, due_timers_);
            for (const Event& event : due_timers_) begin(event, now);
            due_timers_.clear();
        }
        wheel_.turn(now);
        fire_ports(now);
        if (!arrived_.empty() && go_on(now)) return;
        if (tasklets) {
            for (const Event& event : due_tasklets_) begin(event, now);
            due_tasklets_.clear();
        }
        if (now >= soft_ns_) expire(now);
        if (processes) {
            for (const Event& event : due_processes_) begin(event, now);
            due_processes_.clear();
        }
    }
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
        while (!port.ticks.empty() && port.ticks.front() <= now) port.ticks.pop_front();
        while (!port.flying.empty() && port.flying.front().arrives <= now) {
            arrived_.push_back(port.land());
            packets.prefetch(arrived_.back());
        }
        port.armed_ns = kNever;
        wheel_.remove(number);
        if (!port.flying.empty()) packets.prefetch(port.flying.front().packet);
        if (port.serves) serve(number, now);
        arm(number);
        // What is served may set or stop the timers of others.
        number = port.serves ? wheel_.first_at(now) : following;
    }
}

// Has a packet's next port, or the socket that it is for, in the cache by the time that it goes on.
inline void Network::prefetch_place(const Packet& packet) const {
    if (packet.hop == packet.hops) {
        if (!packet.is_pause) __builtin_prefetch(endpoints[packet.target]);
        return;
    }
    const Port& next = ports[links[packet.route + packet.hop]];
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
        case What::kServe:
            return serve(event.whose, now);
        case What::kSoft:
            return;
        case What::kRead:
            return programs->read(*endpoints[event.whose], event.value, now);
        case What::kAwake:
            return programs->has_slept(int32_t(event.whose), now);
        default:
            return endpoints[event.whose]->fire(event.what, now);
    }
}

// To its next port; whether it has come instead.
inline bool Network::goes_on(uint32_t number, Time now) {
    Packet& packet = packets[number];
    if (packet.hop == packet.hops) {
        if (packet.is_pause) Pausable(*this, packet.target).pause(packet.stops, now);
        else endpoints[packet.target]->receive(packet, now);
        packets.drop(number);
        return true;
    }
    uint32_t next = links[packet.route + packet.hop];
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
