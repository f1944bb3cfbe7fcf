// SPDX-License-Identifier: GPL-2.0-only
// Heaps of what comes next: four children a place, equal times in the order in which they were set.
#pragma once
#include <cstdint>
#include <vector>

#include "port.hpp"

// The ports whose timers are set, each once.
class PortHeap {
  public:
    explicit PortHeap(size_t ports) : place_(ports, kNobody) {}
    bool empty() const { return heap_.empty(); }
    Time first_ns() const { return heap_.empty() ? kNever : heap_[0].time; }
    uint32_t first() const { return heap_[0].port(); }

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

enum class What : uint32_t {
    kRetransmitTimer,  // of an end
    kAckTimer,         // of an end
    kServe,            // a port goes on to transmit
    kHasLeft,          // a packet of an end has left its host's port
    kPaceIsOver,       // of an end
    kSoft,             // an interrupt, with which what is due in a range is done
    kRead,             // a thread reads what has come to an end
    kAwake,            // a program goes on
};

struct Event {
    Time time;
    uint64_t number;
    What what;
    uint32_t whose;
    int64_t value;
    bool operator<(const Event& other) const {
        return time != other.time ? time < other.time : number < other.number;
    }
};

class EventHeap {
  public:
    Time first_ns() const { return heap_.empty() ? kNever : heap_[0].time; }
    void add(Time time, What what, uint32_t whose, int64_t value = 0) {
        Event event{time, ++sequence_, what, whose, value};
        heap_.push_back(event);
        size_t place = heap_.size() - 1;
        while (place) {
            size_t parent = (place - 1) / 4;
            if (!(event < heap_[parent])) break;
            heap_[place] = heap_[parent];
            place = parent;
        }
        heap_[place] = event;
    }
    // Moves what falls on `now` to the end of `due`.
    void take(Time now, std::vector<Event>& due) {
        while (!heap_.empty() && heap_[0].time == now) {
            due.push_back(heap_[0]);
            pop();
        }
    }

  private:
    void pop() {
        Event entry = heap_.back();
        heap_.pop_back();
        size_t size = heap_.size(), place = 0;
        if (!size) return;
        for (;;) {
            size_t child = place * 4 + 1;
            if (child >= size) break;
            size_t least = child, end = std::min(child + 4, size);
            for (size_t i = child + 1; i < end; ++i)
                if (heap_[i] < heap_[least]) least = i;
            if (!(heap_[least] < entry)) break;
            heap_[place] = heap_[least];
            place = least;
        }
        heap_[place] = entry;
    }
    std::vector<Event> heap_;
    uint64_t sequence_ = 0;
};
