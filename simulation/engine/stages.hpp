// SPDX-License-Identifier: GPL-2.0-only
// Stages of a collective that many groups of ranks go through alike: some of the groups are followed, the others end as
// they did.
//
// A hierarchical collective is met once, so that leaps.hpp never sees it again. But its first stage is as many exchanges as
// there are leaves, each on ports of its own, and all alike. A few of each shape are followed and lead; the members of each
// other one are held when they set out, and go on when those of its leader did, counted from when half of either had set
// out. Only the last member of each is held until all leaders are over: it ends as far behind as the
// quantiles of a normal distribution lie that has the leaders' mean and deviation, as the longest of many is longer than
// the longest of a few. Where all leaders take equally long, that is as long as they take.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <numeric>
#include <unordered_map>
#include <utility>
#include <vector>

#include "fifo.hpp"
#include "programs.hpp"
#include "queued.hpp"
#include "sums.hpp"

class Stages {
  public:
    Stages(const Columns& from, Programs& programs, Network& network);
    Stages(const Stages&) = delete;
    Stages& operator=(const Stages&) = delete;

    bool are_any() const { return !parts_.empty(); }
    bool owns(int32_t program) const { return first_part_[size_t(program)] < first_part_[size_t(program) + 1]; }
    // A program is at this place of its code. Whether it comes to a stage in which it is held.
    bool enters(int32_t program, int64_t at, Time now);
    // A program has gone on; maybe to the end of its part of a stage.
    void passes(int32_t program, Time now);
    // A time has come that was set.
    void goes_on(int32_t exchange, int64_t member, Time now);

    // Each stage that was leapt over: the first message of it, how far off its end may be, and how many messages.
    const std::vector<int64_t>& first_messages() const { return first_messages_; }
    const std::vector<int64_t>& errors_ns() const { return errors_ns_; }
    const std::vector<int64_t>& messages() const { return messages_; }

  private:
    static constexpr int32_t kNone = -1;
    static constexpr int64_t kHeldLong = -1;  // in place of a member: they were held until a leader should have begun
    static constexpr size_t kLeadersAtLeast = 4, kLedByEach = 16;  // of so many exchanges one leads, or so many do
    static constexpr Time kPatienceNs = 5'000;                     // for leaders to set out: so long at least,
    static constexpr Time kPatienceParts = 16;                     // and a 16th of what went before
    // By how many of the leaders' standard deviations the end of the longest exchange may be off. Four leaders have
    // a mean that is 0.5 off and a deviation that is 0.41 of itself off, which counts 2.4 times at the longest of 60, and that one swings by
    // 0.4: 1.2 together, three times.
    static constexpr double kDeviations = 3.6;

    struct Part {
        int64_t begin, end;  // in the program's code
        int32_t exchange;
        uint32_t member;
    };
    struct Exchange {
        std::vector<int32_t> programs;  // in order
        std::vector<int32_t> numbers;   // of its messages, in order
        int32_t shape = kNone;
        int32_t leader = kNone;         // its leader, or itself
        bool is_leapt = false;
        std::vector<int32_t> led;       // those that it leads
        uint32_t set_out = 0, ended = 0, place = 0;
        Time half_ns = kNever, all_ns = kNever;  // when half had set out, and when all had
        Time duration_ns = 0;           // from when half had set out to the end
        uint32_t last = 0;              // the member that ended last
        std::vector<Time> ended_ns;     // of each member; kNever until then
        std::vector<Time> set_out_ns;
        std::vector<bool> is_held, is_due, is_told;
    };
    struct Shape {
        std::vector<int32_t> exchanges;
        size_t leaders = 0, over = 0;
        double mean_ns = 0, deviation_ns = 0;
        Time late_ns = 0;               // by how much those that waited in vain were held up
        bool is_over() const { return over == leaders; }
    };

