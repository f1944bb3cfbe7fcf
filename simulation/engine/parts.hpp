// SPDX-License-Identifier: GPL-2.0-only
// What a rank does in a collective, told at once: the messages that it posts, and those that it waits for before it
// posts the next ones. A driver that follows each message itself does the same by callbacks.
#pragma once
#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "columns.hpp"

// A part as it comes in 64-bit words: the count of messages; for each its source, its destination (positions among
// the ranks of the collective), its tag and its bytes; the count of chunks, and how many of them are under way at
// once (0: all); then threads, which go on beside each other. A thread: the count of its steps, and these. A step: its
// kind; of messages the counts of its sends and of its receives, and these messages; else one word: a mark, a time in
// nanoseconds, or the chunk that ends.
//
// Chunk c begins by mark 2c. Where the rank has no idle thread for it, mark 2c + 1 has those of its further threads come
// up with it; else the chunk's own thread makes that mark.
struct Part {
    enum Kind : int64_t { kReceivesFirst = 0, kSendsFirst, kWaits, kMarks, kWaitsForMark, kSleeps, kEnds };
    struct Message {
        int32_t source, destination;
        int64_t tag, size_bytes;
    };
    struct Step {
        Kind kind;
        std::vector<int32_t> sends, receives;
        int64_t word = 0;
        bool is_of_messages() const { return kind <= kWaits; }
    };
    using Thread = std::vector<Step>;
    std::vector<Message> messages;
    size_t chunks = 0, in_flight = 0;
    std::vector<Thread> threads;
    size_t marks = 0;  // how many there are

    // Throws BadScenario.
    static Part read(const std::vector<int64_t>& words) {
        size_t at = 0;
        auto next = [&] {
            if (at == words.size()) throw BadScenario("a part ends within a step");
            return words[at++];
        };
        Part made;
        made.messages.resize(count(next(), words.size()));
        for (Message& each : made.messages) {
            each.source = int32_t(next());
            each.destination = int32_t(next());
            each.tag = next();
            each.size_bytes = next();
        }
        made.chunks = count(next(), words.size());
        made.in_flight = count(next(), kLongest);
        made.marks = 2 * made.chunks;
        while (at < words.size()) {
            made.threads.emplace_back(count(next(), words.size()));
            for (Step& step : made.threads.back()) {
                step.kind = Kind(next());
                if (step.kind < kReceivesFirst || step.kind > kEnds)
                    throw BadScenario("found a step of kind " + std::to_string(step.kind) + ", allowed 0 to 6");
                if (!step.is_of_messages()) {
                    step.word = int64_t(count(next(), step.kind == kSleeps ? kLongest : words.size()));
                    if (step.kind == kMarks || step.kind == kWaitsForMark)
                        made.marks = std::max(made.marks, size_t(step.word) + 1);
                    if (step.kind == kEnds && size_t(step.word) >= made.chunks)
                        throw BadScenario("found chunk " + std::to_string(step.word) + " of a part that has " +
                                          std::to_string(made.chunks));
                    continue;
                }
                step.sends.resize(count(next(), words.size()));
                step.receives.resize(count(next(), words.size()));
                for (auto* list : {&step.sends, &step.receives})
                    for (int32_t& each : *list) {
                        int64_t message = next();
                        if (message < 0 || size_t(message) >= made.messages.size())
                            throw BadScenario("found message " + std::to_string(message) + " of a part that has " +
                                              std::to_string(made.messages.size()));
                        each = int32_t(message);
                    }
            }
        }
        return made;
    }

  private:
    static constexpr size_t kLongest = size_t(1) << 62;
    static size_t count(int64_t found, size_t most) {
        if (found < 0 || size_t(found) > most) throw BadScenario("found a count of " + std::to_string(found));
        return size_t(found);
    }
};

