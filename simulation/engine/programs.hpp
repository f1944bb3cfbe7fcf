// SPDX-License-Identifier: GPL-2.0-only
// The programs of all members of collectives: what each posts, what it waits for next, and what is done once
// something is complete. Messages travel over connections, each made when the first of its messages is.
//
// A program is a list of operations in 32-bit words; analysis/predict/engines/packet/programs.py writes them.
#pragma once
#include <cmath>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bbr.hpp"
#include "columns.hpp"
#include "endpoint.hpp"
#include "queue_pair.hpp"
#include "slots.hpp"

enum class Operation : int32_t {
    kStart = 0,    // sends_first, count of sends, of receives; the messages
    kAwait,        // count of sends, of receives, of marks; these
    kMark,         // mark
    kPause,        // number of a duration
    kSleepLate,    // number of a time, register of lateness: until their sum, to the nanosecond
    kSleepMeeting, // meeting
    kOccupy,       // unit, number of a duration, number of a latency
    kStamp,        // stamp
    kSetLate,      // register, number of a time
    kPropose,      // meeting, number of a margin, number of a grid
    kPost,         // stamp, slots, priority, proposal, place, mark of agreeing, mark of asking,
                   // count of streams; these; count of marks; these; pool or -1; of a pool as many marks
    kEnded,        // latch of the chunk, latch of the call, stamp, slots, mark, pool or -1
    kAgreed,       // latch, slots, place, proposal
    kPassedOn,     // latch, mark, stream or -1, count of streams; these, which ask next
    kFollow,       // list of steps: the program's part of each
    kImpair,       // row of the faults
    kReroute,      // state of the routes
    kRepeat,       // how many words before it the program goes on again, without end: nobody waits for it
};

// The way of a pair's messages: the number of a pair is that of its sending end as well.
struct Pair {
    int32_t source, destination, reverse;
    uint32_t route;
    uint8_t hops;
    int64_t base_ns;
    int32_t device;       // the setting of its queue pair's device; -1 where it is a TCP connection
    int32_t completions;  // of a queue pair: the queue of its rank
    uint8_t selector;     // DSCP class selector
    int64_t mss;          // of a TCP connection: the most payload of its segments
};

// Those who wait for something: the ends of a list.
struct Watchers {
    int32_t first = -1, last = -1;
};

struct Message {
    int64_t size_bytes, written_bytes;  // without its header, and with it
    int64_t asked_bytes;                // the send buffer that its sender asks for, 0 for none
    int32_t pair, sender, receiver;
    Watchers watched_sent, watched_received;
    bool announced;
    uint8_t state;
};

class Copies;
class Fluid;
class Hosts;

// Whoever posts messages from outside, and is told what becomes of them (driven.hpp).
class Driver {
  public:
    virtual ~Driver() = default;
    virtual void has_sent(int32_t message, Time now) = 0;
    virtual void has_received(int32_t message, Time now) = 0;
    virtual void is_due(int64_t what, Time now) = 0;
};

class Leaps;
class Stages;

class Programs {
  public:
    static constexpr int32_t kNone = -1;  // in place of a program, or of a message

    Programs(const Columns& from, Network& network, const TcpSetting& tcp);
    ~Programs();

    // Has all members set out. The first one matters where ports serve in order, and in the virtual
    // kernel that is the last one.
    void begin() {
        net_.begin_at(begin_ns_);
        for (size_t i = programs_.size(); i--;) advance(int32_t(i), begin_ns_);
    }
    bool are_over() const { return !left_ && !driver_; }
    // Whether something goes on although all programs are over.
    bool is_endless() const { return is_endless_; }
    // Routes have this state from now on.
    void reroute(int32_t state);
    const std::vector<int64_t>& stamps() const { return stamps_; }
    const Pair& pair(uint32_t number) const { return pairs_[number]; }
    size_t pairs() const { return pairs_.size(); }
    // A connection's end, the source of a pair, measured this when it was made, in microseconds: of its handshake, and
    // of its greeting, -1 where nothing tells. Heeded until that end has sent something.
    void shook_hands(int32_t pair, int64_t handshake_us, int64_t greeting_us, Time now);
    int32_t pair_of(int32_t message) const { return messages_[size_t(message)].pair; }
    size_t messages() const { return messages_.size(); }
    size_t received() const { return received_; }
    // When each message was posted by its sender and received, where the scenario wants to know; -1 for never.
    const std::vector<int64_t>& posted_ns() const { return posted_ns_; }
    const std::vector<int64_t>& received_ns() const { return received_ns_; }

    Leaps* leaps = nullptr;    // over what is known, where that is asked for (leaps.hpp)
    Stages* stages = nullptr;  // of collectives that groups of ranks go through alike (stages.hpp)

