// SPDX-License-Identifier: GPL-2.0-only
// Hosts whose processors take time: the threads of ranks that post, and those that Gloo moves bytes with, pay for what
// emulator/host_time/charging.c charges them. They do what gloo/transport/tcp has them do (pair.cc: send, recv,
// handleReadWrite, read, write; loop.cc: run), call by call. Each thread is a coroutine, which waits where it sleeps.
#pragma once
#include <coroutine>
#include <deque>
#include <exception>
#include <utility>
#include <vector>

#include "endpoint.hpp"
#include "programs.hpp"

// A thread, which goes on by itself.
struct Thread {
    struct promise_type {
        Thread get_return_object() { return {}; }
        std::suspend_never initial_suspend() noexcept { return {}; }
        std::suspend_never final_suspend() noexcept { return {}; }
        void return_void() {}
        void unhandled_exception() { std::terminate(); }
    };
};

// A function of a thread that may sleep, and answers yes or no.
class Calls {
  public:
    struct promise_type;
    using Handle = std::coroutine_handle<promise_type>;
    struct promise_type {
        std::coroutine_handle<> caller;
        bool answer = false;
        struct Returns {
            bool await_ready() noexcept { return false; }
            std::coroutine_handle<> await_suspend(Handle from) noexcept { return from.promise().caller; }
            void await_resume() noexcept {}
        };
        Calls get_return_object() { return Calls(Handle::from_promise(*this)); }
        std::suspend_always initial_suspend() noexcept { return {}; }
        Returns final_suspend() noexcept { return {}; }
        void return_value(bool value) { answer = value; }
        void unhandled_exception() { std::terminate(); }
    };
    explicit Calls(Handle handle) : handle_(handle) {}
    Calls(const Calls&) = delete;
    Calls& operator=(const Calls&) = delete;
    ~Calls() { handle_.destroy(); }
    bool await_ready() { return false; }
    std::coroutine_handle<> await_suspend(std::coroutine_handle<> caller) {
        handle_.promise().caller = caller;
        return handle_;
    }
    bool await_resume() { return handle_.promise().answer; }

  private:
    Handle handle_;
};

class Hosts {
  public:
    Hosts(const Columns& from, Network& network, Programs& programs);

    // A program's thread posts messages one after the other. Whether it is through by now; else the program goes on
    // later (Programs::has_slept).
    bool post(int32_t program, bool sends_first, Span<int32_t> sends, Span<int32_t> receives);
    // A program's thread is woken. Whether that takes time; the program goes on after it.
    bool wakes(int32_t program);
    // Bytes have come to an end, or its send buffer has room.
    void has_events(uint32_t end);
    // The thread that has waited at a place goes on.
    void goes_on(uint32_t place) {
        std::coroutine_handle<> thread = waiting_[place];
        free_places_.push_back(place);
        thread.resume();
    }

  private:
    static constexpr int64_t kPiece = 65536;  // PIECE of charging.c
    struct Lock {
        bool taken = false;
        std::deque<std::coroutine_handle<>> waiting;
    };
    struct Outgoing {
        int64_t left_bytes;
        int32_t message;  // kNone for a notice
    };
    // A connection as one of its ends has it.
    struct Line {
        Lock lock;
        std::deque<Outgoing> unsent;
        int64_t promised = 0;  // where the stream ends with all that is to be written
        int64_t begin = 0;     // where what is being read begins
        bool is_ready = false, is_asked_for = false;
    };
    // The thread that waits for the events of an end's connections, and what locks the state that they share.
    struct Device {
        bool polls = false;
        Lock context;
        std::vector<uint32_t> ready;
        std::coroutine_handle<> idle;
    };
    struct Event {
        uint32_t number;
        bool has_room, has_come;
    };
    struct Charge {
        Hosts& hosts;
        int32_t host;
        int64_t cost_ns;
        bool await_ready() const { return cost_ns <= 0; }
        void await_suspend(std::coroutine_handle<> thread) {
            hosts.net_.sleeps_until(hosts.is_busy_until(host, cost_ns), hosts.keep(thread), What::kHost);
        }
        void await_resume() {}
    };
    struct Acquire {
        Lock& lock;
        bool await_ready() { return !std::exchange(lock.taken, true); }
        void await_suspend(std::coroutine_handle<> thread) { lock.waiting.push_back(thread); }
        void await_resume() {}
    };
    struct Idle {
        Device& device;
        bool await_ready() const { return !device.ready.empty(); }
        void await_suspend(std::coroutine_handle<> thread) { device.idle = thread; }
        void await_resume() {}
    };

