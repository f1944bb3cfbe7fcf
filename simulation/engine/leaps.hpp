// SPDX-License-Identifier: GPL-2.0-only
// Leaps over what is known: an exchange that went the same way each time that it had its ports to itself is not followed
// again, packet by packet. Its members go on when they did before.
//
// An exchange is programs that send to each other, such as the ranks' parts of a collective, from the first to the last
// of their messages, with nothing but messages between. Exchanges of one shape have the same messages in the same order,
// over ports that are alike and shared alike. Each one that is followed and had its ports to itself from its begin to its
// end is a sample: how much earlier than the last member each one set out, and how long after that it ended. The
// first exchange at a place is none: its connections are new. Once samples agree, exchanges of that shape are leapt
// over whose members set out as those of a sample did, or nearly so. Queue pairs have no windows, so that when members
// set out decides when they end: where little differences grow from one exchange to the next, only nearer ones are.
// Now and then one is followed all the same: it says how far off a leap would have been. A leap ends where
// anything else comes to a port of it: the messages that had come by then have come, and the rest is followed from
// there.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <numeric>
#include <unordered_map>
#include <utility>
#include <vector>

#include "fifo.hpp"
#include "programs.hpp"
#include "queued.hpp"
#include "stages.hpp"
#include "sums.hpp"

class Leaps {
  public:
    // Samples agree that differ by so many millionths of how long they take.
    Leaps(Programs& programs, Network& network, int64_t tolerance_ppm, bool are_any);
    bool has_exchanges() const { return !exchanges_.empty(); }
    Leaps(const Leaps&) = delete;
    Leaps& operator=(const Leaps&) = delete;

    // Whether a program's part of an exchange begins, or has ended, at this place of its code.
    bool begins_at(int32_t program, int64_t at) const { return parts_[size_t(program)].begin == at; }
    bool ends_at(int32_t program, int64_t at) const { return parts_[size_t(program)].end == at; }
    // A program comes to its part of an exchange. Whether it is held there.
    bool enters(int32_t program, Time now);
    // A program is through with its part of an exchange that is followed.
    void leaves(int32_t program, Time now);
    void has_posted(int32_t message, Time now);
    void has_received(int32_t message, Time now);
    // A time has come that was set.
    void goes_on(int32_t exchange, int64_t member, Time now);

    // Each leap: the first message of its exchange, how far off it may be, and how many messages it went over.
    const std::vector<int64_t>& first_messages() const { return first_messages_; }
    const std::vector<int64_t>& errors_ns() const { return errors_ns_; }
    const std::vector<int64_t>& messages() const { return messages_; }

  private:
    using Resource = uint32_t;  // a port, or the memory that ports share
    static constexpr int32_t kNone = -1;
    static constexpr int64_t kAllHeld = -1;  // in place of a member: those that are held waited long enough
    static constexpr int kSamplesThatAgree = 2, kMostLeapsBetween = 32;
    static constexpr size_t kMostSamples = 8;
    static constexpr size_t kFewParts = 4;       // few messages are a quarter of an exchange's
    static constexpr Time kNearParts = 20;       // samples are near that set out at most a 20th of their time apart
    static constexpr Time kPatienceNs = 2'000;   // beyond what samples took until all had set out
    static constexpr Time kGrown = 2;            // a difference has grown that is so many times as large, ...
    static constexpr Time kGrownParts = 1'000;   // and larger than this part of how long the exchange takes
    static constexpr int64_t kSteadyParts = 10;  // a window is steady that changes by a tenth of itself at most

    // All times count from when the last member set out.
    struct Sample {
        std::vector<Time> set_out, ended;        // of each member
        std::vector<Time> posted, received;      // of each message
        std::vector<Endpoint::Grown> from, to;   // of each end of its connections, at its begin and at its end
        Time longest = 0, most_received = 0;     // when the last one ended, and when few messages were left

