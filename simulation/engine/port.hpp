// SPDX-License-Identifier: GPL-2.0-only
// A directed link with the queue of its port, in integer nanoseconds.
//
// As emulator/kernel has them: a frame takes max(length, 60) + 24 bytes of the line, fractions of a
// nanosecond are carried, a packet leaves the backlog when its transmission starts, and an arriving
// packet is compared with the backlog that it finds.
#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "packet.hpp"
#include "ring.hpp"

enum class Discipline : uint8_t { kFifo = 0, kShared, kRed, kQueued };

inline constexpr int64_t kOverheadBytes = 24, kLeastBytes = 60;

// A packet that a port has taken, the length that it counts there, and whether it goes no further than the link: it is
// lost there, or for the port at its end.
struct Flying {
    Time arrives;
    uint32_t packet;
    uint32_t length : 31;
    uint32_t ends_here : 1;
};

// The time that frames of each length take of a line: nanoseconds, and what is left over in parts of the rate.
class LineCosts {
  public:
    struct Cost {
        int64_t ns = -1, frac = 0;
    };
    explicit LineCosts(int64_t rate_bps) : rate_bps_(rate_bps) {}
    const Cost& of(uint32_t length) {
        if (length >= known_.size()) known_.resize(length + 1);
        Cost& found = known_[length];
        if (found.ns < 0) {
            __int128 bits = __int128(std::max<int64_t>(length, kLeastBytes) + kOverheadBytes) * 8 * kSecondNs;
            found = {int64_t(bits / rate_bps_), int64_t(bits % rate_bps_)};
        }
        return found;
    }

  private:
    int64_t rate_bps_;
    std::vector<Cost> known_;
};

struct SharedMemory;
struct SharedState;
struct RedState;
struct QueuedState;

// The fields that every packet of a port reads lie in its first two cache lines.
struct alignas(64) Port {
    Time free_ns = 0;
    int64_t free_frac = 0;
    int64_t rate_bps = 0;
    Time delay_ns = 0;
    int64_t buffer_bytes = 0;
    int64_t mark_above = INT64_MAX;
    int64_t backlog = 0;
    LineCosts* costs = nullptr;
    Time armed_ns = kNever;
    Ring<Flying> flying;   // taken and not arrived, in order
    QueuedState* queued = nullptr;
    Discipline discipline = Discipline::kFifo;
    uint32_t started = 0;  // the place in `flying` up to which what waits in the backlog has begun
    Ring<Time> ticks;      // when transmissions end of which somebody wants to know
    int64_t drops = 0, marks = 0, packets = 0, bytes = 0;
    SharedState* shared = nullptr;
    RedState* red = nullptr;

    Time ready() const { return free_frac ? free_ns + 1 : free_ns; }

    // As of gw_transmitter_idle: a line that is free by now starts anew.
    void rest(Time now) {
        if (ready() <= now) {
            free_ns = now;
            free_frac = 0;
        }
    }
    // Takes the line for a frame. When its last bit leaves.
    Time occupy(uint32_t length) {
        const LineCosts::Cost& cost = costs->of(length);
        free_ns += cost.ns;
        free_frac += cost.frac;
        if (free_frac >= rate_bps) {
            free_frac -= rate_bps;
            ++free_ns;
        }
        return ready();
    }
    // A packet's last bit leaves then; whether it waits in the backlog until it begins.
    void fly(Time leaves, uint32_t packet, uint32_t length, bool waits, bool ends_here = false) {
        bytes += length;
        flying.push_back({leaves + delay_ns, packet, length & 0x7FFFFFFF, ends_here});
        if (!waits) started = flying.tail();
    }
    // Takes off the wire what arrives first.
    uint32_t land() {
        const Flying first = flying.front();
        if (started == flying.head()) {
            backlog -= first.length;
            ++started;
        }
        flying.pop_front();
        return first.packet;
    }
    // Has what has begun by now leave the backlog. A packet begins when the one before it has left.
    void begin_until(Time now) {
        for (; started != flying.tail(); ++started) {
            if (started != flying.head() && flying.at(started - 1).arrives - delay_ns > now) return;
            backlog -= flying.at(started).length;
        }
    }
    void mark(Packet& packet) {
        if (packet.ect && !packet.ce) {
            packet.ce = true;
            ++marks;
        }
    }
};