    Driver* driver() const { return driver_; }
    void drive_by(Driver* driver) { driver_ = driver; }
    // A message that the driver posts; its number, which it has until it is sent and received.
    int32_t add(int32_t pair, int64_t size_bytes, int64_t header_bytes, bool announced) {
        Message made{size_bytes, size_bytes + header_bytes, 0, pair, kDriver, kDriver, {}, {}, announced, 0};
        if (free_messages_.empty()) {
            messages_.push_back(made);
            return int32_t(messages_.size()) - 1;
        }
        int32_t number = free_messages_.back();
        free_messages_.pop_back();
        messages_[size_t(number)] = made;
        return number;
    }
    void post_sends(Span<int32_t> messages, Time now) { announce(messages, now); }
    void post_receive(int32_t message, Time now) { start(false, {}, {&message, 1}, now); }
    int64_t size_bytes(int32_t message) const { return messages_[size_t(message)].size_bytes; }
    bool is_received(int32_t message) const { return messages_[size_t(message)].state & kReceived; }
    // The number is free once both ends are told.
    void drop(int32_t message) { free_messages_.push_back(message); }

    // The thread that reads an end takes in what has come, and sends what that invites, before those that wait
    // for a message go on: it holds the connection's lock. Before the last message is taken in, all is read.
    void read(Ring<Expected>& expected, int64_t received, Endpoint* end, Time now) {
        std::vector<Told> told;
        reading_ = &told;
        bool is_left = !expected.empty() && expected.front().received < received;
        while (!expected.empty() && expected.front().received <= received) {
            Expected first = expected.front();
            if (is_left && first.received == received) {
                is_left = false;
                if (end) end->has_read(now);
            }
            expected.pop_front();
            if (first.invites) has_been_invited(first.message, now);
            else told.push_back({first.message, false});
        }
        if (is_left && end) end->has_read(now);
        reading_ = nullptr;
        for (const Told& each : told) {
            if (each.is_sent) has_sent(each.message, now);
            else has_received(each.message, now);
        }
    }

    // The same where the other end of a pair is on the same host: loopback takes no time.
    void read_within(uint32_t pair, int64_t received, Time now) {
        read(within_[pair].expected, received, nullptr, now);
    }

    // Hosts' processors take time (hosts.hpp).
    void charge(std::unique_ptr<Hosts> hosts);
    Hosts* hosts() const { return hosts_.get(); }

    // The messages go as a fluid (fluid.hpp).
    void flow_by(std::unique_ptr<Fluid> fluid);
    Fluid* fluid() const { return fluid_.get(); }

    // Some messages go as copies of memory (copies.hpp).
    void copy_by(std::unique_ptr<Copies> copies);
    bool has_copies() const { return copies_ != nullptr; }
    void copies_fire(Time now);
    // These are complete. A thread of each rank takes what there is for it before those that wait go on.
    void are_copied(const std::vector<int32_t>& messages, Time now) {
        for (int32_t message : messages) {
            has_sent(message, now);
            has_received(message, now);
        }
    }

    // The thread that an end has told that there is room writes on.
    void write_on(Endpoint& end, Time now) {
        while (std::optional<int32_t> message = end.write_on(now))
            if (*message != kNone) has_sent(*message, now);
    }

    // The thread that waits for completions of queue pairs takes what there is (verbs.hpp).
    void take_completions(uint32_t queue, Time now);

    void has_slept(int32_t program, Time now) {
        programs_[size_t(program)].asleep = false;
        advance(program, now);
    }
    // A program that was woken goes on, or lets others go on so many times before.
    void has_turn(int32_t program, int64_t others, Time now) {
        if (others) return net_.at_processes(now, What::kTurn, uint32_t(program), others - 1);
        programs_[size_t(program)].has_turn = false;
        advance(program, now);
    }

  private:
    friend class Copies;
    friend class Fluid;
    friend class Hosts;
    friend class Leaps;
    friend class Stages;
    static constexpr int32_t kDriver = -2;  // in place of a program
    struct Program {
        int64_t at = 0, end = 0;
        int32_t waited = 0;  // of a wait, what is over already
        int32_t step = 0;    // of a kFollow
        bool asleep = false, ended = false;
        bool has_turn = false;  // it is awake, and goes on after those that were woken before
        int32_t begun = -1;  // of a kPost: how many chunks have begun, while it waits for threads that come up
        Time waits_since = -1;  // where hosts take time; -1 while it does not wait
        bool is_in_exchange = false;
        bool waits = false;       // whether the operation is a wait
        bool sends_first = false;
        bool receives_first = false;  // of a wait: they are waited for before sends
        Span<int32_t> sends, receives, marks;  // of a wait, or of a post of a kFollow
        // In a kFollow: how many of the program's messages come before a post and before a wait.
        int32_t posted[2] = {}, awaited[2] = {};
    };
    // Steps that programs go through together. `own` has the messages that each sends, and that each receives, by
    // number; those of one begin at its `begins`.
    struct Steps {
        size_t first, end;
        int32_t program, programs;
        std::vector<int32_t> own[2], begins[2];
        Span<int32_t> of(int direction, int32_t program_number) const {
            size_t member = size_t(program_number - program);
            const std::vector<int32_t>& begin = begins[direction];
            return {own[direction].data() + begin[member], size_t(begin[member + 1] - begin[member])};
        }
    };
    struct Told {
        int32_t message;
        bool is_sent;
    };
    // The way of a pair within a host: the bytes that went over it, and what the other end expects of them.
    struct Within {
        int64_t written_bytes = 0;
        Ring<Expected> expected;
    };
    // kAsked: a receive that was posted ahead of the stage that it is in.
    enum : uint8_t { kPosted = 1, kInvited = 2, kSent = 4, kReceived = 8, kAsked = 16 };
    // kStepSends says of a post that its sends go first.
    enum : int32_t { kStepSends = 1, kStepReceives = 2, kStepWaits = 4, kStepReceivesFirst = 8 };
    struct Slots {
        StartOrder order;
        struct Posted {
            int64_t marks;  // where they are in the code
            int32_t count;
        };
        std::vector<Posted> posted;
    };
    // An entry of such a list; all are in one block.
    struct Watcher {
        int32_t program, next;
    };