        bool has_windows() const {
            return std::any_of(to.begin(), to.end(), [](const Endpoint::Grown& each) { return each.cwnd > 0; });
        }
        // Whether windows stay about the same. Where they do not, flows of equal windows get unequal shares later.
        bool is_steady() const {
            for (size_t i = 0; i < to.size(); ++i)
                if (std::abs(to[i].cwnd - from[i].cwnd) * kSteadyParts > from[i].cwnd) return false;
            return true;
        }
    };
    struct Shape {
        std::vector<std::shared_ptr<const Sample>> samples;
        int agreed = 0;                          // samples that agreed with those before, in a row
        Time off_ns = 0;                         // by how much a leap would have been off
        Time near_ns = kNever;                   // samples are near that set out at most so far apart
        int leapt = 0, most_leaps = 1;           // since one was followed, and until one is to be
    };
    // The ports of exchanges that go over the same ones, and their connections, both ways, in the order of their use.
    struct Place {
        int32_t shape = kNone;
        std::vector<Resource> resources;
        std::vector<int32_t> pairs;
        std::vector<Time> ended;                 // of each member, of the last exchange there
        bool is_new = true;
    };
    enum class State : uint8_t { kAhead, kFollowed, kHeld, kLeapt, kOver };
    struct Exchange {
        std::vector<int32_t> programs;           // in order
        std::vector<int32_t> numbers;            // of its messages, in order
        int32_t place = kNone;
        State state = State::kAhead;
        bool is_alone = false;
        bool is_ending = false;                  // a member has ended, and few messages are left
        size_t received = 0;
        uint32_t set_out = 0, ended = 0;         // members
        uint64_t number = 0;                     // by when it began
        Time last_ns = 0;                        // when the last member set out
        std::vector<Time> set_out_ns, ended_ns;
        std::vector<bool> has_ended;
        std::vector<Endpoint::Grown> from;
        std::shared_ptr<const Sample> sample;    // of a leap
    };

    // A program's part of an exchange, in its code.
    struct Part {
        int64_t begin = -1, end = -1;            // none where it has no such part
        int32_t exchange = kNone;
        uint32_t member = 0;
    };

    void find_part(int32_t program);
    void find_exchanges();
    void find_place(Exchange& exchange);
    void add_code(Sums& sums, const Exchange& exchange, int32_t program) const;
    void add_way(Sums& sums, int32_t pair, std::unordered_map<Resource, size_t>& met) const;
    std::vector<Resource> resources_of(const std::vector<int32_t>& pairs) const;
    const std::vector<Resource>& of_pair(int32_t message);
    void occupy(const std::vector<Resource>& resources, uint64_t number, Time now);
    bool is_free(const std::vector<Resource>& resources) const;
    void release(Exchange& exchange);
    void leave_ports(int32_t exchange);
    void end_begins(Exchange& exchange);
    void uncount(int32_t message);
    static std::shared_ptr<const Sample> nearest(const Shape& shape, const std::vector<Time>& set_out);
    static Time apart(const std::vector<Time>& some, const std::vector<Time>& others);
    static std::vector<Time> before_last(std::vector<Time> times);
    bool may_be_near(const Shape& shape, const Place& place) const;
    void leap(int32_t exchange, Time now);
    void follow(int32_t exchange, Time now);
    void finish(int32_t exchange, Time now);
    int64_t keep_as_came(int32_t exchange, Time elapsed);
    void learn(int32_t exchange);
    void tell(const Exchange& exchange, Time off_ns, int64_t messages);
    std::vector<Endpoint::Grown> grown(const Place& place) const;

    Programs& programs_;
    Network& net_;
    const int64_t tolerance_ppm_;
    std::vector<Part> parts_;                    // of each program
    std::vector<Exchange> exchanges_;
    std::vector<Shape> shapes_;
    std::vector<Place> places_;
    Place& place_of(const Exchange& exchange) { return places_[size_t(exchange.place)]; }
    Shape& shape_of(const Exchange& exchange) { return shapes_[size_t(place_of(exchange).shape)]; }
    std::vector<int32_t> exchange_of_;           // each message's
    std::vector<bool> is_counted_;               // each message's, in users_
    std::vector<Time> posted_, received_;        // each message's, of exchanges that are followed
    std::unordered_map<const void*, Resource> shared_;
    std::vector<Resource> of_port_;
    std::vector<uint32_t> users_;                // by resource: messages under way
    std::vector<uint64_t> last_user_;            // the number of the last one that came
    std::vector<int32_t> leapt_;                 // the exchange that is held or leapt over there
    uint64_t number_ = 0;
    std::map<std::pair<uint64_t, uint64_t>, int32_t> known_shapes_, known_places_;  // by their sums
    std::unordered_map<int32_t, std::vector<Resource>> of_pair_;
    std::vector<int64_t> first_messages_, errors_ns_, messages_;
};

