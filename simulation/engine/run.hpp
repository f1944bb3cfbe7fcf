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

inline void Served::transmit(uint32_t number) {
    const Packet& packet = net_.packets[number];
    Time leaves = port_.occupy(packet.length);
    if (packet.sender != kNobody && packet.hop == 1) net_.endpoints[packet.sender]->leaves_port(leaves, packet.data);
    net_.leaves(number_, leaves, number);
}

inline void Pausable::transmit(uint32_t number) {
    const Packet& packet = net_.packets[number];
    Time leaves = port_.occupy(packet.length);
    if (packet.sender != kNobody && packet.hop == 1) net_.endpoints[packet.sender]->leaves_port(leaves, packet.data);
    net_.leaves(number_, leaves, number);
}

inline Time Network::send(uint32_t number, uint32_t packet, Time now) {
    Port& port = ports[number];
    ++hops;
    if (!port.serves) return fifo_send(port, packets[packet], now);
    if (port.discipline == Discipline::kPausable) return Pausable(*this, number).send(packet, now);
    return Served(*this, number).send(packet, now);
}

inline void Network::serve(uint32_t number, Time now) {
    if (ports[number].discipline == Discipline::kPausable) Pausable(*this, number).serve(now);
    else Served(*this, number).serve(now);
}

inline void Network::run() {
    for (;;) {
        Time now = std::min(std::min(heap_.first_ns(), timers_.first_ns()),
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
        while (heap_.first_ns() == now) fire_port(now);
        if (!arrived_.empty()) {
            for (uint32_t packet : arrived_)
                if (goes_on(packet, now) && programs->are_over()) return;
            arrived_.clear();
        }
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

// Takes what has arrived by a port, whose timer is set anew.
inline void Network::fire_port(Time now) {
    uint32_t number = heap_.first();
    Port& port = ports[number];
    while (!port.ticks.empty() && port.ticks.front() <= now) port.ticks.pop_front();
    while (!port.flying.empty() && port.flying.front().arrives <= now) {
        arrived_.push_back(port.flying.front().packet);
        port.flying.pop_front();
    }
    if (!port.flying.empty()) packets.prefetch(port.flying.front().packet);
    if (port.serves) {
        port.armed_ns = kNever;
        heap_.remove(number);
        serve(number, now);
        arm(number);
        return;
    }
    port.armed_ns = next_of(port);
    if (port.armed_ns == kNever) heap_.remove(number);
    else heap_.set(number, port.armed_ns);
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
        port.flying.push_back({leaves + port.delay_ns, number});
        if (port.flying.size() == 1 || !port.ticks.empty()) arm(next);
    } else if (leaves == kLost) {
        packets.drop(number);
    }
    return false;
}
