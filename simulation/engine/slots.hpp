// SPDX-License-Identifier: GPL-2.0-only
// Which chunk a rank starts next, and which stream has a switch: as collectives/start_order.py and
// workloads/execution/aggregation/stream_locks.py have it, which say why.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

enum class Order : int64_t { kFifo = 0, kLifo, kPriority };

// One rank's view of the order. Numbers of collectives count from 0 in order of posting.
class StartOrder {
  public:
    struct Start {
        int32_t collective, chunk;
    };
    StartOrder(Order order, int64_t in_flight) : order_(order), in_flight_(in_flight), ahead_(in_flight / 2) {}

    // Whether ranks have to agree on each collective.
    bool agrees() const { return order_ != Order::kFifo; }

    // Posts a collective. Returns the start that this rank proposes, from which on it counts.
    int64_t post(int32_t priority, int32_t chunks) {
        Posted posted{count_++, priority, chunks, started_ + ahead_, -1, 0};
        (agrees() ? pending_ : waiting_).push_back(posted);
        return posted.least;
    }
    // The highest of all ranks' proposals for a collective.
    void agree(int32_t collective, int64_t start) {
        for (Posted& posted : pending_)
            if (posted.number == collective) posted.agreed = start;
    }
    // The chunk to start now; none where there is none yet.
    std::optional<Start> starts() {
        if (running_ >= in_flight_ || !look()) return std::nullopt;
        const Posted& posted = waiting_[chosen()];
        return Start{posted.number, posted.following};
    }
    // The same, which counts as running then.
    std::optional<Start> next() {
        if (running_ >= in_flight_ || !look()) return std::nullopt;
        size_t chosen = this->chosen();
        Posted& posted = waiting_[chosen];
        Start start{posted.number, posted.following++};
        if (posted.following == posted.chunks) waiting_.erase(waiting_.begin() + ptrdiff_t(chosen));
        ++running_;
        ++started_;
        return start;
    }
    // A chunk that was started is complete.
    void complete() { --running_; }

  private:
    size_t chosen() const {
        size_t chosen = 0;
        for (size_t i = 1; i < waiting_.size(); ++i)
            if (before(waiting_[i], waiting_[chosen])) chosen = i;
        return chosen;
    }
    struct Posted {
        int32_t number, priority, chunks;
        int64_t least, agreed;  // until `agreed` is known, which is -1 before, it is that much at least
        int32_t following;
    };
    bool before(const Posted& a, const Posted& b) const {
        if (order_ != Order::kFifo && a.priority != b.priority) return a.priority > b.priority;
        return order_ == Order::kLifo ? a.number > b.number : a.number < b.number;
    }
    // Takes in what counts from the next start on. Whether a start can be made.
    bool look() {
        while (!pending_.empty()) {
            const Posted& first = pending_.front();
            if (!waiting_.empty()) {
                if (first.agreed < 0 && started_ >= first.least) return false;
                if (first.agreed < 0 || first.agreed > started_) break;
            }
            waiting_.push_back(first);
            pending_.pop_front();
        }
        return !waiting_.empty();
    }

    Order order_;
    int64_t in_flight_, ahead_, running_ = 0, started_ = 0;
    int32_t count_ = 0;
    std::deque<Posted> pending_, waiting_;
};

// The holders of locks. A stream takes its locks one by one and keeps those that it has while it waits for the next; a
// lock goes to who has waited longest.
class StreamQueues {
  public:
    using Granted = std::function<void(int32_t stream)>;
    StreamQueues(std::vector<std::vector<int32_t>> locks_of, size_t locks, Granted granted)
        : locks_of_(std::move(locks_of)), taken_(locks_of_.size()), asked_(locks_of_.size()), holder_(locks, -1),
          waiting_(locks), granted_(std::move(granted)) {}

    // A stream wants all that it needs, the first time that it is said.
    void ask(int32_t stream) {
        if (asked_[size_t(stream)]) return;
        asked_[size_t(stream)] = true;
        go_on(stream);
    }
    // A stream is over.
    void give_back(int32_t stream) {
        for (int32_t lock : locks_of_[size_t(stream)]) {
            holder_[size_t(lock)] = -1;
            auto& waiting = waiting_[size_t(lock)];
            if (!waiting.empty()) {
                int32_t next = waiting.front();
                waiting.pop_front();
                go_on(next);
            }
        }
    }

  private:
    void go_on(int32_t stream) {
        const auto& locks = locks_of_[size_t(stream)];
        size_t& taken = taken_[size_t(stream)];
        while (taken < locks.size()) {
            size_t lock = size_t(locks[taken]);
            if (holder_[lock] >= 0) {
                waiting_[lock].push_back(stream);
                return;
            }
            holder_[lock] = stream;
            ++taken;
        }
        granted_(stream);
    }
    std::vector<std::vector<int32_t>> locks_of_;
    std::vector<size_t> taken_;
    std::vector<bool> asked_;
    std::vector<int32_t> holder_;
    std::vector<std::deque<int32_t>> waiting_;
    Granted granted_;
};