inline Leaps::Leaps(Programs& programs, Network& network, int64_t tolerance_ppm, bool are_any)
    : programs_(programs), net_(network), tolerance_ppm_(tolerance_ppm) {
    size_t count = programs.messages();
    parts_.resize(programs.programs_.size());
    exchange_of_.assign(count, kNone);
    posted_.assign(count, 0);
    received_.assign(count, 0);
    is_counted_.assign(count, false);
    for (size_t i = 0; i < network.ports.size(); ++i) {
        const Port& port = network.ports[i];
        const void* memory = port.shared ? static_cast<const void*>(port.shared->memory)
                                         : port.queued ? static_cast<const void*>(port.queued->memory) : nullptr;
        Resource next = Resource(users_.size());
        Resource resource = memory ? shared_.emplace(memory, next).first->second : next;
        of_port_.push_back(resource);
        if (resource == next) users_.push_back(0);
    }
    last_user_.assign(users_.size(), 0);
    leapt_.assign(users_.size(), kNone);
    if (!are_any) return;
    for (size_t i = 0; i < parts_.size(); ++i) find_part(int32_t(i));
    find_exchanges();
    for (Exchange& each : exchanges_) find_place(each);
}

// The operations of a program that start messages or wait for them. Where others are among them, it has no part.
inline void Leaps::find_part(int32_t number) {
    const Programs::Program& program = programs_.programs_[size_t(number)];
    Part& part = parts_[size_t(number)];
    if (programs_.stages && programs_.stages->owns(number)) return;
    for (int64_t at = program.at; at < program.end; at += programs_.length_of(at)) {
        const int32_t* words = &programs_.code_[size_t(at)];
        Operation operation = Operation(words[0]);
        bool waits = operation == Operation::kAwait && words[1] + words[2] && !words[3];
        if (!waits && operation != Operation::kFollow && operation != Operation::kStart) continue;
        if (part.begin < 0) part.begin = at;
        else if (part.end != at) return void(part = {});
        part.end = at + programs_.length_of(at);
    }
}

// Programs that exchange messages, and all whose code lets them be leapt over, are together.
inline void Leaps::find_exchanges() {
    std::vector<int32_t> root(parts_.size());
    std::iota(root.begin(), root.end(), 0);
    auto root_of = [&root](int32_t program) {
        while (root[size_t(program)] != program) program = root[size_t(program)] = root[size_t(root[size_t(program)])];
        return program;
    };
    for (const Message& message : programs_.messages_) {
        int32_t a = root_of(message.sender), b = root_of(message.receiver);
        root[size_t(std::max(a, b))] = std::min(a, b);
    }
    std::vector<bool> can(parts_.size(), true);
    for (size_t i = 0; i < parts_.size(); ++i)
        if (parts_[i].begin < 0) can[size_t(root_of(int32_t(i)))] = false;
    for (size_t i = 0; i < parts_.size(); ++i) {
        Part& part = parts_[i];
        int32_t first = root_of(int32_t(i));
        if (!can[size_t(first)]) {
            part = {};
            continue;
        }
        if (first == int32_t(i)) exchanges_.emplace_back();
        part.exchange = first == int32_t(i) ? int32_t(exchanges_.size()) - 1 : parts_[size_t(first)].exchange;
        std::vector<int32_t>& programs = exchanges_[size_t(part.exchange)].programs;
        part.member = uint32_t(programs.size());
        programs.push_back(int32_t(i));
    }
    for (size_t i = 0; i < exchange_of_.size(); ++i) {
        int32_t found = parts_[size_t(programs_.messages_[i].sender)].exchange;
        exchange_of_[i] = found;
        if (found != kNone) exchanges_[size_t(found)].numbers.push_back(int32_t(i));
    }
}