    void advance(int32_t program, Time now);
    void run_to_wait(int32_t program, Time now);
    void settle(int32_t program);
    bool is_at_step(Program& program, int32_t number, const Steps& steps);
    void read_steps(const Columns& from);
    bool is_over(int32_t program);
    bool is_over_for_thread(int32_t program, Time now);
    bool post_by_thread(int32_t program, bool sends_first, Span<int32_t> sends, Span<int32_t> receives);
    void start(bool sends_first, Span<int32_t> sends, Span<int32_t> receives, Time now);
    void announce(Span<int32_t> messages, Time now);
    bool send(int32_t pair, int32_t message, bool invites, int64_t size, Time now);
    bool flow(int32_t pair, int32_t message, bool invites, Time now);
    bool is_copied(int32_t message) const;
    void copy(int32_t message, Time now);
    void connect(int32_t pair, Time now);
    // The end that connects, which is that of the higher number, sends first (gloo/transport/tcp/device.cc).
    bool connects(int32_t pair) const { return pairs_[size_t(pair)].source > pairs_[size_t(pair)].destination; }
    int64_t handshake_us(int32_t pair) const;
    int64_t greeting_us(int32_t pair) const;
    bool over_roce(int32_t message) const { return pairs_[size_t(messages_[size_t(message)].pair)].device >= 0; }
    void read_devices(const Columns& from);
    QueuePair& queue_pair(int32_t pair);
    void admit(int32_t message, Time now) {
        const Message& found = messages_[size_t(message)];
        if (is_copied(message)) return copy(message, now);
        if (over_roce(message)) return queue_pair(found.pair).post(message, true, found.size_bytes);
        if (!send(found.pair, message, false, found.written_bytes, now)) return;
        if (reading_) reading_->push_back({message, true});
        else has_sent(message, now);
    }
    void has_been_invited(int32_t message, Time now) {
        messages_[size_t(message)].state |= kInvited;
        if (messages_[size_t(message)].state & kPosted) admit(message, now);
    }
    void has_sent(int32_t message, Time now) {
        messages_[size_t(message)].state |= kSent;
        if (messages_[size_t(message)].sender == kDriver) return driver_->has_sent(message, now);
        wake(messages_[size_t(message)].sender, now);
        tell(messages_[size_t(message)].watched_sent, now);
    }
    void has_received(int32_t message, Time now) {
        messages_[size_t(message)].state |= kReceived;
        ++received_;
        if (leaps) tell_leaps_received(message, now);
        if (!received_ns_.empty()) received_ns_[size_t(message)] = now - begin_ns_;
        if (messages_[size_t(message)].receiver == kDriver) return driver_->has_received(message, now);
        tell(messages_[size_t(message)].watched_received, now);
    }
    void mark(int32_t number, Time now) {
        marked_[size_t(number)] = true;
        tell(watched_[size_t(number)], now);
    }
    void tell(Watchers& watchers, Time now);
    void wake(int32_t program, Time now) {
        Program& found = programs_[size_t(program)];
        if (!found.waits) return;
        if (!takes_turns()) return advance(program, now);
        if (found.has_turn) return;
        int32_t before = found.waited;
        if (!is_over(program) && found.waited == before) return;  // it sleeps on
        found.has_turn = true;
        net_.at_processes(now, What::kTurn, uint32_t(program), 0);
    }
    void tell_leaps_received(int32_t message, Time now);
    void tell_leaps_posted(int32_t message, Time now);
    bool enters_exchange(int32_t program, int64_t at, Time now);
    bool leaves_exchange(int32_t program);
    void has_left_exchange(int32_t program, Time now);
    bool enters_stage(int32_t program, int64_t at, Time now);
    void passes_stage(int32_t program, Time now);
    void watch(Watchers& watchers, int32_t program);
    // Over RoCE a thread's posts are the work of another one, the kernel's worker: whoever is woken goes on in turn.
    bool takes_turns() const { return !devices_.empty() && !has_nodes_ && !hosts_; }
    void sleep(int32_t program, double until) {
        programs_[size_t(program)].asleep = true;
        net_.sleeps_until(Time(std::nearbyint(until)), uint32_t(program));
    }
    bool is_last(int32_t latch) { return !--latches_[size_t(latch)]; }
    bool start_chunks(Slots& slots, Time now, bool lets_others = false);
    void start_chunk(int64_t marks, int32_t count, int32_t chunk, Time now);
    bool lets_others_go_on(int32_t pool, bool& wakes) const;
    bool post(const int32_t* words, int64_t at, Program& program, Time now);
    void ended(const int32_t* words, Time now);
    void impair(int32_t row, Time now);
    void stamp(int32_t number, Time now) {
        if (number != kNone) stamps_[size_t(number)] = now - begin_ns_;
    }
    int64_t length_of(int64_t at) const;

