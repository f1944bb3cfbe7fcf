// SPDX-License-Identifier: GPL-2.0-only
// Ports that serve in order of arrival: their times are known when a packet comes, so they need no
// event of their own. Drop-tail, marks at the tail, memory that is shared, random early detection.
#pragma once
#include <queue>

#include "network.hpp"

// What waits in a switch whose ports share one memory.
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

// Linux's prandom_u32_state: a combined Tausworthe generator (lib/random32.c, after L'Ecuyer, Maximally
// Equidistributed Combined Tausworthe Generators, 1996).
class PortRandom {
  public:
    explicit PortRandom(uint64_t seed) {
        uint32_t first = uint32_t(seed >> 32 ^ seed << 10 ^ seed);
        const uint32_t least[4] = {2, 8, 16, 128};
        for (int i = 0; i < 4; ++i) s_[i] = first < least[i] ? first + least[i] : first;
    }
    PortRandom(uint32_t s1, uint32_t s2, uint32_t s3, uint32_t s4) : s_{s1, s2, s3, s4} {}
    uint32_t next() {
        s_[0] = (s_[0] & 4294967294u) << 18 ^ (s_[0] << 6 ^ s_[0]) >> 13;
        s_[1] = (s_[1] & 4294967288u) << 2 ^ (s_[1] << 2 ^ s_[1]) >> 27;
        s_[2] = (s_[2] & 4294967280u) << 7 ^ (s_[2] << 13 ^ s_[2]) >> 21;
        s_[3] = (s_[3] & 4294967168u) << 13 ^ (s_[3] << 3 ^ s_[3]) >> 12;
        return s_[0] ^ s_[1] ^ s_[2] ^ s_[3];
    }

  private:
    uint32_t s_[4];
};

// RED on the average backlog (Floyd and Jacobson 1993) in the integers of gwport_red.c.
struct RedState {
    int64_t kmin_q16, kmax_q16, pmax_q32, weight_q32;
    bool ecn;
    Time packet_ns;
    PortRandom random;
    int64_t average_q16 = 0;

    // As of gw_red_admit: what does not fit moves the average, and draws, all the same.
    bool admits(Port& port, Packet& packet) {
        bool fits = port.backlog + packet.length <= port.buffer_bytes;
        int64_t found = port.backlog << 16;
        if (weight_q32 == kOne) average_q16 = found;
        else if (found >= average_q16) average_q16 += int64_t(__int128(found - average_q16) * weight_q32 >> 32);
        else average_q16 -= int64_t(__int128(average_q16 - found) * weight_q32 >> 32);
        if (!hits() || !fits) return fits;
        if (!ecn) return false;
        port.mark(packet);
        return true;
    }
    // As if so many small packets had found an empty port.
    void fall(int64_t missed) {
        if (weight_q32 == kOne) return;
        uint64_t keep = kOne - weight_q32;
        while (missed && average_q16) {
            if (missed & 1) average_q16 = int64_t((unsigned __int128)average_q16 * keep >> 32);
            keep = keep * keep >> 32;
            missed >>= 1;
        }
    }

  private:
    static constexpr int64_t kOne = 0xFFFFFFFF;
    bool hits() {
        int64_t over = average_q16 - kmin_q16;
        if (over < 0) return false;
        int64_t span = kmax_q16 - kmin_q16;
        if (over >= span) return true;
        int64_t chance = int64_t(__int128(pmax_q32) * over / span);
        return chance > 0 && (chance == kOne || random.next() < chance);
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
            if (ready < now) port.red->fall((now - ready) / port.red->packet_ns);
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