    bool find_parts(int32_t program, std::vector<std::pair<int32_t, Part>>& found) const;
    void find_exchanges(const std::vector<std::vector<std::pair<int32_t, Part>>>& parts, int32_t stage);
    bool share_no_ports(size_t first) const;
    std::pair<uint64_t, uint64_t> sums_of(const Exchange& exchange, const std::vector<Part>& parts) const;
    void add_way(Sums& sums, int32_t pair, std::unordered_map<uint32_t, size_t>& met) const;
    void choose_leaders();
    void post_ahead(const Exchange& exchange, const Part& part, Time now);
    void tell(int32_t exchange, Time now);
    void finish(Shape& shape, Time now);
    void release(int32_t exchange, uint32_t member, Time now);
    void follow(int32_t exchange, Time now);
    bool is_of(const Exchange& exchange, int32_t message) const {
        return std::binary_search(exchange.numbers.begin(), exchange.numbers.end(), message);
    }
    static double quantile(double chance);
    static Time spread(const std::vector<Time>& times) {
        auto [first, last] = std::minmax_element(times.begin(), times.end());
        return *last - *first;
    }

    Programs& programs_;
    Network& net_;
    Span<int32_t> stage_;                // of each message, -1 for none
    std::vector<Part> parts_;            // of all programs, one after the other
    std::vector<size_t> first_part_, current_;
    std::vector<bool> is_within_;
    std::vector<Time> began_ns_;         // when each program came to the first of its stages
    std::vector<Exchange> exchanges_;
    std::vector<std::vector<Part>> made_;  // of the members of each exchange, while all are looked for
    std::vector<Shape> shapes_;
    std::map<std::pair<uint64_t, uint64_t>, int32_t> known_;
    std::vector<int64_t> first_messages_, errors_ns_, messages_;
};

inline Stages::Stages(const Columns& from, Programs& programs, Network& network)
    : programs_(programs), net_(network), stage_(from.shorts("message.stage")) {
    size_t count = programs.programs_.size();
    if (stage_.size != programs.messages()) throw BadScenario("message.stage: found " + std::to_string(stage_.size));
    std::vector<std::vector<std::pair<int32_t, Part>>> parts(count);
    std::vector<bool> has(count);
    int32_t stages = 0;
    for (size_t i = 0; i < stage_.size; ++i) {
        if (stage_[i] < 0) continue;
        has[size_t(programs.messages_[i].sender)] = has[size_t(programs.messages_[i].receiver)] = true;
        stages = std::max(stages, stage_[i] + 1);
    }
    for (size_t i = 0; i < count; ++i)
        if (has[i] && !find_parts(int32_t(i), parts[i])) parts[i].clear();
    for (int32_t stage = 0; stage < stages; ++stage) find_exchanges(parts, stage);
    choose_leaders();
    std::vector<std::vector<Part>> of(count);
    for (size_t i = 0; i < exchanges_.size(); ++i) {
        Exchange& each = exchanges_[i];
        if (each.leader == kNone) continue;
        for (size_t member = 0; member < each.programs.size(); ++member)
            of[size_t(each.programs[member])].push_back(made_[i][member]);
        each.ended_ns.assign(each.programs.size(), kNever);
        each.set_out_ns.assign(each.programs.size(), kNever);
        for (auto* flags : {&each.is_held, &each.is_due, &each.is_told}) flags->assign(each.programs.size(), false);
    }
    made_ = {};
    for (const std::vector<Part>& own : of) {
        first_part_.push_back(parts_.size());
        parts_.insert(parts_.end(), own.begin(), own.end());
    }
    current_ = first_part_;
    first_part_.push_back(parts_.size());
    is_within_.assign(count, false);
    began_ns_.assign(count, kNever);
}

