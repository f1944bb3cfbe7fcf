// SPDX-License-Identifier: GPL-2.0-only
// What a rank does in a collective, told at once: the messages that it posts, and those that it waits for before it
// posts the next ones. A driver that follows each message itself does the same by callbacks.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "columns.hpp"

// A part as it comes in 64-bit words: the count of messages; for each its source, its destination (positions among
// the ranks of the collective), its tag and its bytes; then steps. A step: its kind, the counts of its sends and of
// its receives, and these messages.
struct Part {
    enum Kind : int64_t { kReceivesFirst = 0, kSendsFirst = 1, kWaits = 2 };
    struct Message {
        int32_t source, destination;
        int64_t tag, size_bytes;
    };
    struct Step {
        Kind kind;
        std::vector<int32_t> sends, receives;
    };
    std::vector<Message> messages;
    std::vector<Step> steps;

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
            Step step{Kind(next()), {}, {}};
            if (step.kind < kReceivesFirst || step.kind > kWaits)
                throw BadScenario("found a step of kind " + std::to_string(step.kind) + ", allowed 0 to 2");
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
            made.steps.push_back(std::move(step));
        }
        return made;
    }

  private:
    static size_t count(int64_t found, size_t most) {
        if (found < 0 || size_t(found) > most) throw BadScenario("found a count of " + std::to_string(found));
        return size_t(found);
    }
};

// A part that runs on a `DrivenNetwork`, which holds it by its callbacks.
template <class Network>
class RunningPart : public std::enable_shared_from_this<RunningPart<Network>> {
  public:
    // Tags count from `first_tag`; `then` is called once the last step is over.
    RunningPart(Network& network, std::shared_ptr<const Part> part, std::vector<int32_t> ranks, int64_t first_tag,
                typename Network::Callback then)
        : network_(network), part_(std::move(part)), ranks_(std::move(ranks)), first_tag_(first_tag),
          then_(std::move(then)), sent_(part_->messages.size()), received_(part_->messages.size()) {
        for (const Part::Message& each : part_->messages)
            for (int32_t end : {each.source, each.destination})
                if (end < 0 || size_t(end) >= ranks_.size())
                    throw BadScenario("found member " + std::to_string(end) + " of a collective of " +
                                      std::to_string(ranks_.size()) + " ranks");
    }

    void go_on() {
        while (step_ < part_->steps.size()) {
            const Part::Step& step = part_->steps[step_];
            if (step.kind == Part::kWaits) {
                if (!are_over(step.sends, sent_) || !are_over(step.receives, received_)) return;
                ++step_;
                continue;
            }
            ++step_;
            if (step.kind == Part::kSendsFirst) send(step.sends);
            for (int32_t each : step.receives) {
                const Part::Message& message = part_->messages[size_t(each)];
                network_.receive(rank(message.source), rank(message.destination), first_tag_ + message.tag,
                                 message.size_bytes, after(received_, each));
            }
            if (step.kind == Part::kReceivesFirst) send(step.sends);
        }
        if (!then_) return;
        auto then = std::move(then_);
        then_ = nullptr;
        then();
    }

  private:
    using Flags = std::vector<bool>;

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
    size_t step_ = 0;
    Flags sent_, received_;
};