    Network& net_;
    TcpSetting tcp_;
    RoceSetting roce_{};
    std::vector<DeviceSetting> devices_;
    std::vector<CompletionQueue> completions_;
    int64_t preamble_bytes_, greeting_bytes_;
    Time begin_ns_;
    Span<int32_t> code_;
    Span<double> numbers_;
    std::vector<int64_t> handshakes_;  // round trips of each pair, in microseconds: of the handshake, and of the greeting (-1: unknown)
    Span<int64_t> faults_;
    Span<int32_t> pair_places_;  // where the ways of pairs begin, or of each entropy value of each pair
    std::vector<Pair> pairs_;
    std::unordered_map<uint32_t, Within> within_;  // by pair
    std::vector<uint32_t> value_routes_;  // of each entropy value of each pair
    std::vector<Message> messages_;
    std::vector<int32_t> free_messages_;  // of the driver
    std::vector<int64_t> posted_ns_, received_ns_;
    size_t received_ = 0;
    Driver* driver_ = nullptr;
    std::vector<bool> marked_;
    std::vector<Program> programs_;
    std::vector<Steps> steps_;
    Span<int32_t> step_kind_;
    Span<int64_t> step_first_, step_end_;
    std::vector<Watchers> watched_;  // of marks
    std::vector<Watcher> watchers_;
    int32_t free_watcher_ = -1;
    std::deque<int32_t> ready_;
    std::vector<Told>* reading_ = nullptr;
    bool has_nodes_;
    size_t left_;
    bool is_endless_ = false;
    std::vector<int64_t> stamps_;
    std::vector<int32_t> latches_;
    std::vector<double> late_ns_, free_ns_;
    std::vector<int32_t> idle_;  // threads of each pool
    std::vector<int64_t> meetings_, proposals_, places_;
    std::vector<Slots> slots_;
    std::vector<int32_t> granted_;  // the mark of each stream
    std::unique_ptr<StreamQueues> streams_;
    std::unique_ptr<Copies> copies_;
    std::unique_ptr<Fluid> fluid_;
    std::unique_ptr<Hosts> hosts_;
    Time now_ = 0;
};