// The parts of a program, by stage. A stage ends with the last wait for what is received in it, so that receives of the
// next one may be posted before. False where sends, or waits for receives, are in another one's part, or others are among
// them.
inline bool Stages::find_parts(int32_t number, std::vector<std::pair<int32_t, Part>>& found) const {
    const Programs::Program& program = programs_.programs_[size_t(number)];
    std::map<int32_t, int64_t> ends;
    int64_t begin = -1, end = -1;
    auto each_word = [&](auto&& sees) {
        for (int64_t at = program.at; at < program.end; at += programs_.length_of(at)) {
            const int32_t* words = &programs_.code_[size_t(at)];
            bool starts = Operation(words[0]) == Operation::kStart;
            if (!starts && (Operation(words[0]) != Operation::kAwait || words[3])) continue;
            int32_t sends = starts ? words[2] : words[1], receives = starts ? words[3] : words[2];
            if (!sees(at, starts, Span<int32_t>{words + 4, size_t(sends)}, Span<int32_t>{words + 4 + sends, size_t(receives)}))
                return false;
        }
        return true;
    };
    bool is_row = each_word([&](int64_t at, bool starts, Span<int32_t> sends, Span<int32_t> receives) {
        if (begin >= 0 && end != at) return false;
        if (begin < 0) begin = at;
        end = at + programs_.length_of(at);
        for (int32_t message : starts ? sends : receives) {
            if (stage_[size_t(message)] < 0) return false;
            ends[stage_[size_t(message)]] = end;
        }
        return true;
    });
    if (!is_row || ends.empty()) return false;
    ends.rbegin()->second = end;
    for (const auto& [stage, last] : ends) {
        if (last <= begin) return false;
        found.push_back({stage, {begin, last, kNone, 0}});
        begin = last;
    }
    auto part_of = [&](int32_t message) -> const Part* {
        for (const auto& [stage, part] : found)
            if (stage == stage_[size_t(message)]) return &part;
        return nullptr;
    };
    return each_word([&](int64_t at, bool starts, Span<int32_t> sends, Span<int32_t> receives) {
        for (int32_t message : sends) {
            const Part* part = part_of(message);
            if (!part || at < part->begin || (starts && at >= part->end)) return false;
        }
        for (int32_t message : receives) {
            const Part* part = part_of(message);
            if (!part || at >= part->end || (!starts && at < part->begin)) return false;
        }
        return true;
    });
}

// Programs that send to each other in a stage are together.
inline void Stages::find_exchanges(const std::vector<std::vector<std::pair<int32_t, Part>>>& parts, int32_t stage) {
    size_t count = parts.size(), first = exchanges_.size();
    std::vector<int32_t> root(count), number(count, kNone);
    std::iota(root.begin(), root.end(), 0);
    auto root_of = [&root](int32_t program) {
        while (root[size_t(program)] != program) program = root[size_t(program)] = root[size_t(root[size_t(program)])];
        return program;
    };
    for (size_t i = 0; i < stage_.size; ++i) {
        if (stage_[i] != stage) continue;
        const Message& message = programs_.messages_[i];
        int32_t a = root_of(message.sender), b = root_of(message.receiver);
        root[size_t(std::max(a, b))] = std::min(a, b);
    }
    std::vector<bool> can(count, true);
    auto part_of = [&](size_t program) -> const Part* {
        for (const auto& [of, part] : parts[program])
            if (of == stage) return &part;
        return nullptr;
    };
    for (size_t i = 0; i < count; ++i)
        if (!part_of(i)) can[size_t(root_of(int32_t(i)))] = false;
    for (size_t i = 0; i < count; ++i) {
        size_t top = size_t(root_of(int32_t(i)));
        const Part* part = part_of(i);
        if (!part || !can[top]) continue;
        if (number[top] == kNone) {
            number[top] = int32_t(exchanges_.size());
            exchanges_.emplace_back();
            made_.emplace_back();
        }
        Exchange& exchange = exchanges_[size_t(number[top])];
        made_[size_t(number[top])].push_back({part->begin, part->end, number[top], uint32_t(exchange.programs.size())});
        exchange.programs.push_back(int32_t(i));
    }
    for (size_t i = 0; i < stage_.size; ++i) {
        if (stage_[i] != stage) continue;
        int32_t found = number[size_t(root_of(programs_.messages_[i].sender))];
        if (found != kNone) exchanges_[size_t(found)].numbers.push_back(int32_t(i));
    }
    if (share_no_ports(first)) {
        for (size_t i = first; i < exchanges_.size(); ++i) {
            auto [known, is_new] = known_.emplace(sums_of(exchanges_[i], made_[i]), int32_t(shapes_.size()));
            if (is_new) shapes_.emplace_back();
            exchanges_[i].shape = known->second;
            shapes_[size_t(known->second)].exchanges.push_back(int32_t(i));
        }
    }
}

