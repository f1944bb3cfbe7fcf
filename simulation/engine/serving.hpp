// SPDX-License-Identifier: GPL-2.0-only
// A network that another process drives through two pipes (simulation/driven_engine.py).
#pragma once
#include <cstdio>
#include <ctime>

#include "driven.hpp"

class Serving {
  public:
    Serving(Columns scenario, FILE* from, FILE* to) : network_(std::move(scenario)), from_(from), to_(to) {}

    // Obeys commands up to the one that ends it, or until nobody gives any.
    void serve() {
        while (read()) {
            switch (command_.what) {
                case kRun:
                    network_.run(command_.size < 0 ? kNever : command_.size);
                    report(kIsOver, 0);
                    break;
                case kStep:
                    network_.step();
                    report(kIsOver, 0);
                    break;
                case kRunToCall:
                    stops_ = true;
                    network_.run(command_.size < 0 ? kNever : command_.size);
                    stops_ = false;
                    report(kIsOver, 0);
                    break;
                case kFinish:
                    network_.write_timeline(to_, double(clock()) / CLOCKS_PER_SEC);
                    return;
                default:
                    post();
            }
        }
    }

  private:
    enum What : int64_t { kSend = 1, kReceive, kSchedule, kSleep, kRun, kStep, kGoOn, kFinish, kPart, kBegin, kRunToCall, kShookHands };
    enum Reported : int64_t { kCalls = 1, kIsOver };
    // `size` is one in bytes, a time in nanoseconds, a greeting's round trip (a handshake's is `tag`), or the count of the
    // 64-bit words that follow: a part's, by which `tag` it is known from then on, or the ranks of a collective of which
    // part `source` begins, by threads of pool `destination`. `number` is that of a callback, -1 for none.
    struct Command {
        int64_t what, source, destination, tag, size, number;
    };

    bool read() { return fread(&command_, sizeof command_, 1, from_) == 1; }

    void post() {
        const Command& c = command_;
        DrivenNetwork::Callback then;
        if (c.number >= 0) then = [this, number = c.number] { call(number); };
        switch (c.what) {
            case kSend:
                return network_.send(int32_t(c.source), int32_t(c.destination), c.tag, c.size, std::move(then));
            case kReceive:
                return network_.receive(int32_t(c.source), int32_t(c.destination), c.tag, c.size, std::move(then));
            case kSchedule:
                return network_.schedule(c.size, std::move(then));
            case kSleep:
                return network_.sleep(c.size, std::move(then));
            case kPart:
                parts_[c.tag] = std::make_shared<Part>(Part::read(words(c.size)));
                return;
            case kBegin: {
                int64_t part = c.source, first_tag = c.tag;
                auto found = parts_.find(part);
                if (found == parts_.end()) throw BadScenario("found no part " + std::to_string(part));
                auto ranks = words(c.size);
                return network_.begin(found->second, {ranks.begin(), ranks.end()}, first_tag, c.destination,
                                      std::move(then));
            }
            case kShookHands:
                return network_.shook_hands(int32_t(c.source), int32_t(c.destination), c.tag, c.size);
            default:
                throw BadScenario("found command " + std::to_string(c.what) + " where none such is allowed");
        }
    }

    std::vector<int64_t> words(int64_t count) {
        if (count < 0 || count > kMostWords) throw BadScenario("found " + std::to_string(count) + " words");
        std::vector<int64_t> found(static_cast<size_t>(count));
        if (fread(found.data(), sizeof(int64_t), found.size(), from_) != found.size())
            throw BadScenario("a command is cut off");
        return found;
    }

    // Has a callback of the other process called, and does what that posts.
    void call(int64_t number) {
        if (stops_) network_.stop();
        report(kCalls, number);
        while (read()) {
            if (command_.what == kGoOn) return;
            post();
        }
        exit(0);  // nobody drives it any more
    }

    void report(Reported what, int64_t number) {
        int64_t next = network_.next_ns();
        int64_t told[] = {what, network_.now_ns(), next == kNever ? -1 : next, number};
        fwrite(told, sizeof told, 1, to_);
        fflush(to_);
    }

    static constexpr int64_t kMostWords = int64_t(1) << 32;
    DrivenNetwork network_;
    FILE *from_, *to_;
    Command command_{};
    std::unordered_map<int64_t, std::shared_ptr<const Part>> parts_;
    bool stops_ = false;  // at the first callback
};