// A program's part, whose messages are numbered by their place in the exchange.
inline void Leaps::add_code(Sums& sums, const Exchange& exchange, int32_t number) const {
    const std::vector<int32_t>& numbers = exchange.numbers;
    const Part& part = parts_[size_t(number)];
    for (int64_t at = part.begin; at < part.end; at += programs_.length_of(at)) {
        const int32_t* words = &programs_.code_[size_t(at)];
        sums.add(words[0]);
        if (Operation(words[0]) != Operation::kFollow) {
            bool starts = Operation(words[0]) == Operation::kStart;
            for (int i = 1; i < 4; ++i) sums.add(words[i]);
            int32_t count = starts ? words[2] + words[3] : words[1] + words[2];
            for (int32_t i = 0; i < count; ++i)
                sums.add(std::lower_bound(numbers.begin(), numbers.end(), words[4 + i]) - numbers.begin());
            continue;
        }
        const Programs::Steps& steps = programs_.steps_[size_t(words[1])];
        sums.add(number - steps.program);
        if (number != exchange.programs.front()) continue;  // the others follow the same list
        for (size_t step = steps.first; step < steps.end; ++step) {
            sums.add(programs_.step_kind_[step]);
            sums.add(programs_.step_first_[step] - numbers.front());
            sums.add(programs_.step_end_[step] - numbers.front());
        }
    }
}

inline void Leaps::find_place(Exchange& exchange) {
    Sums place, shape;
    auto add = [&](int64_t value) { place.add(value), shape.add(value); };
    add(int64_t(exchange.programs.size()));
    for (int32_t program : exchange.programs) {
        add_code(place, exchange, program);
        add_code(shape, exchange, program);
    }
    std::vector<int32_t> pairs;
    std::unordered_map<int32_t, size_t> met;
    std::unordered_map<Resource, size_t> ports;
    for (int32_t number : exchange.numbers) {
        const Message& message = programs_.messages_[size_t(number)];
        for (int32_t pair : {message.pair, programs_.pairs_[size_t(message.pair)].reverse}) {
            auto [found, is_new] = met.try_emplace(pair, met.size());
            place.add(pair);
            shape.add(int64_t(found->second));
            if (!is_new) continue;
            pairs.push_back(pair);
            add_way(shape, pair, ports);
        }
        for (int64_t value : {int64_t(parts_[size_t(message.sender)].member), int64_t(parts_[size_t(message.receiver)].member),
                              message.size_bytes, message.written_bytes, message.asked_bytes, int64_t(message.announced)})
            add(value);
    }
    auto [found, is_new] = known_places_.emplace(place.both(), int32_t(places_.size()));
    exchange.place = found->second;
    if (!is_new) return;
    auto [like, is_new_shape] = known_shapes_.emplace(shape.both(), int32_t(shapes_.size()));
    if (is_new_shape) shapes_.emplace_back();
    Place& made = places_.emplace_back();
    made.shape = like->second;
    made.resources = resources_of(pairs);
    made.pairs = std::move(pairs);
}

// Adds what the ports of a pair's way are like, and which of those that were met before they are.
inline void Leaps::add_way(Sums& sums, int32_t number, std::unordered_map<Resource, size_t>& met) const {
    const Pair& pair = programs_.pairs_[size_t(number)];
    for (int64_t value : {int64_t(pair.hops), pair.base_ns, int64_t(pair.device), int64_t(pair.selector), pair.mss}) sums.add(value);
    for (uint8_t hop = 0; hop < pair.hops; ++hop) {
        uint32_t link = net_.links[pair.route + hop];
        const Port& port = net_.ports[link];
        for (int64_t value : {int64_t(met.try_emplace(of_port_[link], met.size()).first->second), int64_t(port.discipline),
                              port.rate_bps, port.delay_ns, port.buffer_bytes, port.mark_above})
            sums.add(value);
        if (port.queued) sums.add(int64_t(link));  // with settings of its own
    }
}

