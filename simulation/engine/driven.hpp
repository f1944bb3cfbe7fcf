// SPDX-License-Identifier: GPL-2.0-only
// A fabric that is driven from outside: messages are posted one by one, callbacks say what became of them, and time
// goes on as far as it is told to. The interface of another simulator's network, such as ASTRA-sim's
// (docs/howto/drive-the-network.md).
#pragma once
#include <deque>
#include <functional>
#include <stdexcept>
#include <unordered_map>
#include <utility>
#include <vector>

#include "parts.hpp"
#include "simulation.hpp"

class DrivenNetwork : private Driver {
  public:
    // Callbacks are called by `step` and `run` alone. They may post, and may not throw.
    using Callback = std::function<void()>;

    // Throws BadScenario.
    explicit DrivenNetwork(Columns scenario)
        : simulation_(std::move(scenario)),
          programs_(simulation_.programs()),
          announced_(simulation_.scenario.number("driven")),
          header_bytes_(announced_ ? simulation_.scenario.number("preamble_bytes") : 0) {
        programs_.drive_by(this);
        for (size_t i = 0; i < programs_.pairs(); ++i) {
            const Pair& pair = programs_.pair(uint32_t(i));
            pairs_[key_of(pair.source, pair.destination)] = int32_t(i);
        }
    }

    Time now_ns() const { return now_; }
    // When the next thing happens; kNever where nothing does until something is posted.
    Time next_ns() const { return told_.empty() ? simulation_.network.next_ns() : now_; }

    // Posts a message. It meets the receive of the same pair and tag that was posted first. `then` is called once all
    // of it is in the socket, or over RoCE once it is acknowledged. Throws BadScenario for a pair that the scenario
    // lacks, or where the other end has another size.
    void send(int32_t source, int32_t destination, int64_t tag, int64_t size_bytes, Callback then = {}) {
        std::vector<Send> one;
        one.push_back({source, destination, tag, size_bytes, std::move(then)});
        send(std::move(one));
    }
    // Posts several at once: all are announced before the first of them goes.
    struct Send {
        int32_t source, destination;
        int64_t tag, size_bytes;
        Callback then;
        bool at_once = false;
    };
    void send(std::vector<Send> sends) {
        std::vector<int32_t> messages;
        for (Send& each : sends) {
            messages.push_back(meet(each.source, each.destination, each.tag, each.size_bytes, sends_, receives_));
            Ends& ends = ends_[size_t(messages.back())];
            ends.sent = std::move(each.then);
            ends.sent_at_once = each.at_once;
        }
        programs_.post_sends({messages.data(), messages.size()}, now_);
    }
    // Posts a receive; `then` is called once the message is there.
    void receive(int32_t source, int32_t destination, int64_t tag, int64_t size_bytes, Callback then = {},
                 bool at_once = false) {
        int32_t message = meet(source, destination, tag, size_bytes, receives_, sends_);
        Ends& ends = ends_[size_t(message)];
        ends.received = std::move(then);
        ends.received_at_once = at_once;
        ends.is_awaited = true;
        if (programs_.is_received(message)) has_received(message, now_);
        else programs_.post_receive(message, now_);
    }
    // Begins what a rank does in a collective of these ranks, whose tags count from `first_tag`; `then` is called once
    // it is over. Parts of one `pool` have their threads from one to the next. Throws BadScenario, as `send` does.
    void begin(std::shared_ptr<const Part> part, std::vector<int32_t> ranks, int64_t first_tag, int64_t pool,
               Callback then) {
        std::shared_ptr<int32_t>& idle = pools_[pool];
        if (!idle) idle = std::make_shared<int32_t>(0);
        told_.push_back([running = std::make_shared<RunningPart<DrivenNetwork>>(
                             *this, std::move(part), std::move(ranks), first_tag, idle, std::move(then))] { running->begin(); });
    }
    // Tells what the source measured when it connected with the destination, in microseconds: the round trip of the
    // handshake, and of the bytes that it sent first (-1: nothing tells). Without it they are those of an idle fabric.
    // Heeded until the source has sent something. Throws BadScenario for a pair that the scenario lacks.
    void shook_hands(int32_t source, int32_t destination, int64_t handshake_us, int64_t greeting_us) {
        programs_.shook_hands(pair_of(source, destination), handshake_us, greeting_us, now_);
    }
    // Has something called so much later.
    void schedule(Time delay_ns, Callback then) { set(delay_ns, std::move(then), false); }
    // The same as a thread of Linux that sleeps: it goes on a nanosecond later, unless something else of that host
    // interrupts in time.
    void sleep(Time delay_ns, Callback then) { set(delay_ns, std::move(then), true); }