inline Programs::Programs(const Columns& from, Network& network, const TcpSetting& tcp)
    : net_(network),
      tcp_(tcp),
      preamble_bytes_(from.number("preamble_bytes")),
      greeting_bytes_(from.number("greeting_bytes")),
      begin_ns_(from.number("begin_ns")),
      code_(from.shorts("program.code")),
      numbers_(from.floats("program.numbers")),
      faults_(from.ints("fault.rows")),
      pair_places_(from.shorts("pair.place")),
      has_nodes_(from.number("has_nodes")) {
    auto source = from.shorts("pair.source"), destination = from.shorts("pair.destination");
    auto reverse = from.shorts("pair.reverse"), links = from.shorts("pair.links");
    auto first_link = from.ints("pair.first_link"), base_ns = from.ints("pair.base_ns");
    auto device = from.shorts("pair.device"), completions = from.shorts("pair.completions");
    auto selector = from.shorts("pair.selector"), hops = from.shorts("pair.hops"), mss = from.shorts("pair.mss");
    size_t words = net_.ports.size() + from.shorts("choice.switch").size;
    size_t count = source.size;
    if (destination.size != count || reverse.size != count || base_ns.size != count ||
        device.size != count || completions.size != count || selector.size != count ||
        hops.size != count || mss.size != count || first_link.size != count + 1)
        throw BadScenario("pair: the columns differ in length");
    if (from.has("pair.handshakes")) {
        auto told = from.ints("pair.handshakes");
        handshakes_.assign(told.begin(), told.end());
    }
    if (!handshakes_.empty() && handshakes_.size() != 2 * count)
        throw BadScenario("pair: the columns differ in length");
    uint32_t before = uint32_t(net_.links.size());
    for (int32_t link : links) {
        if (link < 0 || size_t(link) >= words)
            throw BadScenario("pair.links: found link " + std::to_string(link) + ", allowed up to " + std::to_string(words));
        net_.links.push_back(uint32_t(link));
    }
    for (size_t i = 0; i < count; ++i) {
        if (hops[i] < 0 || hops[i] > 255 || (hops[i] > 0) != (first_link[i + 1] > first_link[i]))
            throw BadScenario("pair.hops: found a path of " + std::to_string(hops[i]) + " links, allowed 0 to 255");
        pairs_.push_back({source[i], destination[i], reverse[i], before + uint32_t(first_link[i]), uint8_t(hops[i]), base_ns[i],
                          device[i], completions[i], uint8_t(selector[i]), mss[i]});
    }
    auto value_links = from.shorts("value.links");
    auto first_value_link = from.ints("value.first_link");
    before = uint32_t(net_.links.size());
    for (int32_t link : value_links) {
        if (link < 0 || size_t(link) >= net_.ports.size())
            throw BadScenario("value.links: found link " + std::to_string(link));
        net_.links.push_back(uint32_t(link));
    }
    for (size_t i = 0; i + 1 < first_value_link.size; ++i) value_routes_.push_back(before + uint32_t(first_value_link[i]));
    net_.endpoints.assign(count, nullptr);
    net_.queue_pairs.assign(count, nullptr);
    read_devices(from);

    auto pair = from.shorts("message.pair"), sender = from.shorts("message.sender");
    auto receiver = from.shorts("message.receiver");
    auto size_bytes = from.ints("message.bytes");
    auto header_bytes = from.shorts("message.header"), announced = from.shorts("message.announced");
    auto asked_bytes = from.ints("message.asked");
    messages_.reserve(pair.size);
    for (size_t i = 0; i < pair.size; ++i)
        messages_.push_back({size_bytes[i], size_bytes[i] + header_bytes[i], asked_bytes[i], pair[i], sender[i], receiver[i],
                             {}, {}, announced[i] != 0, 0});
    if (from.number("keeps_messages")) {
        posted_ns_.assign(messages_.size(), -1);
        received_ns_.assign(messages_.size(), -1);
    }

    auto first = from.ints("program.first");
    for (size_t i = 0; i + 1 < first.size; ++i) programs_.emplace_back().at = first[i], programs_.back().end = first[i + 1];
    left_ = programs_.size();
    read_steps(from);
    for (size_t i = 0; i < programs_.size(); ++i) settle(int32_t(i));
    size_t marks = size_t(from.number("marks"));
    marked_.assign(marks, false);
    watched_.resize(marks);
    stamps_.assign(size_t(from.number("stamps")), -1);
    auto latches = from.shorts("latches");
    latches_.assign(latches.begin(), latches.end());
    late_ns_.assign(size_t(from.number("lates")), 0.0);
    free_ns_.assign(size_t(from.number("units")), 0.0);
    idle_.assign(size_t(from.number("pools")), 0);
    meetings_.assign(size_t(from.number("meetings")), 0);
    proposals_.assign(size_t(from.number("proposals")), 0);
    places_.assign(size_t(from.number("places")), 0);
    auto order = from.ints("slots.order"), in_flight = from.ints("slots.in_flight");
    for (size_t i = 0; i < order.size; ++i) slots_.push_back({StartOrder(Order(order[i]), in_flight[i]), {}});
    auto granted = from.shorts("stream.granted"), locks = from.shorts("stream.locks");
    auto first_lock = from.ints("stream.first_lock");
    granted_.assign(granted.begin(), granted.end());
    std::vector<std::vector<int32_t>> locks_of(granted.size);
    size_t most = 0;
    for (size_t i = 0; i < granted.size; ++i)
        for (int64_t k = first_lock[i]; k < first_lock[i + 1]; ++k) {
            locks_of[i].push_back(locks[size_t(k)]);
            most = std::max(most, size_t(locks[size_t(k)]) + 1);
        }
    streams_ = std::make_unique<StreamQueues>(std::move(locks_of), most,
                                              [this](int32_t stream) { mark(granted_[size_t(stream)], now_); });
}

// Runs a member's program up to the first wait that is not satisfied, and then those that it woke: one thread
// runs at a time, until it waits.
inline void Programs::advance(int32_t program, Time now) {
    if (takes_turns()) {
        run_to_wait(program, now);
    } else {
        ready_.push_back(program);
        if (ready_.size() == 1) {
            while (!ready_.empty()) {
                int32_t first = ready_.front();
                if (first < 0) ready_.push_back(~first);  // a new thread has come up, for which it waited
                else run_to_wait(first, now);
                ready_.pop_front();
            }
        }
    }
    Program& found = programs_[size_t(program)];
    if (!found.ended && found.at == found.end) {
        found.ended = true;
        --left_;
    }
}

inline int64_t Programs::length_of(int64_t at) const {
    const int32_t* words = &code_[size_t(at)];
    switch (Operation(words[0])) {
        case Operation::kStart:
            return 4 + words[2] + words[3];
        case Operation::kAwait:
            return 4 + words[1] + words[2] + words[3];
        case Operation::kMark:
        case Operation::kPause:
        case Operation::kSleepMeeting:
        case Operation::kStamp:
        case Operation::kFollow:
        case Operation::kImpair:
        case Operation::kReroute:
        case Operation::kRepeat:
            return 2;
        case Operation::kSleepLate:
        case Operation::kSetLate:
            return 3;
        case Operation::kOccupy:
        case Operation::kPropose:
            return 4;
        case Operation::kPost: {
            int64_t streams = words[8];
            int64_t marks = words[9 + streams];
            return 11 + streams + marks * (words[10 + streams + marks] == kNone ? 1 : 2);
        }
        case Operation::kEnded:
            return 7;
        case Operation::kAgreed:
            return 5;
        case Operation::kPassedOn:
            return 5 + words[4];
    }
    throw BadScenario("program.code: found operation " + std::to_string(words[0]));
}