// Whether each port, and each memory of ports, is on the ways of one exchange alone, of those from the first one on.
inline bool Stages::share_no_ports(size_t first) const {
    std::vector<int32_t> owner(net_.ports.size(), kNone);
    std::unordered_map<const void*, int32_t> of_memory;
    std::vector<bool> is_met(programs_.pairs_.size());
    for (size_t i = first; i < exchanges_.size(); ++i)
        for (int32_t number : exchanges_[i].numbers)
            for (int32_t pair : {programs_.pair_of(number), programs_.pairs_[size_t(programs_.pair_of(number))].reverse}) {
                if (is_met[size_t(pair)]) continue;
                is_met[size_t(pair)] = true;
                const Pair& way = programs_.pairs_[size_t(pair)];
                for (uint8_t hop = 0; hop < way.hops; ++hop) {
                    uint32_t link = net_.links[way.route + hop];
                    const Port& port = net_.ports[link];
                    if (owner[link] == int32_t(i)) continue;
                    if (owner[link] != kNone) return false;
                    owner[link] = int32_t(i);
                    const void* memory = port.shared ? static_cast<const void*>(port.shared->memory)
                                                     : port.queued ? static_cast<const void*>(port.queued->memory) : nullptr;
                    if (memory && of_memory.emplace(memory, int32_t(i)).first->second != int32_t(i)) return false;
                }
            }
    return true;
}

// All that its packets meet: its messages in order between its members, what the ports of their ways are like and which of
// them they share, which end of a connection opens it, and what its members post ahead. Random numbers of ports and keys of
// hashes are others in each, by which leaders differ as well.
inline std::pair<uint64_t, uint64_t> Stages::sums_of(const Exchange& exchange, const std::vector<Part>& parts) const {
    Sums sums;
    std::unordered_map<int32_t, size_t> met;
    std::unordered_map<uint32_t, size_t> ports;
    auto member = [&](int32_t program) {
        return std::lower_bound(exchange.programs.begin(), exchange.programs.end(), program) - exchange.programs.begin();
    };
    auto opens = [&](int32_t pair) { return int64_t(programs_.pairs_[size_t(pair)].source > programs_.pairs_[size_t(pair)].destination); };
    for (int32_t number : exchange.numbers) {
        const Message& message = programs_.messages_[size_t(number)];
        for (int64_t value : {int64_t(member(message.sender)), int64_t(member(message.receiver)), message.size_bytes,
                              message.written_bytes, message.asked_bytes, int64_t(message.announced)})
            sums.add(value);
        for (int32_t pair : {message.pair, programs_.pairs_[size_t(message.pair)].reverse}) {
            auto [found, is_new] = met.try_emplace(pair, met.size());
            sums.add(int64_t(found->second));
            sums.add(opens(pair));
            if (is_new) add_way(sums, pair, ports);
        }
    }
    for (const Part& part : parts)
        for (int64_t at = part.begin; at < part.end; at += programs_.length_of(at)) {
            const int32_t* words = &programs_.code_[size_t(at)];
            bool starts = Operation(words[0]) == Operation::kStart;
            for (int i = 0; i < 4; ++i) sums.add(words[i]);
            int32_t count = starts ? words[2] + words[3] : words[1] + words[2];
            for (int32_t i = 0; i < count; ++i) {
                auto found = std::lower_bound(exchange.numbers.begin(), exchange.numbers.end(), words[4 + i]);
                bool is_own = found != exchange.numbers.end() && *found == words[4 + i];
                sums.add(is_own ? found - exchange.numbers.begin() : -1 - (starts ? opens(programs_.pair_of(words[4 + i])) : 0));
            }
        }
    return sums.both();
}