    // Does all of the next nanosecond in which something happens; false where nothing does.
    bool step() {
        Time next = next_ns();
        if (next == kNever) return false;
        run(next);
        return true;
    }
    // Follows all that happens up to a time, which it is then; without one until nothing happens any more. When asked
    // to `stop`, that is in the nanosecond in which that was.
    void run(Time until_ns = kNever) {
        if (runs_) throw std::logic_error("a callback runs the network that called it");
        runs_ = true;
        deliver();
        for (Time next; !stops_ && (next = simulation_.network.next_ns()) <= until_ns && next != kNever;) {
            now_ = next;
            simulation_.network.turn(next);
        }
        if (until_ns != kNever && !stops_) now_ = std::max(now_, until_ns);
        runs_ = stops_ = false;
    }
    // From a callback: time goes no further in the `run` that calls it.
    void stop() { stops_ = true; }

    void write_timeline(FILE* to, double processor_s) const { simulation_.write_timeline(to, processor_s); }

  private:
    friend class RunningPart<DrivenNetwork>;
    // A callback may be called at once, within whatever has it called, where it does no more than its part.
    struct Ends {
        Callback sent, received;
        bool is_awaited = false;  // whether its receive is posted
        bool sent_at_once = false, received_at_once = false;
        int untold = 2;
    };
    struct Key {
        int32_t pair;
        int64_t tag;
        bool operator==(const Key&) const = default;
    };
    struct KeyHash {
        size_t operator()(const Key& key) const {
            return (uint64_t(key.tag) ^ uint64_t(key.pair) << 40) * 0x9E3779B97F4A7C15u >> 7;
        }
    };
    using Halves = std::unordered_map<Key, std::deque<int32_t>, KeyHash>;  // messages without their other end

    static uint64_t key_of(int32_t source, int32_t destination) {
        return uint64_t(uint32_t(source)) << 32 | uint32_t(destination);
    }

    int32_t pair_of(int32_t source, int32_t destination) const {
        auto pair = pairs_.find(key_of(source, destination));
        if (pair == pairs_.end())
            throw BadScenario("found a message from " + std::to_string(source) + " to " + std::to_string(destination) +
                              ", which are no pair of the scenario");
        return pair->second;
    }

    // The message of one end: that of the other end, or a new one.
    int32_t meet(int32_t source, int32_t destination, int64_t tag, int64_t size_bytes, Halves& own, Halves& others) {
        Key key{pair_of(source, destination), tag};
        auto found = others.find(key);
        if (found == others.end()) {
            int32_t made = programs_.add(key.pair, size_bytes, header_bytes_, announced_);
            if (size_t(made) == ends_.size()) ends_.emplace_back();
            ends_[size_t(made)] = {};
            own[key].push_back(made);
            return made;
        }
        int32_t message = found->second.front();
        if (programs_.size_bytes(message) != size_bytes)
            throw BadScenario("found " + std::to_string(size_bytes) + " bytes at one end of a message from " +
                              std::to_string(source) + " to " + std::to_string(destination) + ", and " +
                              std::to_string(programs_.size_bytes(message)) + " at the other");
        found->second.pop_front();
        if (found->second.empty()) others.erase(found);
        return message;
    }

    void set(Time delay_ns, Callback then, bool sleeps) {
        size_t number = timers_.size();
        if (free_timers_.empty()) {
            timers_.push_back(std::move(then));
        } else {
            number = free_timers_.back();
            free_timers_.pop_back();
            timers_[number] = std::move(then);
        }
        simulation_.network.tell_driver(now_ + delay_ns, int64_t(number), sleeps);
    }

    void is_due(int64_t what, Time) override {
        free_timers_.push_back(size_t(what));
        tell(std::move(timers_[size_t(what)]));
    }
    void has_sent(int32_t message, Time) override {
        Ends& ends = ends_[size_t(message)];
        is_over(message, std::move(ends.sent), ends.sent_at_once);
    }
    void has_received(int32_t message, Time) override {
        Ends& ends = ends_[size_t(message)];
        if (ends.is_awaited) is_over(message, std::move(ends.received), ends.received_at_once);
    }
    void is_over(int32_t message, Callback then, bool at_once) {
        if (!--ends_[size_t(message)].untold) programs_.drop(message);
        if (at_once) then();
        else tell(std::move(then));
    }
    // A callback that is due while another one is at work, or while nobody runs the network, comes after that.
    void tell(Callback then) {
        if (!then) return;
        told_.push_back(std::move(then));
        if (runs_ && !delivers_) deliver();
    }
    void deliver() {
        delivers_ = true;
        while (!told_.empty()) {
            Callback then = std::move(told_.front());
            told_.pop_front();
            then();
        }
        delivers_ = false;
    }

    Simulation simulation_;
    Programs& programs_;
    bool announced_;
    int64_t header_bytes_;
    std::unordered_map<uint64_t, int32_t> pairs_;
    Halves sends_, receives_;
    std::vector<Ends> ends_;  // of each message
    std::vector<Callback> timers_;
    std::vector<size_t> free_timers_;
    std::deque<Callback> told_;
    std::unordered_map<int64_t, std::shared_ptr<int32_t>> pools_;  // of each how many threads are idle
    Time now_ = 0;
    bool runs_ = false, delivers_ = false, stops_ = false;
};