inline std::vector<Leaps::Resource> Leaps::resources_of(const std::vector<int32_t>& pairs) const {
    std::vector<Resource> found;
    for (int32_t number : pairs) {
        const Pair& pair = programs_.pairs_[size_t(number)];
        for (uint8_t hop = 0; hop < pair.hops; ++hop) found.push_back(of_port_[net_.links[pair.route + hop]]);
    }
    std::sort(found.begin(), found.end());
    found.erase(std::unique(found.begin(), found.end()), found.end());
    return found;
}

// A message is under way over ports. Leaps there end.
inline void Leaps::occupy(const std::vector<Resource>& resources, uint64_t number, Time now) {
    for (Resource each : resources) {
        if (leapt_[each] != kNone && !exchanges_[size_t(leapt_[each])].is_ending) follow(leapt_[each], now);
        ++users_[each];
        last_user_[each] = number;
    }
}

inline bool Leaps::is_free(const std::vector<Resource>& resources) const {
    return std::all_of(resources.begin(), resources.end(), [this](Resource each) {
        return !users_[each] && (leapt_[each] == kNone || exchanges_[size_t(leapt_[each])].is_ending);
    });
}

inline bool Leaps::enters(int32_t program, Time now) {
    int32_t number = parts_[size_t(program)].exchange;
    Exchange& exchange = exchanges_[size_t(number)];
    Shape& shape = shape_of(exchange);
    const Place& place = place_of(exchange);
    size_t members = exchange.programs.size();
    if (exchange.state == State::kAhead) {
        exchange.number = ++number_;
        exchange.set_out_ns.assign(members, 0);
        exchange.ended_ns.assign(members, 0);
        exchange.has_ended.assign(members, false);
        exchange.is_alone = is_free(place.resources);
        for (Resource each : place.resources) last_user_[each] = exchange.number;
        bool leaps = exchange.is_alone && !place.is_new && shape.agreed >= kSamplesThatAgree && shape.leapt < shape.most_leaps;
        leaps = leaps && may_be_near(shape, place);
        exchange.state = leaps ? State::kHeld : State::kFollowed;
        exchange.from = grown(place_of(exchange));
        if (leaps) {
            for (Resource each : place.resources) leapt_[each] = number;
            Time longest = 0;
            for (const auto& sample : shape.samples)
                longest = std::max(longest, -*std::min_element(sample->set_out.begin(), sample->set_out.end()));
            net_.at_processes(now + longest + longest / 4 + kPatienceNs, What::kLeap, uint32_t(number), kAllHeld);
        }
    }
    exchange.set_out_ns[parts_[size_t(program)].member] = exchange.last_ns = now;
    bool are_all = ++exchange.set_out == members;
    if (exchange.state != State::kHeld) return false;
    programs_.programs_[size_t(program)].asleep = true;
    if (are_all) leap(number, now);
    return true;
}

// The most by which two rows of times differ.
inline Time Leaps::apart(const std::vector<Time>& some, const std::vector<Time>& others) {
    Time found = 0;
    for (size_t i = 0; i < some.size(); ++i) found = std::max(found, std::abs(some[i] - others[i]));
    return found;
}

inline std::vector<Time> Leaps::before_last(std::vector<Time> times) {
    Time last = *std::max_element(times.begin(), times.end());
    for (Time& each : times) each -= last;
    return times;
}

// The sample whose members set out most nearly so; none where none is near.
inline std::shared_ptr<const Leaps::Sample> Leaps::nearest(const Shape& shape, const std::vector<Time>& set_out) {
    std::shared_ptr<const Sample> found;
    Time least = kNever;
    for (const auto& sample : shape.samples) {
        Time away = apart(set_out, sample->set_out);
        if (away < least && away <= std::min(sample->longest / kNearParts, shape.near_ns)) least = away, found = sample;
    }
    return found;
}

// Whether an exchange is worth holding. Members that are held in vain set out together, which is what counts where
// little differences grow; they are expected to set out as they ended the last one.
inline bool Leaps::may_be_near(const Shape& shape, const Place& place) const {
    return shape.near_ns == kNever || place.ended.empty() || nearest(shape, before_last(place.ended));
}