    Thread posting(int32_t program, bool sends_first, Span<int32_t> sends, Span<int32_t> receives);
    Thread waking(int32_t program);
    Thread polling(uint32_t end);
    Calls post_send(int32_t message, int32_t host);
    Calls post_receive(int32_t message, int32_t host);
    Calls give(uint32_t number, int32_t host, int64_t size_bytes, int32_t message, bool invites);
    Calls write(uint32_t number, int32_t host, Outgoing& what);
    Calls read(uint32_t number, int32_t host);
    Calls handle(Event event, int32_t host);

    Time now() const { return net_.now_ns; }
    Charge charge(int32_t host, int64_t cost_ns) { return {*this, host, cost_ns}; }
    int64_t copying_ns(int64_t size) const { return copy_rate_ ? int64_t(double(size) * 1e9 / double(copy_rate_)) : 0; }
    Time is_busy_until(int32_t host, int64_t cost_ns);
    uint32_t keep(std::coroutine_handle<> thread);
    void resume(std::coroutine_handle<> thread) { net_.at_processes(now(), What::kHost, keep(thread), 0); }
    void release(Lock& lock) {
        if (lock.waiting.empty()) {
            lock.taken = false;
            return;
        }
        resume(lock.waiting.front());
        lock.waiting.pop_front();
    }
    void release(uint32_t number);
    Endpoint& end_of(uint32_t number) { return *net_.endpoints[number]; }
    void connect(int32_t pair);
    void is_written(const Outgoing& what) {
        if (what.message != Programs::kNone) programs_.has_sent(what.message, now());
    }

    Network& net_;
    Programs& programs_;
    int64_t syscall_ns_, wakeup_ns_, packet_ns_, copy_rate_;
    Span<int32_t> host_of_program_, host_of_pair_;
    std::vector<std::vector<Time>> busy_until_;  // of each core of each host; none where there is any number
    std::vector<Line> lines_;                    // by pair
    std::vector<Device> devices_;                // by end
    std::vector<std::coroutine_handle<>> waiting_;
    std::vector<uint32_t> free_places_;
    int32_t begins_ = Programs::kNone;  // the program that posts for the first time just now
    bool is_through_ = false;
};

inline Hosts::Hosts(const Columns& from, Network& network, Programs& programs)
    : net_(network),
      programs_(programs),
      host_of_program_(from.shorts("host.of_program")),
      host_of_pair_(from.shorts("host.of_pair")),
      lines_(programs.pairs()) {
    auto costs = from.ints("host.costs");
    if (costs.size != 5) throw BadScenario("host.costs: found " + std::to_string(costs.size) + " numbers, allowed 5");
    syscall_ns_ = costs[0], wakeup_ns_ = costs[1], packet_ns_ = costs[2], copy_rate_ = costs[3];
    if (host_of_pair_.size != programs.pairs()) throw BadScenario("host.of_pair: the column differs in length from pairs");
    size_t ends = 0, hosts = 0;
    for (uint32_t i = 0; i < programs.pairs(); ++i) {
        if (!programs.pair(i).hops) throw BadScenario("host.of_pair: found a pair within a host");
        ends = std::max(ends, size_t(programs.pair(i).source) + 1);
        hosts = std::max(hosts, size_t(host_of_pair_[i]) + 1);
    }
    for (int32_t each : host_of_program_) hosts = std::max(hosts, size_t(each) + 1);
    busy_until_.assign(hosts, std::vector<Time>(size_t(costs[4]), 0));
    devices_ = std::vector<Device>(ends);
}

// As of charge of charging.c: the core that is free first is taken.
inline Time Hosts::is_busy_until(int32_t host, int64_t cost_ns) {
    std::vector<Time>& cores = busy_until_[size_t(host)];
    if (cores.empty()) return now() + cost_ns;
    Time& first = *std::min_element(cores.begin(), cores.end());
    return first = std::max(now(), first) + cost_ns;
}

inline uint32_t Hosts::keep(std::coroutine_handle<> thread) {
    if (free_places_.empty()) {
        waiting_.push_back(thread);
        return uint32_t(waiting_.size()) - 1;
    }
    uint32_t place = free_places_.back();
    free_places_.pop_back();
    waiting_[place] = thread;
    return place;
}

inline void Hosts::connect(int32_t pair) {
    if (net_.endpoints[size_t(pair)]) return;
    programs_.connect(pair, now());
    for (int32_t number : {pair, programs_.pair(uint32_t(pair)).reverse}) {
        Endpoint& end = end_of(uint32_t(number));
        end.read_late();
        Line& line = lines_[size_t(number)];
        line.promised = end.write_seq;
        line.begin = end.rcv_nxt;
        polling(uint32_t(number));
    }
}

