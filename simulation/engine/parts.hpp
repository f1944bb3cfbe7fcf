// SPDX-License-Identifier: GPL-2.0-only
// What a rank does in a collective, told at once: the messages that it posts, and those that it waits for before it
// posts the next ones. A driver that follows each message itself does the same by callbacks.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "columns.hpp"

// A part as it comes in 64-bit words: the count of messages; for each its source, its destination (positions among
// the ranks of the collective), its tag and its bytes; then threads, which go on beside each other. A thread: the count
// of its steps, and these. A step: its kind; of messages the counts of its sends and of its receives, and these
// messages; else one word: a mark, or a time in nanoseconds.
struct Part {
    enum Kind : int64_t { kReceivesFirst = 0, kSendsFirst, kWaits, kMarks, kWaitsForMark, kSleeps };
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
        while (at < words.size()) {
            made.threads.emplace_back(count(next(), words.size()));
            for (Step& step : made.threads.back()) {
                step.kind = Kind(next());
                if (step.kind < kReceivesFirst || step.kind > kSleeps)
                    throw BadScenario("found a step of kind " + std::to_string(step.kind) + ", allowed 0 to 5");
                if (!step.is_of_messages()) {
                    step.word = int64_t(count(next(), step.kind == kSleeps ? kLongest : words.size()));
                    if (step.kind != kSleeps) made.marks = std::max(made.marks, size_t(step.word) + 1);
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

// A part that runs on a `DrivenNetwork`, which holds it by its callbacks. Its threads set out from the last one on, and
// those that wait go on in that order, as programs do (programs.hpp).
template <class Network>
class RunningPart : public std::enable_shared_from_this<RunningPart<Network>> {
  public:
    // Tags count from `first_tag`; `then` is called once the last step is over.
    RunningPart(Network& network, std::shared_ptr<const Part> part, std::vector<int32_t> ranks, int64_t first_tag,
                typename Network::Callback then)
        : network_(network), part_(std::move(part)), ranks_(std::move(ranks)), first_tag_(first_tag),
          then_(std::move(then)), steps_(part_->threads.size()), asleep_(part_->threads.size()),
          sent_(part_->messages.size()), received_(part_->messages.size()), marked_(part_->marks) {
        for (const Part::Message& each : part_->messages)
            for (int32_t end : {each.source, each.destination})
                if (end < 0 || size_t(end) >= ranks_.size())
                    throw BadScenario("found member " + std::to_string(end) + " of a collective of " +
                                      std::to_string(ranks_.size()) + " ranks");
    }

    void go_on() {
        bool more = true;
        while (more) {  // a mark may be what an earlier thread waits for
            more = false;
            for (size_t thread = steps_.size(); thread--;) more = go_on(thread) || more;
        }
        for (size_t thread = 0; thread < steps_.size(); ++thread)
            if (steps_[thread] < part_->threads[thread].size() || asleep_[thread]) return;
        if (!then_) return;
        auto then = std::move(then_);
        then_ = nullptr;
        then();
    }

  private:
    using Flags = std::vector<bool>;

    // Whether it has made a mark.
    bool go_on(size_t thread) {
        bool marks = false;
        size_t& at = steps_[thread];
        while (!asleep_[thread] && at < part_->threads[thread].size()) {
            const Part::Step& step = part_->threads[thread][at];
            if (step.kind == Part::kWaits && (!are_over(step.sends, sent_) || !are_over(step.receives, received_))) break;
            if (step.kind == Part::kWaitsForMark && !marked_[size_t(step.word)]) break;
            ++at;
            if (step.kind == Part::kMarks) marks = marked_[size_t(step.word)] = true;
            if (step.kind == Part::kSleeps) sleep(thread, step.word);
            if (step.kind == Part::kSendsFirst) send(step.sends);
            if (step.kind > Part::kSendsFirst) continue;
            for (int32_t each : step.receives) {
                const Part::Message& message = part_->messages[size_t(each)];
                network_.receive(rank(message.source), rank(message.destination), first_tag_ + message.tag,
                                 message.size_bytes, after(received_, each));
            }
            if (step.kind == Part::kReceivesFirst) send(step.sends);
        }
        return marks;
    }
    void sleep(size_t thread, int64_t duration_ns) {
        asleep_[thread] = true;
        network_.sleep(duration_ns, [self = this->shared_from_this(), thread] {
            self->asleep_[thread] = false;
            self->go_on();
        });
    }
    int32_t rank(int32_t member) const { return ranks_[size_t(member)]; }
    static bool are_over(const std::vector<int32_t>& messages, const Flags& flags) {
        for (int32_t each : messages)
            if (!flags[size_t(each)]) return false;
        return true;
    }
    void send(const std::vector<int32_t>& messages) {
        std::vector<typename Network::Send> sends;
        for (int32_t each : messages) {
            const Part::Message& message = part_->messages[size_t(each)];
            sends.push_back({rank(message.source), rank(message.destination), first_tag_ + message.tag,
                             message.size_bytes, after(sent_, each)});
        }
        network_.send(std::move(sends));
    }
    typename Network::Callback after(Flags& flags, int32_t message) {
        return [self = this->shared_from_this(), &flags, message] {
            flags[size_t(message)] = true;
            self->go_on();
        };
    }

    Network& network_;
    std::shared_ptr<const Part> part_;
    std::vector<int32_t> ranks_;
    int64_t first_tag_;
    typename Network::Callback then_;
    std::vector<size_t> steps_;  // of each thread the next one
    Flags asleep_, sent_, received_, marked_;  // by thread, message and mark
};