inline void Leaps::leap(int32_t number, Time now) {
    Exchange& exchange = exchanges_[size_t(number)];
    exchange.sample = nearest(shape_of(exchange), before_last(exchange.set_out_ns));
    if (!exchange.sample) {
        shape_of(exchange).leapt = shape_of(exchange).most_leaps;  // the next one is followed
        return follow(number, now);
    }
    exchange.state = State::kLeapt;
    for (size_t i = 0; i < exchange.sample->ended.size(); ++i)
        net_.at_processes(now + exchange.sample->ended[i], What::kLeap, uint32_t(number), int64_t(i));
}

inline void Leaps::goes_on(int32_t number, int64_t member, Time now) {
    Exchange& exchange = exchanges_[size_t(number)];
    if (member == kAllHeld) {
        if (exchange.state == State::kHeld) follow(number, now);
        return;
    }
    if (exchange.state != State::kLeapt) return;
    exchange.has_ended[size_t(member)] = true;
    exchange.ended_ns[size_t(member)] = now;
    ++exchange.ended;
    exchange.is_ending = now - exchange.last_ns >= exchange.sample->most_received;
    int32_t number_of_program = exchange.programs[size_t(member)];
    Programs::Program& program = programs_.programs_[size_t(number_of_program)];
    program.at = parts_[size_t(number_of_program)].end;
    program.step = 0;
    program.is_in_exchange = false;
    if (exchange.ended == exchange.has_ended.size()) finish(number, now);
    programs_.settle(number_of_program);
    programs_.has_slept(number_of_program, now);
}

// A leap is over.
inline void Leaps::finish(int32_t number, Time now) {
    Exchange& exchange = exchanges_[size_t(number)];
    Shape& shape = shape_of(exchange);
    keep_as_came(number, kNever);
    const std::vector<int32_t>& pairs = place_of(exchange).pairs;
    for (size_t i = 0; i < pairs.size(); ++i)
        if (Endpoint* each = net_.endpoints[size_t(pairs[i])])
            each->was_busy_until(now, exchange.sample->from[i], exchange.sample->to[i]);
    ++shape.leapt;
    tell(exchange, shape.off_ns, int64_t(exchange.numbers.size()));
    leave_ports(number);
    release(exchange);
}

inline void Leaps::leave_ports(int32_t number) {
    for (Resource each : place_of(exchanges_[size_t(number)]).resources)
        if (leapt_[each] == number) leapt_[each] = kNone;
}

inline void Leaps::tell(const Exchange& exchange, Time off_ns, int64_t messages) {
    first_messages_.push_back(exchange.numbers.front());
    errors_ns_.push_back(off_ns);
    messages_.push_back(messages);
}

inline void Leaps::release(Exchange& exchange) {
    exchange.state = State::kOver;
    place_of(exchange).ended = exchange.ended_ns;
    exchange.sample = nullptr;
    exchange.set_out_ns = exchange.ended_ns = {};
    exchange.from = {};
}

// Messages of a leap that have come after so long have come; of others that were under way, what had not come
// is left. A connection carries one message at a time.
inline int64_t Leaps::keep_as_came(int32_t number, Time elapsed) {
    const Exchange& exchange = exchanges_[size_t(number)];
    std::unordered_map<int32_t, Time> free_ns;
    int64_t came = 0;
    for (size_t place = 0; place < exchange.numbers.size(); ++place) {
        int32_t i = exchange.numbers[place];
        Message& message = programs_.messages_[size_t(i)];
        if (message.state & Programs::kReceived) continue;
        Time posted = exchange.sample->posted[place], received = exchange.sample->received[place];
        Time& before = free_ns[message.pair];
        Time begins = std::max(posted, before);
        before = std::max(before, received);
        if (received <= elapsed) {
            ++came;
            message.state = Programs::kPosted | Programs::kInvited | Programs::kSent | Programs::kReceived;
            ++programs_.received_;
            if (programs_.posted_ns_.empty()) continue;
            programs_.posted_ns_[size_t(i)] = exchange.last_ns + posted - programs_.begin_ns_;
            programs_.received_ns_[size_t(i)] = exchange.last_ns + received - programs_.begin_ns_;
        } else if (begins < elapsed) {
            double left = double(received - elapsed) / double(received - begins);
            int64_t header_bytes = message.written_bytes - message.size_bytes;
            message.size_bytes = std::max<int64_t>(1, int64_t(double(message.size_bytes) * left));
            message.written_bytes = message.size_bytes + header_bytes;
        }
    }
    return came;
}