inline void Programs::run_to_wait(int32_t number, Time now) {
    if (programs_[size_t(number)].asleep) return;
    now_ = now;
    Program& program = programs_[size_t(number)];
    while (program.at < program.end) {
        int64_t at = program.at;
        const int32_t* words = &code_[size_t(at)];
        Operation operation = Operation(words[0]);
        bool waits = program.waits;
        if (leaps && enters_exchange(number, at, now)) return;
        if (stages && enters_stage(number, at, now)) return;
        if (waits && !(hosts_ ? is_over_for_thread(number, now) : is_over(number))) break;
        Span<int32_t> sends = program.sends, receives = program.receives;
        bool sends_first = program.sends_first;
        // The next operation may come back here, and must find this operation behind it.
        if (operation == Operation::kFollow) ++program.step;
        else program.at += length_of(at);
        settle(number);
        bool is_through = leaps && leaves_exchange(number);
        switch (operation) {
            case Operation::kFollow:
                if (waits) break;
                if (!hosts_) start(sends_first, sends, receives, now);
                else if (!post_by_thread(number, sends_first, sends, receives)) return;
                break;
            case Operation::kStart: {
                size_t sent = size_t(words[2]), received = size_t(words[3]);
                sends = {words + 4, sent};
                receives = {words + 4 + sent, received};
                if (!hosts_) start(words[1], sends, receives, now);
                else if (!post_by_thread(number, words[1], sends, receives)) return;
                break;
            }
            case Operation::kAwait:
                break;
            case Operation::kMark:
                mark(words[1], now);
                break;
            case Operation::kPause:
                return sleep(number, double(now) + numbers_[size_t(words[1])]);
            case Operation::kSleepLate: {
                double until = double(begin_ns_) + numbers_[size_t(words[1])] + late_ns_[size_t(words[2])];
                program.asleep = true;
                return net_.goes_on_at(std::max(now, Time(std::nearbyint(until))), uint32_t(number));
            }
            case Operation::kSleepMeeting:
                return sleep(number, double(std::max(now, meetings_[size_t(words[1])])));
            case Operation::kOccupy: {
                double& free_ns = free_ns_[size_t(words[1])];
                double duration_ns = numbers_[size_t(words[2])];
                double begins = std::max(double(now), free_ns);
                free_ns = begins + duration_ns;
                return sleep(number, begins + duration_ns + numbers_[size_t(words[3])]);
            }
            case Operation::kStamp:
                stamp(words[1], now);
                break;
            case Operation::kImpair:
                impair(words[1], now);
                break;
            case Operation::kReroute:
                reroute(words[1]);
                break;
            case Operation::kRepeat:
                program.at = at - words[1];
                settle(number);
                if (!program.ended) {
                    program.ended = is_endless_ = true;
                    --left_;
                }
                break;
            case Operation::kSetLate:
                late_ns_[size_t(words[1])] = std::max(0.0, double(now - begin_ns_) - numbers_[size_t(words[2])]);
                break;
            case Operation::kPropose: {
                double grid = numbers_[size_t(words[3])];
                double steps = std::ceil((double(now) + numbers_[size_t(words[2])]) / grid);
                int64_t& meeting = meetings_[size_t(words[1])];
                meeting = std::max(meeting, int64_t(steps) * int64_t(grid));
                break;
            }
            case Operation::kPost:
                if (post(words, at, program, now)) break;
                program.at = at;
                settle(number);
                if (takes_turns()) {
                    program.has_turn = true;
                    net_.at_processes(now, What::kTurn, uint32_t(number), 1);
                } else {
                    ready_.push_back(~number);
                }
                return;
            case Operation::kEnded:
                ended(words, now);
                break;
            case Operation::kAgreed:
                if (is_last(words[1])) {
                    Slots& slots = slots_[size_t(words[2])];
                    slots.order.agree(int32_t(places_[size_t(words[3])]), proposals_[size_t(words[4])]);
                    start_chunks(slots, now);
                }
                break;
            case Operation::kPassedOn:
                if (is_last(words[1])) {
                    mark(words[2], now);
                    if (words[3] != kNone) {
                        now_ = now;
                        streams_->give_back(words[3]);
                        for (int32_t i = 0; i < words[4]; ++i) streams_->ask(words[5 + i]);
                    }
                }
                break;
        }
        if (is_through) has_left_exchange(number, now);
        if (stages) passes_stage(number, now);
    }
}

// Finds out what an operation is that a program has come to. Steps in which it has no part are passed by.
inline void Programs::settle(int32_t number) {
    Program& program = programs_[size_t(number)];
    program.waited = 0;
    program.waits = false;
    while (program.at < program.end) {
        const int32_t* words = &code_[size_t(program.at)];
        Operation operation = Operation(words[0]);
        if (operation == Operation::kAwait) {
            size_t sends = size_t(words[1]), receives = size_t(words[2]);
            program.sends = {words + 4, sends};
            program.receives = {words + 4 + sends, receives};
            program.marks = {words + 4 + sends + receives, size_t(words[3])};
            program.waits = true;
            program.receives_first = false;
        }
        if (operation != Operation::kFollow || is_at_step(program, number, steps_[size_t(words[1])])) return;
        program.at += length_of(program.at);
    }
}

