// SPDX-License-Identifier: GPL-2.0-only
// Ports that can be paused: priority flow control over a switch's memory (IEEE 802.1Qbb).
//
// As emulator/kernel/gwport_lossless.c has it: bytes that came in by a port and wait anywhere in the
// switch are counted; above XOFF the port sends its neighbour a pause frame, below XON one that takes it
// back. A pause frame waits for the frame in transmission alone, and takes its way like any other. When a
// packet leaves is not known before it does.
#pragma once
#include "network.hpp"

struct SwitchMemory {
    int64_t waiting_bytes = 0;
};

struct PausableState {
    bool has_limits = false;  // a host's port never pauses its neighbour
    int64_t xoff_bytes = 0, xon_bytes = 0, headroom_bytes = 0;
    SwitchMemory* memory = nullptr;
    struct Queued {
        uint32_t packet, ingress;  // the port by which it came in, kNobody at a host
    };
    Ring<Queued> queue;
    Ring<uint32_t> pauses;
    int64_t ingress_bytes = 0;
    bool xoff_sent = false, paused = false;
    Time serves_at = -1;
};

class Pausable {
  public:
    Pausable(Network& network, uint32_t number)
        : net_(network), number_(number), port_(network.ports[number]), state_(*port_.pausable) {}

    Time send(uint32_t number, Time now) {
        Packet& packet = net_.packets[number];
        uint32_t ingress = kNobody;
        if (packet.hop > 1) ingress = net_.links[packet.route + packet.hop - 2] ^ 1;
        PausableState* in = ingress == kNobody ? nullptr : net_.ports[ingress].pausable;
        bool counts = in && in->has_limits;
        int64_t length = packet.length;
        if (counts && in->ingress_bytes + length > in->xoff_bytes + in->headroom_bytes) {
            ++port_.drops;
            return kLost;
        }
        if (state_.memory->waiting_bytes + length > port_.buffer_bytes) {
            ++port_.drops;
            return kLost;
        }
        if (port_.backlog > port_.mark_above) port_.mark(packet);
        if (state_.queue.empty() && state_.pauses.empty()) port_.rest(now);
        state_.queue.push_back({number, ingress});
        port_.backlog += length;
        state_.memory->waiting_bytes += length;
        if (counts) Pausable(net_, ingress).charge(length, now);
        serve(now);
        return kHeld;
    }

    // Sends what is to be sent, or comes back when the line is free.
    void serve(Time now) {
        while (!state_.pauses.empty() || (!state_.queue.empty() && !state_.paused)) {
            Time ready = port_.ready();
            if (ready > now) {
                if (state_.serves_at != ready) {
                    state_.serves_at = ready;
                    if (port_.ticks.empty() || port_.ticks.back() < ready) port_.ticks.push_back(ready);
                    net_.arm(number_);
                }
                return;
            }
            if (ready < now) {
                port_.free_ns = now;
                port_.free_frac = 0;
            }
            if (!state_.pauses.empty()) {
                uint32_t frame = state_.pauses.front();
                state_.pauses.pop_front();
                transmit(frame);
                continue;
            }
            PausableState::Queued first = state_.queue.front();
            state_.queue.pop_front();
            int64_t length = net_.packets[first.packet].length;
            port_.backlog -= length;
            state_.memory->waiting_bytes -= length;
            transmit(first.packet);
            if (first.ingress != kNobody) Pausable(net_, first.ingress).uncharge(length, now);
        }
    }

    // The neighbour says so.
    void pause(bool stop, Time now) {
        state_.paused = stop;
        serve(now);
    }

  private:
    static constexpr uint32_t kPauseBytes = 60;  // a pause frame as Linux counts it (ETH_ZLEN)

    void charge(int64_t length, Time now) {
        state_.ingress_bytes += length;
        if (!state_.xoff_sent && state_.ingress_bytes > state_.xoff_bytes) {
            state_.xoff_sent = true;
            tell_neighbour(true, now);
        }
    }
    void uncharge(int64_t length, Time now) {
        if (!state_.has_limits) return;
        state_.ingress_bytes -= length;
        if (state_.xoff_sent && state_.ingress_bytes < state_.xon_bytes) {
            state_.xoff_sent = false;
            tell_neighbour(false, now);
        }
    }
    void tell_neighbour(bool stop, Time now) {
        uint32_t number = net_.packets.make();
        Packet& frame = net_.packets[number];
        frame.route = number_;  // the first routes are each link's own
        frame.hops = frame.hop = 1;
        frame.target = number_ ^ 1;
        frame.sender = kNobody;
        frame.is_pause = true;
        frame.stops = stop;
        frame.length = kPauseBytes;
        if (state_.pauses.empty() && (state_.paused || state_.queue.empty())) port_.rest(now);
        state_.pauses.push_back(number);
        serve(now);
    }
    void transmit(uint32_t packet) { net_.transmit(number_, packet); }

    Network& net_;
    uint32_t number_;
    Port& port_;
    PausableState& state_;
};