// An exchange that was held or leapt over is followed from here on.
inline void Leaps::follow(int32_t number, Time now) {
    Exchange& exchange = exchanges_[size_t(number)];
    Shape& shape = shape_of(exchange);
    leave_ports(number);
    bool was_leapt = exchange.state == State::kLeapt;
    std::vector<int32_t> left;
    if (was_leapt) {
        int64_t came = keep_as_came(number, now - exchange.last_ns);
        Time round_trip_ns = 0;
        for (int32_t pair : place_of(exchange).pairs)
            round_trip_ns = std::max(round_trip_ns, programs_.pairs_[size_t(pair)].base_ns);
        exchange.received = size_t(came);
        tell(exchange, shape.off_ns + round_trip_ns, came);
        exchange.is_alone = false;
        for (int32_t i : exchange.numbers) {
            const Message& message = programs_.messages_[size_t(i)];
            if (exchange.has_ended[parts_[size_t(message.sender)].member] && !(message.state & Programs::kReceived))
                left.push_back(i);
        }
    }
    exchange.state = State::kFollowed;
    exchange.sample = nullptr;
    // Those whose sender is through with the list already go first.
    programs_.announce({left.data(), left.size()}, now);
    for (size_t i = 0; i < exchange.programs.size(); ++i) {
        Programs::Program& program = programs_.programs_[size_t(exchange.programs[i])];
        if (!program.is_in_exchange || exchange.has_ended[i] || !program.asleep) continue;
        if (!was_leapt) exchange.set_out_ns[i] = exchange.last_ns = now;
        program.at = parts_[size_t(exchange.programs[i])].begin;
        program.step = 0;
        programs_.settle(exchange.programs[i]);
        programs_.has_slept(exchange.programs[i], now);
    }
}

inline void Leaps::leaves(int32_t program, Time now) {
    int32_t number = parts_[size_t(program)].exchange;
    Exchange& exchange = exchanges_[size_t(number)];
    size_t member = parts_[size_t(program)].member;
    exchange.ended_ns[member] = now;
    exchange.has_ended[member] = true;
    bool are_all = ++exchange.ended == exchange.has_ended.size();
    bool few_left = exchange.numbers.size() - exchange.received <= exchange.numbers.size() / kFewParts;
    if (!exchange.is_ending && (are_all || few_left)) end_begins(exchange);
    if (!are_all) return;
    if (exchange.is_alone && !place_of(exchange).is_new) learn(number);
    place_of(exchange).is_new = false;
    release(exchange);
}

// From here on its members may have begun what they do next, which comes to the same ports: it counts neither as a
// disturbance of it nor as disturbed by it.
inline void Leaps::end_begins(Exchange& exchange) {
    exchange.is_ending = true;
    for (Resource each : place_of(exchange).resources)
        exchange.is_alone = exchange.is_alone && last_user_[each] == exchange.number;
    for (int32_t each : exchange.numbers) uncount(each);
}

inline void Leaps::uncount(int32_t message) {
    if (!is_counted_[size_t(message)]) return;
    is_counted_[size_t(message)] = false;
    for (Resource each : of_pair(message)) --users_[each];
}

inline std::vector<Endpoint::Grown> Leaps::grown(const Place& place) const {
    std::vector<Endpoint::Grown> found;
    for (int32_t pair : place.pairs) {
        const Endpoint* end = net_.endpoints[size_t(pair)];
        found.push_back(end ? end->grown() : Endpoint::Grown{0, 0});
    }
    return found;
}

