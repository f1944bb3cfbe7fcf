// SPDX-License-Identifier: GPL-2.0-only
// Ports that serve in order of arrival: their times are known when a packet comes, so they need no
// event of their own. Drop-tail, marks at the tail, memory that is shared, random early detection.
#pragma once
#include <queue>

#include "network.hpp"
#include "red.hpp"

// The memory of a switch that its ports share.
struct SharedMemory {
    int64_t bytes = 0;
    void joined(Time starts, int64_t length) {
        bytes += length;
        waiting_.push({starts, length});
    }
    int64_t at(Time now) {
        while (!waiting_.empty() && waiting_.top().first <= now) {
            bytes -= waiting_.top().second;
            waiting_.pop();
        }
        return bytes;
    }

  private:
    using Entry = std::pair<Time, int64_t>;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> waiting_;
};

// A queue may have `alpha` times what is free of the switch's memory (Choudhury and Hahne 1998).
struct SharedState {
    int64_t alpha_q16 = 0;
    SharedMemory* memory = nullptr;
};

// RED of a whole port.
struct RedState {
    RedLine line;
    int64_t weight_q32;
    bool ecn;
    Time packet_ns;
    PortRandom random;
    RedAverage average{};

    // As of gw_red_admit: what does not fit moves the average, and draws, all the same.
    bool admits(Port& port, Packet& packet) {
        bool fits = port.backlog + packet.length <= port.buffer_bytes;
        average.meet(port.backlog, weight_q32);
        if (!line.hits(average.average_q16, random) || !fits) return fits;
        if (!ecn) return false;
        port.mark(packet);
        return true;
    }
};

// Whether there is room for a packet that has to wait; it is marked where it is to be.
inline bool fifo_admits(Port& port, Packet& packet, Time now) {
    if (port.discipline == Discipline::kRed) return port.red->admits(port, packet);
    if (port.discipline == Discipline::kShared) {
        int64_t room = std::max<int64_t>(0, port.buffer_bytes - port.shared->memory->at(now));
        int64_t bound = int64_t(__int128(room) * port.shared->alpha_q16 >> 16);
        if (packet.length > room || port.backlog + packet.length > bound) return false;
    } else if (port.backlog + packet.length > port.buffer_bytes) {
        return false;
    }
    if (port.backlog > port.mark_above) port.mark(packet);
    return true;
}

inline Time fifo_send(Port& port, uint32_t number, Packet& packet, Time now) {
    Time ready = port.ready();
    bool waits = false;
    if (ready <= now) {
        port.backlog = 0;
        port.started = port.flying.tail();
        if (port.discipline == Discipline::kRed) {
            if (ready < now) port.red->average.fall((now - ready) / port.red->packet_ns, port.red->weight_q32);
            if (!port.red->admits(port, packet)) {
                ++port.drops;
                return kLost;
            }
        }
        port.free_ns = now;
        port.free_frac = 0;
    } else {
        port.begin_until(now);
        if (!fifo_admits(port, packet, now)) {
            ++port.drops;
            return kLost;
        }
        waits = port.free_ns > now || port.started != port.flying.tail();
        if (waits) {
            port.backlog += packet.length;
            if (port.discipline == Discipline::kShared) {
                port.shared->memory->joined(ready, packet.length);
                port.ticks.push_back(ready);
            }
        }
    }
    Time leaves = port.occupy(packet.length);
    port.fly(leaves, number, packet.length, waits);
    return leaves;
}
