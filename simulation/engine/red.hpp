// SPDX-License-Identifier: GPL-2.0-only
// Random early detection (Floyd and Jacobson 1993) in the integers of emulator/kernel/gwport_red.c, and a port's
// random numbers.
#pragma once
#include <cstdint>

#include "packet.hpp"

inline constexpr int64_t kOneQ32 = 0xFFFFFFFF;  // stands for 1

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
    // Whether something of this probability happens; 2^32 - 1 stands for 1 (gw_chance).
    bool hits(int64_t chance_q32) {
        return chance_q32 > 0 && (chance_q32 == kOneQ32 || next() < chance_q32);
    }
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

// The line from kmin to kmax, by which packets are marked or dropped.
struct RedLine {
    int64_t kmin_q16, kmax_q16, pmax_q32;
    bool hits(int64_t queue_q16, PortRandom& random) const {
        if (queue_q16 < kmin_q16) return false;
        if (queue_q16 >= kmax_q16) return true;
        return random.hits(int64_t(__int128(pmax_q32) * (queue_q16 - kmin_q16) / (kmax_q16 - kmin_q16)));
    }
};

// The average backlog.
struct RedAverage {
    int64_t average_q16 = 0;
    // An arrival finds so many bytes.
    void meet(int64_t bytes, int64_t weight_q32) {
        int64_t found = bytes << 16;
        if (weight_q32 == kOneQ32) average_q16 = found;
        else if (found >= average_q16) average_q16 += int64_t(__int128(found - average_q16) * weight_q32 >> 32);
        else average_q16 -= int64_t(__int128(average_q16 - found) * weight_q32 >> 32);
    }
    // As if so many small packets had found an empty port.
    void fall(int64_t missed, int64_t weight_q32) {
        if (weight_q32 == kOneQ32) return;
        uint64_t keep = uint64_t(kOneQ32 - weight_q32);
        while (missed && average_q16) {
            if (missed & 1) average_q16 = int64_t((unsigned __int128)average_q16 * keep >> 32);
            keep = keep * keep >> 32;
            missed >>= 1;
        }
    }
};
