// SPDX-License-Identifier: GPL-2.0-only
// Ports whose discipline chooses when a transmission starts: CoDel, its flows, virtual output queues.
//
// As emulator/kernel/gwport_codel.c, gwport_voq.c and gwport_queue.c have them: what waits stands in
// flows that deficit round robin serves (Shreedhar and Varghese 1996; new flows first, RFC 8290 section
// 4.2), and CoDel drops or marks at the head (RFC 8289 section 5). Every direction of a connection is a
// flow of FQ-CoDel: that two of them share a hash is not followed.
#pragma once
#include <cmath>
#include <deque>
#include <memory>
#include <unordered_map>

#include "network.hpp"

// A packet that waits, and since when; none where a flow has none left.
struct Held {
    uint32_t packet = kNoPacket;
    Time came = 0;
};

struct QueueFlow {
    Ring<Held> packets;
    int64_t size_bytes = 0, deficit = 0;
    bool active = false;
    // CoDel's state.
    Time first_above_ns = 0, drop_next_ns = 0;
    int64_t count = 0, last_count = 0;
    bool dropping = false;
};

struct ServedState {
    int64_t quantum_bytes = 0;
    // CoDel's parameters; `ce_threshold_ns` -1 marks nothing by time alone.
    Time target_ns = 0, interval_ns = 0, ce_threshold_ns = -1;
    bool ecn = false;
    int64_t mtu_bytes = 0;  // what may wait without being too much: a frame
    std::unordered_map<uint32_t, std::unique_ptr<QueueFlow>> flows;
    std::deque<QueueFlow*> fresh, old;
    Time serves_at = -1;
};

class Served {
  public:
    Served(Network& network, uint32_t number)
        : net_(network), number_(number), port_(network.ports[number]), state_(*port_.served) {}

    Time send(uint32_t number, Time now) {
        Packet& packet = net_.packets[number];
        std::unique_ptr<QueueFlow>& slot = state_.flows[flow_of(packet)];
        if (!slot) slot = std::make_unique<QueueFlow>();
        QueueFlow& flow = *slot;
        if (!makes_room(flow, packet)) {
            ++port_.drops;
            return kLost;
        }
        if (flow.size_bytes > port_.mark_above) port_.mark(packet);
        if (!port_.backlog) port_.rest(now);
        flow.packets.push_back({number, now});
        flow.size_bytes += packet.length;
        port_.backlog += packet.length;
        if (!flow.active) {
            flow.active = true;
            flow.deficit = state_.quantum_bytes;
            (port_.discipline == Discipline::kFqCodel ? state_.fresh : state_.old).push_back(&flow);
        }
        serve(now);
        return kHeld;
    }

    void serve(Time now) {
        while (port_.backlog) {
            Time ready = port_.ready();
            if (ready > now) {
                if (state_.serves_at != ready) {
                    state_.serves_at = ready;
                    net_.at_timers(ready, What::kServe, number_);
                }
                return;
            }
            if (ready < now) {
                port_.free_ns = now;
                port_.free_frac = 0;
            }
            uint32_t packet = next(now);
            if (packet != kNoPacket) transmit(packet);
        }
    }

  private:
    uint32_t flow_of(const Packet& packet) const {
        switch (port_.discipline) {
            case Discipline::kVoq:
                return packet.hop > 1 ? net_.links[packet.route + packet.hop - 2] + 1 : 0;
            case Discipline::kFqCodel:
                return packet.target;
            default:
                return 0;
        }
    }

    bool makes_room(QueueFlow& flow, const Packet& packet) {
        if (port_.discipline == Discipline::kVoq) return flow.size_bytes + packet.length <= port_.buffer_bytes;
        if (port_.discipline == Discipline::kFqCodel) {
            // As of gw_fq_codel_admit: the longest flow loses its first packet.
            while (port_.backlog && port_.backlog + packet.length > port_.buffer_bytes) {
                QueueFlow* longest = nullptr;
                for (auto* turns : {&state_.fresh, &state_.old})
                    for (QueueFlow* each : *turns)
                        if (!longest || each->size_bytes > longest->size_bytes) longest = each;
                net_.packets.drop(pop(*longest).packet);
                ++port_.drops;
            }
        }
        return port_.backlog + packet.length <= port_.buffer_bytes;
    }