inline bool Programs::is_over(int32_t number) {
    Program& program = programs_[size_t(number)];
    int32_t sends = int32_t(program.sends.size), receives = int32_t(program.receives.size);
    int32_t marks = int32_t(program.marks.size);
    int32_t& place = program.waited;  // what was over stays so
    int32_t sends_from = program.receives_first ? receives : 0, sends_end = sends_from + sends;
    for (; place < sends + receives; ++place) {
        if (place >= sends_from && place < sends_end) {
            Message& message = messages_[size_t(program.sends[size_t(place - sends_from)])];
            if (message.state & kSent) continue;
            if (message.sender != number) watch(message.watched_sent, number);
            return false;
        }
        int32_t before = sends_from ? 0 : sends;
        Message& message = messages_[size_t(program.receives[size_t(place - before)])];
        if (message.state & kReceived) continue;
        watch(message.watched_received, number);
        return false;
    }
    for (; place < sends + receives + marks; ++place) {
        int32_t mark = program.marks[size_t(place - sends - receives)];
        if (marked_[size_t(mark)]) continue;
        watch(watched_[size_t(mark)], number);
        return false;
    }
    return true;
}

inline void Programs::watch(Watchers& watchers, int32_t program) {
    int32_t made = free_watcher_;
    if (made >= 0) {
        free_watcher_ = watchers_[size_t(made)].next;
        watchers_[size_t(made)] = {program, -1};
    } else {
        made = int32_t(watchers_.size());
        watchers_.push_back({program, -1});
    }
    if (watchers.last >= 0) watchers_[size_t(watchers.last)].next = made;
    else watchers.first = made;
    watchers.last = made;
}

// The program that waited first goes on first, as it holds the lock of what all of them wait for.
inline void Programs::tell(Watchers& watchers, Time now) {
    if (watchers.first < 0) return;
    std::vector<int32_t> waited;
    for (int32_t i = watchers.first; i >= 0;) {
        Watcher each = watchers_[size_t(i)];
        if (std::find(waited.begin(), waited.end(), each.program) == waited.end()) waited.push_back(each.program);
        watchers_[size_t(i)].next = free_watcher_;
        free_watcher_ = i;
        i = each.next;
    }
    watchers = {};
    if (has_nodes_) std::sort(waited.begin(), waited.end());
    for (int32_t program : waited) wake(program, now);
}

inline void Programs::start(bool sends_first, Span<int32_t> sends, Span<int32_t> receives, Time now) {
    if (sends_first) announce(sends, now);
    for (int32_t each : receives) {
        const Message& message = messages_[size_t(each)];
        if ((leaps || stages) && message.state & (kReceived | kAsked)) continue;  // in a leap, or posted ahead
        int32_t back = pairs_[size_t(message.pair)].reverse;
        if (is_copied(each)) has_been_invited(each, now);  // which takes no time
        else if (over_roce(each)) queue_pair(back).post(each, false, kCreditPayloadBytes);
        else if (message.announced) send(back, each, true, preamble_bytes_, now);
    }
    if (!sends_first) announce(sends, now);
}

// A message that is invited already goes before the next one is announced.
inline void Programs::announce(Span<int32_t> messages, Time now) {
    for (int32_t each : messages) {
        Message& message = messages_[size_t(each)];
        if (leaps && message.state & kReceived) continue;
        if (leaps) tell_leaps_posted(each, now);
        if (message.announced && !over_roce(each) && !is_copied(each)) send(message.pair, kNone, false, preamble_bytes_, now);
        message.state |= kPosted;
        if (!posted_ns_.empty()) posted_ns_[size_t(each)] = now - begin_ns_;
        if (message.state & kInvited || (!message.announced && !is_copied(each))) admit(each, now);
    }
}

// A message, or what announces or invites it; a number of none is a notice that nobody waits for. Whether all of
// it is written.
inline bool Programs::send(int32_t pair, int32_t message, bool invites, int64_t size, Time now) {
    if (!pairs_[size_t(pair)].hops) {
        if (message != kNone) {
            Within& way = within_[uint32_t(pair)];
            way.written_bytes += size;
            way.expected.push_back({way.written_bytes, message, invites});
            net_.at_processes(now, What::kReadWithin, uint32_t(pair), way.written_bytes);
        }
        return true;
    }
    if (fluid_) return flow(pair, message, invites, now);
    if (!net_.endpoints[size_t(pair)]) connect(pair, now);
    Endpoint& end = *net_.endpoints[size_t(pair)];
    if (message != kNone) net_.endpoints[end.peer]->expected.push_back({end.stream_end() + size, message, invites});
    if (message != kNone && !invites) {
        int64_t asked = messages_[size_t(message)].asked_bytes;
        if (asked) end.ask_for_send_buffer(asked);
    }
    return end.write(size, invites ? kNone : message, now);
}

inline void Programs::connect(int32_t pair, Time now) {
    int32_t numbers[2] = {pair, pairs_[size_t(pair)].reverse};
    Endpoint* made[2];
    for (int i = 0; i < 2; ++i) {
        const Pair& of = pairs_[size_t(numbers[i])];
        made[i] = new Endpoint(net_, uint32_t(numbers[i]), tcp_, of.mss, handshake_us(numbers[i]), !connects(numbers[i]));
        made[i]->route = of.route;
        made[i]->hops = of.hops;
        made[i]->selector = of.selector;
        net_.endpoints[size_t(numbers[i])] = made[i];
    }
    made[0]->connect(*made[1]);
    int first = connects(numbers[1]);
    made[first]->greet(*made[!first], greeting_bytes_, greeting_us(numbers[first]), now);
}

