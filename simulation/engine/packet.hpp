// SPDX-License-Identifier: GPL-2.0-only
// Packets that go over links: segments and acknowledgements of TCP connections, packets of queue pairs, and pause frames.
#pragma once
#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <vector>

#include "controllers.hpp"

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

enum class Frame : uint8_t {
    kSegment,      // of a TCP connection
    kRequest,      // of a queue pair: a packet of a message or of a credit
    kAcknowledge,  // of a queue pair: of all requests up to `seq`
    kNak,          // of a queue pair: of all requests before `seq`, which is missing
    kBitmap,       // of a queue pair: as kAcknowledge, and which have come of those up to `ack`
    kTrimmed,      // of a queue pair: as kBitmap, but that the payload of `ack` has not come
    kCnp,          // of a queue pair: it got a marked request
    kProbe,        // of a queue pair: of the entropy value `seq`
    kProbeAnswer,  // of a queue pair: that it has come
    kPause,        // of a port: its neighbour stops, or goes on
};

// A frame: `length` as Linux counts it; `seq` and `data` bytes from there, none for an acknowledgement
// alone. `target` is an end of a connection, a queue pair or, for a pause frame, a port. `seq` of queue pairs
// counts packets, and `ranges` says where their telemetry is; a bitmap is in `stamp_ms` and, its upper half, in
// `echo_ms`, and `ece` tells that the request had a mark.
struct alignas(64) Packet {
    int64_t seq, ack;
    uint32_t data, length, window, stamp_ms, echo_ms;
    uint32_t route;  // where its links begin among all routes' links
    uint32_t target, sender;
    uint8_t hop, hops;
    uint8_t sacks;  // how many ranges it tells of; the first one may be of what came twice
    bool ect : 1, ce : 1, ece : 1, cwr : 1, push : 1;
    bool stops : 1;              // of a pause frame
    uint32_t ranges;             // where these are
    int32_t message;             // of a request
    Frame frame;
    bool is_write : 1;           // of a request: a part of the message itself, not its credit
    bool is_last : 1, asks : 1;  // of a request: its last packet; whether it asks for an acknowledgement
    bool is_trimmed : 1;         // a port had no room for its payload,
    bool is_trimmed_last : 1;    // that of its host
    uint8_t selector;            // DSCP class selector
    uint8_t hops_asked : 4;      // telemetry: the ports that it has room for,
    uint8_t hops_told : 4;       // and those that have written
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
        // Queues have them anywhere: by large pages, the processor knows where nearly all of them are.
        madvise(found, kMost * sizeof(Packet), MADV_HUGEPAGE);
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
        const Packet& packet = packets_[number];
        if (packet.sacks) free_ranges_.push_back(packet.ranges);
        if (packet.hops_asked) free_telemetry(packet.ranges);
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
    // Room for what ports write.
    uint32_t make_telemetry() {
        if (free_telemetry_.empty()) {
            uint32_t made = uint32_t(telemetry_.size());
            telemetry_.resize(telemetry_.size() + GW_INT_MAX_HOPS);
            return made;
        }
        uint32_t found = free_telemetry_.back();
        free_telemetry_.pop_back();
        return found;
    }
    void free_telemetry(uint32_t place) { free_telemetry_.push_back(place); }
    gw_int_hop* telemetry(uint32_t place) { return &telemetry_[place]; }
    const Range* ranges(const Packet& packet) const { return &ranges_[packet.ranges]; }

  private:
    static constexpr size_t kMost = size_t(1) << 28;
    static constexpr size_t kRanges = 3;
    Packet* packets_;
    uint32_t used_ = 0;
    std::vector<uint32_t> free_, free_ranges_, free_telemetry_;
    std::vector<Range> ranges_;
    std::vector<gw_int_hop> telemetry_;
};