    Held pop(QueueFlow& flow) {
        if (flow.packets.empty()) return {};
        Held found = flow.packets.front();
        flow.packets.pop_front();
        int64_t length = net_.packets[found.packet].length;
        flow.size_bytes -= length;
        port_.backlog -= length;
        return found;
    }

    // As of gw_round_robin.
    uint32_t next(Time now) {
        while (!state_.fresh.empty() || !state_.old.empty()) {
            bool is_new = !state_.fresh.empty();
            std::deque<QueueFlow*>& turns = is_new ? state_.fresh : state_.old;
            QueueFlow& flow = *turns.front();
            if (flow.deficit <= 0) {
                flow.deficit += state_.quantum_bytes;
                turns.pop_front();
                state_.old.push_back(&flow);
                continue;
            }
            uint32_t packet = port_.discipline == Discipline::kVoq ? pop(flow).packet : take(flow, now);
            if (packet != kNoPacket) {
                flow.deficit -= net_.packets[packet].length;
                return packet;
            }
            turns.pop_front();
            if (is_new && !state_.old.empty()) state_.old.push_back(&flow);
            else flow.active = false;
        }
        return kNoPacket;
    }

    // As of gw_codel_dequeue.
    uint32_t take(QueueFlow& flow, Time now) {
        bool too_long;
        Held found = codel_pop(flow, now, too_long);
        if (!too_long) flow.dropping = false;
        else if (!flow.dropping) found = begin_dropping(flow, found, now);
        else found = go_on_dropping(flow, found, now);
        if (found.packet == kNoPacket) return kNoPacket;
        if (state_.ce_threshold_ns >= 0 && now - found.came > state_.ce_threshold_ns)
            port_.mark(net_.packets[found.packet]);
        return found.packet;
    }

    Held codel_pop(QueueFlow& flow, Time now, bool& too_long) {
        Held found = pop(flow);
        too_long = false;
        if (found.packet == kNoPacket || now - found.came < state_.target_ns ||
            flow.size_bytes <= state_.mtu_bytes) {
            flow.first_above_ns = 0;
            return found;
        }
        if (!flow.first_above_ns) {
            flow.first_above_ns = now + state_.interval_ns;
            return found;
        }
        too_long = now >= flow.first_above_ns;
        return found;
    }

    Held begin_dropping(QueueFlow& flow, Held found, Time now) {
        int64_t delta = flow.count - flow.last_count;
        bool soon = now < flow.drop_next_ns + 16 * state_.interval_ns;
        flow.dropping = true;
        flow.count = flow.last_count = delta > 1 && soon ? delta : 1;
        if (!marks(found)) {
            drop(found, now);
            bool too_long;
            found = codel_pop(flow, now, too_long);
        }
        flow.drop_next_ns = after(now, flow.count);
        return found;
    }

    Held go_on_dropping(QueueFlow& flow, Held found, Time now) {
        while (flow.dropping && now >= flow.drop_next_ns) {
            ++flow.count;
            Time following = after(flow.drop_next_ns, flow.count);
            if (marks(found)) {
                flow.drop_next_ns = following;
                break;
            }
            drop(found, now);
            bool too_long;
            found = codel_pop(flow, now, too_long);
            if (too_long) flow.drop_next_ns = following;
            else flow.dropping = false;
        }
        return found;
    }

    void drop(Held found, Time now);

    // Whether a packet could be marked instead of dropped.
    bool marks(Held found) {
        if (!state_.ecn || found.packet == kNoPacket || !net_.packets[found.packet].ect) return false;
        port_.mark(net_.packets[found.packet]);
        return true;
    }

    // RFC 8289's control law: an interval over the root of the count.
    Time after(Time time, int64_t count) const {
        unsigned __int128 square = (unsigned __int128)state_.interval_ns * state_.interval_ns / count;
        auto root = (unsigned __int128)std::sqrt((long double)square);
        while (root * root > square) --root;
        while ((root + 1) * (root + 1) <= square) ++root;
        return time + Time(root);
    }

    void transmit(uint32_t packet) { net_.transmit(number_, packet); }

    Network& net_;
    uint32_t number_;
    Port& port_;
    ServedState& state_;
};