inline bool Hosts::post(int32_t program, bool sends_first, Span<int32_t> sends, Span<int32_t> receives) {
    begins_ = program;
    is_through_ = false;
    posting(program, sends_first, sends, receives);
    begins_ = Programs::kNone;
    return is_through_;
}

inline Thread Hosts::posting(int32_t program, bool sends_first, Span<int32_t> sends, Span<int32_t> receives) {
    int32_t host = host_of_program_[size_t(program)];
    for (int part = 0; part < 2; ++part) {
        bool sending = sends_first == !part;
        for (int32_t message : sending ? sends : receives) {
            if (sending) co_await post_send(message, host);
            else co_await post_receive(message, host);
        }
    }
    if (begins_ == program) is_through_ = true;
    else programs_.has_slept(program, now());
}

inline bool Hosts::wakes(int32_t program) {
    if (!wakeup_ns_) return false;
    waking(program);
    return true;
}

inline Thread Hosts::waking(int32_t program) {
    co_await charge(host_of_program_[size_t(program)], wakeup_ns_);
    programs_.has_slept(program, now());
}

// As of Pair::send of an unbound buffer.
inline Calls Hosts::post_send(int32_t number, int32_t host) {
    Message& message = programs_.messages_[size_t(number)];
    uint32_t pair = uint32_t(message.pair);
    connect(message.pair);
    Lock& context = devices_[size_t(programs_.pair(pair).source)].context;
    co_await Acquire{lines_[pair].lock};
    co_await Acquire{context};
    bool goes = message.state & Programs::kInvited || !message.announced;
    message.state |= Programs::kPosted;
    if (!programs_.posted_ns_.empty()) programs_.posted_ns_[size_t(number)] = now() - programs_.begin_ns_;
    if (message.announced) co_await give(pair, host, programs_.preamble_bytes_, Programs::kNone, false);
    if (goes) co_await give(pair, host, message.written_bytes, number, false);
    release(context);
    release(pair);
    co_return true;
}

// As of Pair::recv.
inline Calls Hosts::post_receive(int32_t number, int32_t host) {
    const Message& message = programs_.messages_[size_t(number)];
    if (!message.announced) co_return true;
    uint32_t back = uint32_t(programs_.pair(uint32_t(message.pair)).reverse);
    connect(message.pair);
    Lock& context = devices_[size_t(programs_.pair(back).source)].context;
    co_await Acquire{lines_[back].lock};
    co_await Acquire{context};
    co_await give(back, host, programs_.preamble_bytes_, number, true);
    release(context);
    release(back);
    co_return true;
}

// As of Pair::sendAsyncMode, whose thread has the connection's lock.
inline Calls Hosts::give(uint32_t number, int32_t host, int64_t size_bytes, int32_t message, bool invites) {
    Line& line = lines_[number];
    line.promised += size_bytes;
    end_of(end_of(number).peer).expected.push_back({line.promised, message, invites});
    Outgoing what{size_bytes, invites ? Programs::kNone : message};
    if (line.unsent.empty() && co_await write(number, host, what)) is_written(what);
    else line.unsent.push_back(what);
    co_return true;
}

// As of Pair::write, by calls as charging.c cuts them: a piece is copied where there is room, and then sent.
inline Calls Hosts::write(uint32_t number, int32_t host, Outgoing& what) {
    Endpoint& end = end_of(number);
    bool in_call = false;
    while (what.left_bytes) {
        int64_t next = std::min(what.left_bytes, kPiece), sent;
        if (end.has_room()) {
            co_await charge(host, (in_call ? 0 : syscall_ns_) + copying_ns(next));
            sent = next - end.put(next, now());
            in_call = sent == next;
        } else {
            in_call = false;
            sent = next - end.put(next, now());
            if (sent) co_await charge(host, syscall_ns_ + copying_ns(sent));
        }
        what.left_bytes -= sent;
        if (!sent) co_return false;
    }
    co_return true;
}