// A part that runs on a `DrivenNetwork`, which holds it by its callbacks. Threads set out, wait, wake each other and go
// on in the order of programs.hpp: one runs at a time, until it waits.
template <class Network>
class RunningPart : public std::enable_shared_from_this<RunningPart<Network>> {
  public:
    // Tags count from `first_tag`; `idle` counts the rank's idle threads. `then` is called once the last step is over.
    RunningPart(Network& network, std::shared_ptr<const Part> part, std::vector<int32_t> ranks, int64_t first_tag,
                std::shared_ptr<int32_t> idle, typename Network::Callback then)
        : network_(network), part_(std::move(part)), ranks_(std::move(ranks)), first_tag_(first_tag),
          idle_(std::move(idle)), then_(std::move(then)), threads_(part_->threads.size()), left_(threads_.size()),
          sent_(part_->messages.size()), received_(part_->messages.size()), marked_(part_->marks),
          sender_(part_->messages.size(), kNobody) {
        for (const Part::Message& each : part_->messages)
            for (int32_t end : {each.source, each.destination})
                if (end < 0 || size_t(end) >= ranks_.size())
                    throw BadScenario("found member " + std::to_string(end) + " of a collective of " +
                                      std::to_string(ranks_.size()) + " ranks");
    }

    // All threads set out, the last one first; then the rank begins its chunks.
    void begin() {
        for (size_t thread = threads_.size(); thread--;) advance(int32_t(thread));
        if (part_->chunks) advance(kRank);
        if (threads_.empty()) network_.tell(std::move(then_));
    }

  private:
    enum : int32_t { kNobody = -1, kRank = -2, kNewThread = -3 };
    enum What : uint64_t { kSent, kReceived, kMarked };
    using Flags = std::vector<bool>;
    struct Thread {
        size_t at = 0;      // its next step
        size_t waited = 0;  // of a wait, what is over already: that stays so
        bool asleep = false, ended = false;
    };

    void advance(int32_t thread) {
        ready_.push_back(thread);
        if (ready_.size() > 1) return;
        while (!ready_.empty()) {
            int32_t first = ready_.front();
            if (first == kNewThread) ready_.push_back(kRank);
            else if (first != kRank) run_to_wait(first);
            else if (!begin_chunks(true)) ready_.push_back(kNewThread);
            ready_.pop_front();
        }
    }
    void run_to_wait(int32_t number) {
        Thread& thread = threads_[size_t(number)];
        const Part::Thread& steps = part_->threads[size_t(number)];
        while (!thread.asleep && thread.at < steps.size()) {
            const Part::Step& step = steps[thread.at];
            if (!is_over(step, number)) return;
            ++thread.at;
            thread.waited = 0;
            switch (step.kind) {
                case Part::kReceivesFirst:
                    receive(step.receives);
                    send(step.sends, number);
                    break;
                case Part::kSendsFirst:
                    send(step.sends, number);
                    receive(step.receives);
                    break;
                case Part::kMarks:
                    mark(size_t(step.word));
                    break;
                case Part::kSleeps:
                    sleep(number, step.word);
                    break;
                case Part::kEnds:
                    end_chunk();
                    break;
                case Part::kWaits:
                case Part::kWaitsForMark:
                    break;
            }
        }
        if (thread.asleep || thread.ended) return;
        thread.ended = true;
        if (!--left_) network_.tell(std::move(then_));
    }

    // A chunk takes a thread that is idle, which wakes the further ones itself, or a new one, with which they come up.
    // For that the rank waits: threads that it woke before go on, and those that they wake, where it is false.
    bool begin_chunks(bool is_rank) {
        bool wakes = false;
        while (begun_ < part_->chunks && (!part_->in_flight || under_way_ < part_->in_flight)) {
            if (is_rank && wakes && !*idle_) return false;
            wakes = *idle_;
            size_t chunk = begun_++;
            ++under_way_;
            mark(2 * chunk);
            if (*idle_) --*idle_;
            else mark(2 * chunk + 1);
        }
        return true;
    }
    void end_chunk() {
        ++*idle_;
        --under_way_;
        begin_chunks(false);
    }