inline void Stages::add_way(Sums& sums, int32_t number, std::unordered_map<uint32_t, size_t>& met) const {
    const Pair& pair = programs_.pairs_[size_t(number)];
    for (int64_t value : {int64_t(pair.hops), pair.base_ns, int64_t(pair.device), int64_t(pair.selector), pair.mss}) sums.add(value);
    for (uint8_t hop = 0; hop < pair.hops; ++hop) {
        uint32_t link = net_.links[pair.route + hop];
        const Port& port = net_.ports[link];
        for (int64_t value : {int64_t(met.try_emplace(link, met.size()).first->second), int64_t(port.discipline), port.rate_bps,
                              port.delay_ns, port.buffer_bytes, port.mark_above})
            sums.add(value);
        if (port.shared) sums.add(port.shared->alpha_q16);
        if (port.red)
            for (int64_t value : {port.red->line.kmin_q16, port.red->line.kmax_q16, port.red->line.pmax_q32, port.red->weight_q32})
                sums.add(value);
        if (!port.queued) continue;
        for (int64_t value : {int64_t(port.queued->class_map), port.queued->frame_bytes, port.queued->packet_ns}) sums.add(value);
        for (const TrafficClass& each : port.queued->classes) {
            int64_t numbers[QueueOptions::kNumbers];
            memcpy(numbers, each.options, sizeof numbers);
            for (int64_t value : numbers) sums.add(value);
        }
    }
}

// The first exchanges of a shape lead, so that those whose connections were followed in one stage lead in the next one.
inline void Stages::choose_leaders() {
    for (Shape& shape : shapes_) {
        size_t count = shape.exchanges.size();
        shape.leaders = std::max(kLeadersAtLeast, count / kLedByEach);
        if (count < 2 * shape.leaders) {
            shape.leaders = 0;
            continue;
        }
        for (size_t i = 0; i < count; ++i) {
            int32_t number = shape.exchanges[i], leader = shape.exchanges[i % shape.leaders];
            Exchange& exchange = exchanges_[size_t(number)];
            exchange.leader = leader;
            exchange.is_leapt = number != leader;
            exchange.place = uint32_t(i - (exchange.is_leapt ? shape.leaders : 0));
            if (exchange.is_leapt) exchanges_[size_t(leader)].led.push_back(number);
        }
    }
}

inline bool Stages::enters(int32_t program, int64_t at, Time now) {
    size_t place = current_[size_t(program)];
    if (is_within_[size_t(program)] || place == first_part_[size_t(program) + 1] || parts_[place].begin != at) return false;
    const Part& part = parts_[place];
    Exchange& exchange = exchanges_[size_t(part.exchange)];
    is_within_[size_t(program)] = true;
    began_ns_[size_t(program)] = std::min(began_ns_[size_t(program)], now);
    exchange.set_out_ns[part.member] = now;
    bool is_first = !exchange.set_out++;
    bool are_half = exchange.set_out == (exchange.programs.size() + 1) / 2;
    if (are_half) exchange.half_ns = now;
    if (exchange.set_out == exchange.programs.size()) exchange.all_ns = now;
    if (!exchange.is_leapt) {
        if (are_half && exchange.leader == part.exchange)
            for (int32_t each : exchange.led) tell(each, now);
        return false;
    }
    programs_.programs_[size_t(program)].asleep = true;
    exchange.is_held[part.member] = true;
    post_ahead(exchange, part, now);
    if (is_first) {
        Time patience = std::max(kPatienceNs, (now - began_ns_[size_t(program)]) / kPatienceParts);
        net_.at_processes(now + patience, What::kStage, uint32_t(part.exchange), kHeldLong);
    }
    if (are_half) tell(part.exchange, now);
    for (uint32_t i = 0; i < exchange.programs.size(); ++i)
        if (exchange.is_due[i] && (i == part.member || exchange.all_ns == now))
            net_.at_processes(now, What::kStage, uint32_t(part.exchange), i);
    return true;
}

