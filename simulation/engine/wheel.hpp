// SPDX-License-Identifier: GPL-2.0-only
// The timers of ports, each of which has one: a wheel with a place for each nanosecond of the next 16 microseconds, and
// a heap for what is set for later. Timers of one nanosecond are in the order in which they were set.
#pragma once
#include <bit>
#include <cstdint>
#include <vector>

#include "packet.hpp"

// Timers that are set for later than the wheel reaches, each port once.
class PortHeap {
  public:
    explicit PortHeap(size_t ports) : place_(ports, kNobody) {}
    bool empty() const { return heap_.empty(); }
    Time first_ns() const { return heap_.empty() ? kNever : heap_[0].time; }
    uint32_t first() const { return heap_[0].port(); }
    bool has(uint32_t port) const { return place_[port] != kNobody; }

    void set(uint32_t port, Time time) {
        Entry entry{time, ++sequence_ << kPortBits | port};
        uint32_t place = place_[port];
        if (place == kNobody) {
            place = uint32_t(heap_.size());
            heap_.push_back(entry);
            up(place, entry);
        } else if (entry < heap_[place]) {
            up(place, entry);
        } else {
            down(place, entry);
        }
    }
    void remove(uint32_t port) {
        uint32_t place = place_[port];
        if (place == kNobody) return;
        place_[port] = kNobody;
        Entry last = heap_.back();
        heap_.pop_back();
        if (place == heap_.size()) return;
        if (place && last < heap_[(place - 1) / 4]) up(place, last);
        else down(place, last);
    }

  private:
    static constexpr int kPortBits = 24;
    struct Entry {
        Time time;
        uint64_t key;  // when it was set, and whose it is
        uint32_t port() const { return uint32_t(key & ((1u << kPortBits) - 1)); }
        bool operator<(const Entry& other) const {
            return time != other.time ? time < other.time : key < other.key;
        }
    };
    void put(uint32_t place, const Entry& entry) {
        heap_[place] = entry;
        place_[entry.port()] = place;
    }
    void up(uint32_t place, Entry entry) {
        while (place) {
            uint32_t parent = (place - 1) / 4;
            if (!(entry < heap_[parent])) break;
            put(place, heap_[parent]);
            place = parent;
        }
        put(place, entry);
    }
    void down(uint32_t place, Entry entry) {
        uint32_t size = uint32_t(heap_.size());
        for (;;) {
            uint32_t child = place * 4 + 1;
            if (child >= size) break;
            uint32_t least = child, end = std::min(child + 4, size);
            for (uint32_t i = child + 1; i < end; ++i)
                if (heap_[i] < heap_[least]) least = i;
            if (!(heap_[least] < entry)) break;
            put(place, heap_[least]);
            place = least;
        }
        put(place, entry);
    }

    std::vector<uint32_t> place_;  // of each port in the heap
    std::vector<Entry> heap_;
    uint64_t sequence_ = 0;
};

class PortWheel {
  public:
    explicit PortWheel(size_t ports) : timers_(ports), later_(ports), slots_(kSlots), words_(kSlots / 64), sums_(kSlots / 4096) {}

    // The first time that is set.
    Time first_ns() const {
        if (!count_) return later_.first_ns();
        // The places from now on, then those from the beginning, which are later.
        uint32_t from = uint32_t(now_ & kMask), slot = next_slot(from);
        if (slot == kNobody) slot = next_slot(0);
        return now_ + ((slot - from) & kMask);
    }
    // From here on it is this late; nothing is set for a time before.
    void turn(Time now) {
        now_ = now;
        while (later_.first_ns() - now < kSlots) {
            uint32_t port = later_.first();
            Time time = later_.first_ns();
            later_.remove(port);
            add(port, time);
        }
    }
    // The first of the ports whose timers are set for now, and the one after one of them.
    uint32_t first_at(Time now) const { return slots_[now & kMask].first; }
    uint32_t after(uint32_t port) const { return timers_[port].next; }

    void set(uint32_t port, Time time) {
        remove(port);
        if (time - now_ < kSlots) add(port, time);
        else later_.set(port, time);
    }
    void remove(uint32_t port) {
        Timer& timer = timers_[port];
        if (timer.slot == kNobody) {
            if (later_.has(port)) later_.remove(port);
            return;
        }
        Slot& slot = slots_[timer.slot];
        (timer.previous == kNobody ? slot.first : timers_[timer.previous].next) = timer.next;
        (timer.next == kNobody ? slot.last : timers_[timer.next].previous) = timer.previous;
        if (slot.first == kNobody) empty(timer.slot);
        timer = {};
        --count_;
    }

  private:
    static constexpr uint32_t kSlots = 1 << 14, kMask = kSlots - 1;
    struct Timer {
        uint32_t slot = kNobody, previous = kNobody, next = kNobody;
    };
    struct Slot {
        uint32_t first = kNobody, last = kNobody;
    };
    void add(uint32_t port, Time time) {
        uint32_t place = uint32_t(time & kMask);
        Slot& slot = slots_[place];
        timers_[port] = {place, slot.last, kNobody};
        (slot.last == kNobody ? slot.first : timers_[slot.last].next) = port;
        slot.last = port;
        words_[place / 64] |= uint64_t(1) << place % 64;
        sums_[place / 4096] |= uint64_t(1) << place / 64 % 64;
        ++count_;
    }
    void empty(uint32_t place) {
        words_[place / 64] &= ~(uint64_t(1) << place % 64);
        if (!words_[place / 64]) sums_[place / 4096] &= ~(uint64_t(1) << place / 64 % 64);
    }
    // The first place from `from` on that has a timer.
    uint32_t next_slot(uint32_t from) const {
        uint32_t word = from / 64;
        if (uint64_t found = words_[word] >> from % 64) return from + uint32_t(std::countr_zero(found));
        ++word;
        for (uint32_t sum = word / 64; sum < kSlots / 4096; ++sum) {
            uint64_t found = sums_[sum];
            if (sum == word / 64) found &= ~uint64_t(0) << word % 64;
            if (!found) continue;
            word = sum * 64 + uint32_t(std::countr_zero(found));
            return word * 64 + uint32_t(std::countr_zero(words_[word]));
        }
        return kNobody;
    }

    Time now_ = 0;
    size_t count_ = 0;
    std::vector<Timer> timers_;  // of each port
    PortHeap later_;
    std::vector<Slot> slots_;
    std::vector<uint64_t> words_, sums_;  // which slots have timers, and which words
};
