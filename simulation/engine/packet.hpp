// SPDX-License-Identifier: GPL-2.0-only
// What goes over links: segments and acknowledgements of TCP connections, and pause frames.
#pragma once
#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <vector>

using Time = int64_t;  // nanoseconds

inline constexpr Time kNever = Time(1) << 62;
inline constexpr Time kSecondNs = 1'000'000'000;
inline constexpr Time kJiffyNs = 1'000'000;
inline constexpr int64_t kHeadersBytes = 66;       // Ethernet 14, IPv4 20, TCP 20, timestamps 12
inline constexpr int64_t kSackBytes = 8;           // TCP options of RFC 2018: 8 a block,
inline constexpr int64_t kFirstSackBytes = 12;     // and 4 more with padding
inline constexpr uint32_t kNobody = UINT32_MAX;
inline constexpr uint32_t kNoPacket = UINT32_MAX;
inline constexpr Time kLost = -1, kHeld = -2;      // what a port answers in place of a time

struct Range {
    int64_t first, last;
};

// A frame: `length` as Linux counts it; `seq` and `data` bytes from there, none for an acknowledgement
// alone. `target` is an end of a connection or, for a pause frame, a port.
struct alignas(64) Packet {
    int64_t seq, ack;
    uint32_t data, length, window, stamp_ms, echo_ms;
    uint32_t route;  // where its links begin among all routes' links
    uint32_t target, sender;
    uint8_t hop, hops;
    uint8_t sacks;  // how many ranges it tells of
    bool ect : 1, ce : 1, ece : 1, cwr : 1, push : 1, dsack : 1, is_pause : 1, stops : 1;
    uint32_t ranges;  // where these are
    int64_t end_seq() const { return seq + data; }
};
static_assert(sizeof(Packet) == 64);

// Packets by number. Memory is set aside, and taken when it is used.
class Packets {
  public:
    Packets() {
        void* found = mmap(nullptr, kMost * sizeof(Packet), PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (found == MAP_FAILED) abort();
        packets_ = static_cast<Packet*>(found);
    }
    Packets(const Packets&) = delete;
    Packets& operator=(const Packets&) = delete;
    Packet& operator[](uint32_t number) { return packets_[number]; }
    // Has a packet in the cache by the time that it is wanted.
    void prefetch(uint32_t number) const { __builtin_prefetch(&packets_[number]); }

    uint32_t make() {
        uint32_t number;
        if (free_.empty()) {
            if (used_ == kMost) abort();
            number = used_++;
        } else {
            number = free_.back();
            free_.pop_back();
        }
        packets_[number] = Packet{};
        return number;
    }
    void drop(uint32_t number) {
        if (packets_[number].sacks) free_ranges_.push_back(packets_[number].ranges);
        free_.push_back(number);
    }
    void tell(Packet& packet, const Range* ranges, uint8_t count) {
        packet.sacks = count;
        if (!count) return;
        if (free_ranges_.empty()) {
            packet.ranges = uint32_t(ranges_.size());
            ranges_.resize(ranges_.size() + kRanges);
        } else {
            packet.ranges = free_ranges_.back();
            free_ranges_.pop_back();
        }
        for (uint8_t i = 0; i < count; ++i) ranges_[packet.ranges + i] = ranges[i];
    }
    const Range* ranges(const Packet& packet) const { return &ranges_[packet.ranges]; }

  private:
    static constexpr size_t kMost = size_t(1) << 28;
    static constexpr size_t kRanges = 3;
    Packet* packets_;
    uint32_t used_ = 0;
    std::vector<uint32_t> free_, free_ranges_;
    std::vector<Range> ranges_;
};