// Receives of later stages that a member posts in this one invite at once.
inline void Stages::post_ahead(const Exchange& exchange, const Part& part, Time now) {
    for (int64_t at = part.begin; at < part.end; at += programs_.length_of(at)) {
        const int32_t* words = &programs_.code_[size_t(at)];
        if (Operation(words[0]) != Operation::kStart) continue;
        for (int32_t i = words[2]; i < words[2] + words[3]; ++i) {
            int32_t message = words[4 + i];
            if (is_of(exchange, message)) continue;
            programs_.start(false, {}, {&message, 1}, now);
            programs_.messages_[size_t(message)].state |= Programs::kAsked;
        }
    }
}

inline void Stages::passes(int32_t program, Time now) {
    if (!is_within_[size_t(program)]) return;
    const Part& part = parts_[current_[size_t(program)]];
    if (programs_.programs_[size_t(program)].at < part.end) return;
    is_within_[size_t(program)] = false;
    ++current_[size_t(program)];
    Exchange& exchange = exchanges_[size_t(part.exchange)];
    exchange.ended_ns[part.member] = now;
    exchange.last = part.member;
    bool are_all = ++exchange.ended == exchange.programs.size();
    if (exchange.leader != part.exchange) return;
    Shape& shape = shapes_[size_t(exchange.shape)];
    if (are_all) {
        exchange.duration_ns = now - exchange.half_ns;
        ++shape.over;
        if (shape.is_over()) return finish(shape, now);
    }
    for (int32_t each : exchange.led) tell(each, now);
}

// Has members of an exchange go on as far as is known when.
inline void Stages::tell(int32_t number, Time now) {
    Exchange& exchange = exchanges_[size_t(number)];
    const Exchange& leader = exchanges_[size_t(exchange.leader)];
    const Shape& shape = shapes_[size_t(exchange.shape)];
    if (!exchange.is_leapt || leader.half_ns == kNever || exchange.half_ns == kNever) return;
    bool are_all = leader.ended == leader.programs.size();
    for (size_t i = 0; i < leader.ended_ns.size(); ++i) {
        if (exchange.is_told[i] || leader.ended_ns[i] == kNever) continue;
        Time after = leader.ended_ns[i] - leader.half_ns;
        if (are_all && i == leader.last) {
            if (!shape.is_over()) continue;
            if (shape.deviation_ns > 0) {
                double chance = (exchange.place + 0.5) / double(shape.exchanges.size() - shape.leaders);
                after = Time(shape.mean_ns + shape.deviation_ns * quantile(chance));
            }
        }
        exchange.is_told[i] = true;
        net_.at_processes(std::max(now, exchange.half_ns + after), What::kStage, uint32_t(number), int64_t(i));
    }
}

// Upper and lower quantiles of the normal distribution: Abramowitz and Stegun, Handbook of Mathematical Functions, 26.2.23.
inline double Stages::quantile(double chance) {
    double tail = std::min(chance, 1 - chance), t = std::sqrt(-2 * std::log(tail));
    double found = t - (2.515517 + t * (0.802853 + t * 0.010328)) / (1 + t * (1.432788 + t * (0.189269 + t * 0.001308)));
    return chance < 0.5 ? -found : found;
}

// All leaders of a shape are over.
inline void Stages::finish(Shape& shape, Time now) {
    double count = double(shape.leaders), squares = 0;
    for (size_t i = 0; i < shape.leaders; ++i) shape.mean_ns += double(exchanges_[size_t(shape.exchanges[i])].duration_ns) / count;
    for (size_t i = 0; i < shape.leaders; ++i) {
        double off = double(exchanges_[size_t(shape.exchanges[i])].duration_ns) - shape.mean_ns;
        squares += off * off;
    }
    shape.deviation_ns = std::sqrt(squares / (count - 1));
    // Meanwhile those that had ended had begun the next stage, whose messages do not meet what is leapt over: either of
    // them is longer by so much at most.
    Time overlap_ns = 0;
    for (size_t i = 0; i < shape.leaders; ++i) {
        const Exchange& each = exchanges_[size_t(shape.exchanges[i])];
        const Programs::Program& program = programs_.programs_[size_t(each.programs.front())];
        bool goes_on = program.at < program.end && Operation(programs_.code_[size_t(program.at)]) <= Operation::kAwait;
        if (goes_on) overlap_ns = std::max(overlap_ns, spread(each.ended_ns));
    }
    int64_t messages = 0;
    int32_t first = kNone;
    for (size_t i = shape.leaders; i < shape.exchanges.size(); ++i) {
        const Exchange& each = exchanges_[size_t(shape.exchanges[i])];
        if (!each.is_leapt) continue;
        if (first == kNone) first = each.numbers.front();
        messages += int64_t(each.numbers.size());
        tell(shape.exchanges[i], now);
    }
    // Those of other leaders have been told before.
    if (first == kNone) return;
    first_messages_.push_back(first);
    errors_ns_.push_back(int64_t(kDeviations * shape.deviation_ns) + 2 * overlap_ns + shape.late_ns);
    messages_.push_back(messages);
}