inline void Programs::shook_hands(int32_t pair, int64_t handshake_us, int64_t greeting_us, Time now) {
    if (handshakes_.empty()) handshakes_.resize(2 * pairs_.size(), -1);
    handshakes_[2 * size_t(pair)] = handshake_us;
    handshakes_[2 * size_t(pair) + 1] = greeting_us;
    Endpoint* end = net_.endpoints[size_t(pair)];
    bool greets = connects(pair);
    if (end && end->stream_end() == (greets ? greeting_bytes_ : 0))
        end->begin_anew(tcp_, this->handshake_us(pair), greets ? this->greeting_us(pair) : -1, now);
}

// As the end of a pair has been told; else the round trip of an idle fabric.
inline int64_t Programs::handshake_us(int32_t pair) const {
    int64_t told_us = handshakes_.empty() ? -1 : handshakes_[2 * size_t(pair)];
    return told_us >= 0 ? told_us : std::max<int64_t>(1, (pairs_[size_t(pair)].base_ns + 500) / 1000);
}

inline int64_t Programs::greeting_us(int32_t pair) const {
    int64_t told_us = handshakes_.empty() ? -1 : handshakes_[2 * size_t(pair) + 1];
    return told_us >= 0 ? told_us : handshake_us(pair);
}

// Starts chunks by marks, as there are slots for them. False where threads that are awake go on before the next one
// starts, which is only asked with `lets_others`.
inline bool Programs::start_chunks(Slots& slots, Time now, bool lets_others) {
    bool wakes = false;
    for (;;) {
        if (lets_others && slots.order.starts()) {
            const Slots::Posted& first = slots.posted[size_t(slots.order.starts()->collective)];
            if (lets_others_go_on(code_[size_t(first.marks + first.count)], wakes)) return false;
        }
        auto next = slots.order.next();
        if (!next) return true;
        const Slots::Posted& posted = slots.posted[size_t(next->collective)];
        start_chunk(posted.marks, posted.count, int32_t(next->chunk), now);
    }
}

// A chunk of a program takes a thread that is idle, which wakes its helpers itself. Where there is none, a new one
// comes up, and its helpers with it, before the rank goes on.
inline void Programs::start_chunk(int64_t marks, int32_t count, int32_t chunk, Time now) {
    mark(code_[size_t(marks + chunk)], now);
    int32_t pool = code_[size_t(marks + count)];
    if (pool == kNone) return;
    int32_t& idle = idle_[size_t(pool)];
    if (idle) --idle;
    else mark(code_[size_t(marks + count + 1 + chunk)], now);
}

// Whether the rank waits before it starts the next chunk: for a new thread that comes up, while threads that it woke
// before, and then their helpers, go on (threading.Thread.start).
inline bool Programs::lets_others_go_on(int32_t pool, bool& wakes) const {
    if (pool == kNone) return false;
    bool takes_idle = idle_[size_t(pool)], waits = wakes && !takes_idle;
    wakes = takes_idle || takes_turns();
    return waits;
}

// Posts a collective. False where the rank goes on with it once others have gone on.
inline bool Programs::post(const int32_t* words, int64_t at, Program& program, Time now) {
    int32_t streams = words[8], marks = words[9 + streams];
    int64_t first_mark = at + 10 + streams;
    int32_t begun = std::exchange(program.begun, -1);
    if (begun < 0) {
        stamp(words[1], now);
        if (words[7] != kNone) {
            mark(words[7], now);
            now_ = now;
            for (int32_t i = 0; i < streams; ++i) streams_->ask(words[9 + i]);
        }
    }
    if (words[2] == kNone) {
        bool wakes = false;
        for (int32_t i = std::max(begun, 0); i < marks; ++i) {
            if (lets_others_go_on(code_[size_t(first_mark + marks)], wakes)) {
                program.begun = i;
                return false;
            }
            start_chunk(first_mark, marks, i, now);
        }
        return true;
    }
    Slots& slots = slots_[size_t(words[2])];
    if (begun < 0) {
        slots.posted.push_back({first_mark, marks});
        int64_t proposal = slots.order.post(words[3], marks);
        if (slots.order.agrees()) {
            int64_t& highest = proposals_[size_t(words[4])];
            highest = std::max(highest, proposal);
            places_[size_t(words[5])] = int64_t(slots.posted.size()) - 1;
            mark(words[6], now);
        }
    }
    if (start_chunks(slots, now, true)) return true;
    program.begun = 0;
    return false;
}

inline void Programs::ended(const int32_t* words, Time now) {
    if (!is_last(words[1])) return;
    bool over = is_last(words[2]);
    if (over) stamp(words[3], now);
    if (words[6] != kNone) ++idle_[size_t(words[6])];
    if (words[4] != kNone) {
        Slots& slots = slots_[size_t(words[4])];
        slots.order.complete();
        start_chunks(slots, now);
    }
    if (over) mark(words[5], now);
}