// As of Pair::read: whether something has come to its end.
inline Calls Hosts::read(uint32_t number, int32_t host) {
    Endpoint& end = end_of(number);
    Line& line = lines_[number];
    int64_t wanted = programs_.preamble_bytes_;  // before its bytes, which may follow
    for (;;) {
        Expected what{line.begin + wanted, Programs::kNone, false};
        if (!end.expected.empty()) what = end.expected.front();
        bool has_payload = what.message != Programs::kNone && !what.invites;
        if (has_payload) {
            const Message& message = programs_.messages_[size_t(what.message)];
            wanted = message.written_bytes - message.size_bytes;
        }
        int64_t got = end.read() - line.begin, left = (got < wanted ? line.begin + wanted : what.received) - end.read();
        int64_t taken = end.take_in(left, now());
        if (!taken) {
            co_await charge(host, syscall_ns_);
            co_return false;
        }
        int64_t packets = (taken + end.mss - 1) / end.mss;
        co_await charge(host, syscall_ns_ + copying_ns(taken) + packet_ns_ * packets);
        if (end.read() < what.received) continue;
        line.begin = what.received;
        end.expected.pop_front();
        if (has_payload) {
            programs_.has_received(what.message, now());
            co_return true;
        }
        Lock& context = devices_[size_t(programs_.pair(number).source)].context;
        if (what.invites) {
            Message& message = programs_.messages_[size_t(what.message)];
            if (message.state & Programs::kPosted) {
                message.state |= Programs::kInvited;
                co_await give(number, host, message.written_bytes, what.message, false);
                co_return true;
            }
            co_await Acquire{context};
            message.state |= Programs::kInvited;
        } else {
            co_await Acquire{context};
        }
        release(context);
        co_return true;
    }
}

// As of Pair::handleReadWrite.
inline Calls Hosts::handle(Event event, int32_t host) {
    std::deque<Outgoing>& unsent = lines_[event.number].unsent;
    if (event.has_room) {
        while (!unsent.empty() && co_await write(event.number, host, unsent.front())) {
            is_written(unsent.front());
            unsent.pop_front();
        }
    }
    if (event.has_come)
        while (co_await read(event.number, host)) {}
    co_return true;
}

// As of Loop::run. The thread of a connection's end is that of all connections of the rank's group.
inline Thread Hosts::polling(uint32_t number) {
    Device& device = devices_[size_t(programs_.pair(number).source)];
    if (device.polls) co_return;
    device.polls = true;
    int32_t host = host_of_pair_[number];
    std::vector<Event> events;
    for (Time since = -1;;) {
        if (since < 0) since = now();
        co_await Idle{device};
        events.clear();
        for (uint32_t each : std::exchange(device.ready, {})) {
            Line& line = lines_[each];
            Endpoint& end = end_of(each);
            line.is_ready = false;
            Event event{each, !line.unsent.empty() && end.has_room(), end.unread_bytes() > 0};
            if (event.has_room || event.has_come) events.push_back(event);
        }
        if (events.empty()) continue;
        if (now() > since) co_await charge(host, wakeup_ns_);
        for (const Event& event : events) {
            Line& line = lines_[event.number];
            if (line.lock.taken) {  // try_lock
                line.is_asked_for = true;
                continue;
            }
            line.lock.taken = true;
            co_await handle(event, host);
            line.is_asked_for = true;
            release(event.number);
        }
        since = -1;
    }
}

inline void Hosts::release(uint32_t number) {
    Line& line = lines_[number];
    release(line.lock);
    if (!line.lock.taken && std::exchange(line.is_asked_for, false)) has_events(number);
}

inline void Hosts::has_events(uint32_t number) {
    Line& line = lines_[number];
    Device& device = devices_[size_t(programs_.pair(number).source)];
    if (!line.is_ready) {
        line.is_ready = true;
        device.ready.push_back(number);
    }
    if (device.idle) resume(std::exchange(device.idle, {}));
}

inline void Programs::charge(std::unique_ptr<Hosts> hosts) { hosts_ = std::move(hosts); }

inline bool Programs::post_by_thread(int32_t program, bool sends_first, Span<int32_t> sends, Span<int32_t> receives) {
    programs_[size_t(program)].asleep = true;
    if (!hosts_->post(program, sends_first, sends, receives)) return false;
    programs_[size_t(program)].asleep = false;
    return true;
}

// Whether a program's wait is over, whose thread takes time to be woken each time that it has waited.
inline bool Programs::is_over_for_thread(int32_t number, Time now) {
    Program& program = programs_[size_t(number)];
    int32_t before = program.waited;
    bool over = is_over(number);
    if (program.waits_since >= 0 && (over || program.waited > before)) {
        Time since = std::exchange(program.waits_since, -1);
        if (now > since && hosts_->wakes(number)) {
            program.asleep = true;
            return false;
        }
    }
    if (!over && program.waits_since < 0) program.waits_since = now;
    return over;
}
