// SPDX-License-Identifier: GPL-2.0-only
// Events by their times: a heap with four children a place, equal times in the order in which they were set.
#pragma once
#include <cstdint>
#include <vector>

#include "packet.hpp"

enum class What : uint32_t {
    kRetransmitTimer,  // of an end
    kAckTimer,         // of an end
    kHasLeft,          // a packet of an end has left its host's port
    kPaceIsOver,       // of an end
    kSoft,             // an interrupt, with which what is due in a range is done
    kRead,             // a thread reads what has come to an end
    kReadWithin,       // a thread reads what has come from a rank of its own host
    kAwake,            // a program goes on
    kTurn,             // a program that was woken has its turn
    kWorker,           // a worker of the kernel takes up tasks of queue pairs
    kQueuePairTimer,   // a queue pair has waited for an acknowledgement
    kQueuePairPace,    // a queue pair may send its next request
    kQueuePairLost,    // a packet of a queue pair is lost by now
    kHasLeftPort,      // a packet of a queue pair has left its host's port
    kSendTask,         // of a queue pair
    kReceiveTask,      // of a queue pair
    kCopies,           // ports take up copies, and some are complete
    kCompletions,      // a thread takes what has been completed
    kWritable,         // a thread writes what an end's send buffer has room for now
    kFluid,            // something of a fluid
    kDriver,           // whoever drives the network goes on
    kHost,             // a thread of a host that takes time goes on
    kLeap,             // a member of a list of steps that was leapt over is through with it
    kStage,            // a member of a stage that was leapt over is through with it
    kUnreachable,      // a switch had no route for what an end sent
    kCells,            // something of a switch's fabric of cells
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
    void add(Time time, What what, uint32_t whose, int64_t value = 0) { add({time, next_number(), what, whose, value}); }
    // The number of an event that is added later: of equal times, it comes in the order of numbers.
    uint64_t next_number() { return ++sequence_; }
    void add(const Event& event) {
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