inline void Stages::goes_on(int32_t number, int64_t member, Time now) {
    Exchange& exchange = exchanges_[size_t(number)];
    if (!exchange.is_leapt) return;
    if (member == kHeldLong) {
        if (exchanges_[size_t(exchange.leader)].half_ns == kNever) follow(number, now);
        return;
    }
    // Whoever ended once all had set out does not end before.
    const Exchange& leader = exchanges_[size_t(exchange.leader)];
    bool waits = exchange.all_ns == kNever && leader.all_ns <= leader.ended_ns[size_t(member)];
    exchange.is_due[size_t(member)] = true;
    if (!waits && exchange.is_held[size_t(member)]) release(number, uint32_t(member), now);
}

// A member goes on behind its part: what it sends has been sent, and what it receives has come.
inline void Stages::release(int32_t number, uint32_t member, Time now) {
    Exchange& exchange = exchanges_[size_t(number)];
    int32_t program = exchange.programs[member];
    const Part& part = parts_[current_[size_t(program)]];
    for (int64_t at = part.begin; at < part.end; at += programs_.length_of(at)) {
        const int32_t* words = &programs_.code_[size_t(at)];
        bool starts = Operation(words[0]) == Operation::kStart;
        int32_t sends = starts ? words[2] : words[1], both = sends + (starts ? words[3] : words[2]);
        // Receives are waited for here, wherever they were posted.
        for (int32_t i = starts ? 0 : sends; i < both; ++i) {
            if (!is_of(exchange, words[4 + i])) continue;
            size_t place = size_t(words[4 + i]);
            Message& message = programs_.messages_[place];
            bool receives = i >= sends;
            if (receives && message.state & Programs::kReceived) continue;
            message.state |= Programs::kPosted | Programs::kInvited | (receives ? Programs::kReceived : Programs::kSent);
            if (receives) ++programs_.received_;
            if (programs_.posted_ns_.empty()) continue;
            if (receives) programs_.received_ns_[place] = now - programs_.begin_ns_;
            else programs_.posted_ns_[place] = exchange.set_out_ns[member] - programs_.begin_ns_;
        }
    }
    exchange.is_held[member] = false;
    is_within_[size_t(program)] = false;
    ++current_[size_t(program)];
    programs_.programs_[size_t(program)].at = part.end;
    programs_.settle(program);
    programs_.has_slept(program, now);
}

// Its leader did not set out in time: it is followed from here on.
inline void Stages::follow(int32_t number, Time now) {
    Exchange& exchange = exchanges_[size_t(number)];
    exchange.is_leapt = false;
    Shape& shape = shapes_[size_t(exchange.shape)];
    for (size_t member = 0; member < exchange.programs.size(); ++member) {
        if (!exchange.is_held[member]) continue;
        shape.late_ns = std::max(shape.late_ns, now - exchange.set_out_ns[member]);
        exchange.is_held[member] = false;
        programs_.has_slept(exchange.programs[member], now);
    }
}

inline bool Programs::enters_stage(int32_t program, int64_t at, Time now) { return stages->enters(program, at, now); }
inline void Programs::passes_stage(int32_t program, Time now) { stages->passes(program, now); }