// An exchange had its ports to itself.
inline void Leaps::learn(int32_t number) {
    Exchange& exchange = exchanges_[size_t(number)];
    Shape& shape = shape_of(exchange);
    auto sample = std::make_shared<Sample>();
    for (size_t i = 0; i < exchange.ended_ns.size(); ++i) {
        sample->set_out.push_back(exchange.set_out_ns[i] - exchange.last_ns);
        sample->ended.push_back(exchange.ended_ns[i] - exchange.last_ns);
        sample->longest = std::max(sample->longest, sample->ended.back());
    }
    for (int32_t i : exchange.numbers) {
        sample->posted.push_back(posted_[size_t(i)] - exchange.last_ns);
        sample->received.push_back(received_[size_t(i)] - exchange.last_ns);
    }
    std::vector<Time> times = sample->received;
    auto most = times.end() - 1 - ptrdiff_t(times.size() / kFewParts);
    std::nth_element(times.begin(), most, times.end());
    sample->most_received = *most;
    // Where somebody ended before everybody had set out, nobody can tell at that time what follows.
    if (*std::min_element(sample->ended.begin(), sample->ended.end()) <= 0) return;
    sample->from = exchange.from;
    sample->to = grown(place_of(exchange));
    std::shared_ptr<const Sample> known = nearest(shape, sample->set_out);
    if (known) {
        Time off = std::abs(known->longest - sample->longest);
        bool agrees = double(off) * 1e6 <= double(tolerance_ppm_) * double(sample->longest) && sample->is_steady();
        if (!sample->has_windows()) {
            Time before = apart(known->set_out, sample->set_out), after = apart(known->ended, sample->ended);
            if (before && after > kGrown * before && after > sample->longest / kGrownParts) shape.near_ns = before - 1;
            off = std::max(off, after);
        }
        shape.off_ns = std::max(off, shape.off_ns * 3 / 4);
        shape.agreed = agrees ? shape.agreed + 1 : 0;
        bool may_double = agrees && shape.agreed > kSamplesThatAgree;
        shape.most_leaps = may_double ? std::min(2 * shape.most_leaps, kMostLeapsBetween) : 1;
        std::erase(shape.samples, known);
    }
    shape.leapt = 0;
    if (shape.samples.size() == kMostSamples) shape.samples.erase(shape.samples.begin());
    shape.samples.push_back(std::move(sample));
}

// Messages outside of exchanges are each for itself.
inline void Leaps::has_posted(int32_t number, Time now) {
    int32_t exchange = exchange_of_[size_t(number)];
    posted_[size_t(number)] = now;
    if (exchange != kNone && exchanges_[size_t(exchange)].is_ending) return;
    is_counted_[size_t(number)] = true;
    occupy(of_pair(number), exchange == kNone ? ++number_ : exchanges_[size_t(exchange)].number, now);
}

inline void Leaps::has_received(int32_t number, Time now) {
    received_[size_t(number)] = now;
    if (exchange_of_[size_t(number)] != kNone) ++exchanges_[size_t(exchange_of_[size_t(number)])].received;
    uncount(number);
}

inline const std::vector<Leaps::Resource>& Leaps::of_pair(int32_t message) {
    int32_t pair = programs_.messages_[size_t(message)].pair;
    auto [found, is_new] = of_pair_.try_emplace(pair);
    if (is_new) found->second = resources_of({pair, programs_.pairs_[size_t(pair)].reverse});
    return found->second;
}

inline void Programs::tell_leaps_received(int32_t message, Time now) { leaps->has_received(message, now); }
inline void Programs::tell_leaps_posted(int32_t message, Time now) { leaps->has_posted(message, now); }
inline bool Programs::enters_exchange(int32_t program, int64_t at, Time now) {
    Program& found = programs_[size_t(program)];
    if (found.is_in_exchange || !leaps->begins_at(program, at)) return false;
    found.is_in_exchange = true;
    return leaps->enters(program, now);
}
inline bool Programs::leaves_exchange(int32_t program) {
    Program& found = programs_[size_t(program)];
    bool leaves = found.is_in_exchange && leaps->ends_at(program, found.at);
    if (leaves) found.is_in_exchange = false;
    return leaves;
}
inline void Programs::has_left_exchange(int32_t program, Time now) { leaps->leaves(program, now); }