    // Whether a thread may take a step; else it is woken for another look.
    bool is_over(const Part::Step& step, int32_t number) {
        if (step.kind == Part::kWaitsForMark) {
            if (!marked_[size_t(step.word)]) watch(kMarked, uint64_t(step.word), number);
            return marked_[size_t(step.word)];
        }
        if (step.kind != Part::kWaits) return true;
        size_t sends = step.sends.size();
        for (size_t& place = threads_[size_t(number)].waited; place < sends + step.receives.size(); ++place) {
            bool sent = place < sends;
            size_t message = size_t(sent ? step.sends[place] : step.receives[place - sends]);
            if (sent ? sent_[message] : received_[message]) continue;
            if (!sent || sender_[message] != number) watch(sent ? kSent : kReceived, message, number);
            return false;
        }
        return true;
    }
    void watch(What what, uint64_t number, int32_t thread) { watchers_[number << 2 | what].push_back(thread); }
    // The thread that waited first goes on first.
    void tell(What what, uint64_t number) {
        auto found = watchers_.find(number << 2 | what);
        if (found == watchers_.end()) return;
        std::vector<int32_t> waited;
        for (int32_t each : found->second)
            if (std::find(waited.begin(), waited.end(), each) == waited.end()) waited.push_back(each);
        watchers_.erase(found);
        for (int32_t each : waited) wake(each);
    }
    void wake(int32_t thread) {
        const Part::Thread& steps = part_->threads[size_t(thread)];
        size_t at = threads_[size_t(thread)].at;
        if (at < steps.size() && (steps[at].kind == Part::kWaits || steps[at].kind == Part::kWaitsForMark)) advance(thread);
    }
    void mark(size_t number) {
        marked_[number] = true;
        tell(kMarked, number);
    }
    void sleep(int32_t thread, int64_t duration_ns) {
        threads_[size_t(thread)].asleep = true;
        network_.sleep(duration_ns, [self = this->shared_from_this(), thread] {
            self->threads_[size_t(thread)].asleep = false;
            self->advance(thread);
        });
    }

    int32_t rank(int32_t member) const { return ranks_[size_t(member)]; }
    void receive(const std::vector<int32_t>& messages) {
        for (int32_t each : messages) {
            const Part::Message& message = part_->messages[size_t(each)];
            auto then = [self = this->shared_from_this(), each] {
                self->received_[size_t(each)] = true;
                self->tell(kReceived, uint64_t(each));
            };
            network_.receive(rank(message.source), rank(message.destination), first_tag_ + message.tag, message.size_bytes,
                             std::move(then), true);
        }
    }
    void send(const std::vector<int32_t>& messages, int32_t thread) {
        std::vector<typename Network::Send> sends;
        for (int32_t each : messages) {
            const Part::Message& message = part_->messages[size_t(each)];
            sender_[size_t(each)] = thread;
            auto then = [self = this->shared_from_this(), each] {
                self->sent_[size_t(each)] = true;
                self->wake(self->sender_[size_t(each)]);
                self->tell(kSent, uint64_t(each));
            };
            sends.push_back({rank(message.source), rank(message.destination), first_tag_ + message.tag, message.size_bytes,
                             std::move(then), true});
        }
        network_.send(std::move(sends));
    }

    Network& network_;
    std::shared_ptr<const Part> part_;
    std::vector<int32_t> ranks_;
    int64_t first_tag_;
    std::shared_ptr<int32_t> idle_;
    typename Network::Callback then_;
    std::vector<Thread> threads_;
    size_t left_;  // threads that are not at their end
    size_t begun_ = 0, under_way_ = 0;
    Flags sent_, received_, marked_;  // by message, and by mark
    std::vector<int32_t> sender_;     // the thread that sends each message
    std::unordered_map<uint64_t, std::vector<int32_t>> watchers_;
    std::deque<int32_t> ready_;
};
