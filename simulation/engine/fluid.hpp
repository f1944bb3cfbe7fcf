// SPDX-License-Identifier: GPL-2.0-only
// Messages as a fluid: each goes in quanta through ports that serve in the order of arrival. A quantum is some full
// segments in a row. Its first segment goes on while the others still come, so that how a message is cut changes little.
// Nothing is lost or marked, and windows are wide. A connection has no more in its host's port than Linux lets it
// (README.md, "Fluids").
#pragma once
#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "programs.hpp"

// The queues of a port that serves several classes: by strict priority, then by deficit round robin
// (emulator/kernel/gwport_queue.c).
class FluidClasses {
  public:
    static constexpr int kClasses = 8;
    struct Waiting {
        uint32_t quantum;
        double wire_bytes;
        Time came_ns;
    };
    bool busy = false;

    FluidClasses(const int64_t* served_by, const double* weight_bytes)
        : served_by_(served_by, served_by + kClasses), weight_bytes_(weight_bytes, weight_bytes + kClasses) {}

    void put(uint8_t selector, Waiting what) { queues_[size_t(served_by_[selector])].push_back(what); }

    // Takes what goes next; false where nothing waits.
    bool next(Waiting& found) {
        bool by_weight = false;
        for (int number = kClasses; number--;) {
            if (queues_[number].empty()) continue;
            if (weight_bytes_[size_t(number)] == 0) return take(number, found);
            by_weight = true;
        }
        if (!by_weight) return false;
        for (;;) {
            std::deque<Waiting>& queue = queues_[turn_];
            if (!queue.empty() && deficit_bytes_[turn_] > 0) {
                deficit_bytes_[turn_] -= queue.front().wire_bytes;
                return take(turn_, found);
            }
            if (queue.empty()) deficit_bytes_[turn_] = std::min(0.0, deficit_bytes_[turn_]);
            turn_ = (turn_ + 1) % kClasses;
            if (!queues_[turn_].empty()) deficit_bytes_[turn_] += weight_bytes_[size_t(turn_)];
        }
    }

  private:
    bool take(int number, Waiting& found) {
        found = queues_[number].front();
        queues_[number].pop_front();
        return true;
    }
    std::vector<int64_t> served_by_;
    std::vector<double> weight_bytes_;
    std::deque<Waiting> queues_[kClasses];
    double deficit_bytes_[kClasses] = {};
    int turn_ = 0;
};

// Waits of messages behind those of other owners. A port serves in order, so a quantum waits for just those before it
// that are not yet through. The part of a message counts that waits longest at a port behind the same owner.
class FluidWaits {
  public:
    explicit FluidWaits(Span<int32_t> owners) : owners_(owners) {}

    void passes(uint32_t link, int32_t message, double came, double begins, double ends) {
        int32_t owner = owners_[size_t(message)];
        std::deque<Passed>& before = before_[link];
        while (!before.empty() && before.front().ends <= came) before.pop_front();
        if (begins > came) {
            std::map<int32_t, double> waited;
            for (const Passed& each : before)
                if (each.owner != owner) waited[each.owner] += each.ends - std::max(each.begins, came);
            for (const auto& [other, took] : waited) {
                double& longest = longest_[{link, message, other}];
                longest = std::max(longest, took);
            }
        }
        before.push_back({owner, begins, ends});
    }

    // Rows of link, whose messages waited, behind whose, and the nanoseconds, added up over the messages.
    std::vector<double> rows() const {
        std::map<std::tuple<uint32_t, int32_t, int32_t>, double> found;
        for (const auto& [key, took] : longest_) {
            auto [link, message, other] = key;
            found[{link, owners_[size_t(message)], other}] += took;
        }
        std::vector<double> rows;
        for (const auto& [key, took] : found) {
            auto [link, owner, other] = key;
            for (double number : {double(link), double(owner), double(other), took}) rows.push_back(number);
        }
        return rows;
    }

  private:
    struct Passed {
        int32_t owner;
        double begins, ends;
    };
    Span<int32_t> owners_;
    std::unordered_map<uint32_t, std::deque<Passed>> before_;
    std::map<std::tuple<uint32_t, int32_t, int32_t>, double> longest_;
};

class Fluid {
  public:
    Fluid(const Columns& from, Network& network, Programs& programs);

    // A message, or what announces or invites it, as of `Programs::send`. Whether the sender is done with it.
    bool send(int32_t pair, int32_t message, bool invites, Time now);
    void fire(uint32_t whose, int64_t what, Time now);
    std::vector<double> waits() const { return waits_ ? waits_->rows() : std::vector<double>{}; }

  private:
    enum : int64_t { kArrived, kBegun, kLeft, kPosted, kFree, kInOrder, kInvited };  // of kLeft, with segments and bytes
    static constexpr int kWhatBits = 3, kBytesBits = 32;
    // A segment counts this in its host's port beyond its bytes on the wire (Endpoint::kSkbBytes, less 90 of headers).
    static constexpr double kSkbBytes = 742;
    static constexpr uint32_t kNone = UINT32_MAX;
    static constexpr int32_t kCredit = -1;  // in place of a message: nobody waits for its acknowledgement

    struct Port {
        double bytes_per_ns, delay_ns;
        int64_t segments;  // of one connection in its host's port, at most
        double free_ns = 0;
        uint32_t user = kNone;
    };
    struct Cut {
        int32_t full;
        double full_bytes, rest_bytes;
    };
    // Segments that follow each other, which wait or are under way. `corked` is shorter than a full one.
    struct Quantum {
        double wire_bytes, first_bytes, tail_ns;
        uint32_t pair, next;
        int32_t message, segments;
        uint8_t hop;
        bool invites : 1, last : 1, corked : 1, answers : 1;
    };
    // The quanta that wait to enter the host's port, full segments of so many messages among them, and those in it.
    struct Stream {
        uint32_t first = kNone, last = kNone;
        int32_t queued = 0, queued_segments = 0, full_waiting = 0;
        int64_t queued_bytes = 0;  // as sockets count them
        bool is_full = false;  // of a queue pair: it waits until there are few
    };

    uint32_t make(const Quantum& quantum);
    void wait(const Quantum& quantum);
    void line_up(uint32_t pair, int32_t message, Time now);
    void fill(uint32_t pair, Time now, bool left);
    void enter(uint32_t quantum, Time now);
    uint32_t take(Stream& stream, int32_t segments);
    void forward(uint32_t quantum, Time now);
    void serve(uint32_t link, Time now);
    void transmit(uint32_t quantum, uint32_t link, double came, double free_ns);
    void deliver(uint32_t quantum, Time now);
    void answer(uint32_t pair, int32_t message, Time now);
    int64_t most_segments(const Pair& pair) const;
    double idle_notice_ns(const Pair& pair) const;
    void at(double time, int64_t what, uint32_t whose) {
        net_.at_processes(Time(std::nearbyint(time)), What::kFluid, whose, what);
    }
    // Arrivals by a port keep their order, and so do departures from a host by it. Only the first of each is among the
    // network's events.
    void in_order(uint32_t list, double time, int64_t what, uint32_t whose) {
        Ring<Event>& events = in_order_[list];
        events.push_back({Time(std::nearbyint(time)), net_.next_process(), What::kFluid, whose, what});
        if (events.size() == 1) arm(list);
    }
    void arm(uint32_t list) {
        const Event& first = in_order_[list].front();
        net_.at_processes({first.time, first.number, What::kFluid, list, kInOrder});
    }
    static int64_t counted(const Quantum& quantum) {
        return int64_t(std::nearbyint(quantum.wire_bytes + quantum.segments * kSkbBytes));
    }

    Network& net_;
    Programs& programs_;
    std::vector<Port> ports_;
    std::vector<Ring<Event>> in_order_;  // of each port: arrivals, and what leaves a host
    std::vector<FluidClasses> classes_;
    std::vector<Cut> cuts_;
    Span<int32_t> cut_of_;
    std::vector<Stream> streams_;
    std::vector<Quantum> quanta_;
    std::vector<uint32_t> free_;
    std::unique_ptr<FluidWaits> waits_;
    double notice_bytes_, overhead_ns_, sharing_factor_, answer_bytes_;
    int32_t quanta_per_message_, queued_packets_, refilled_below_;  // the last two of queue pairs, else 0
    bool notices_queue_;  // else they go by a way of their own
};

inline Fluid::Fluid(const Columns& from, Network& network, Programs& programs)
    : net_(network), programs_(programs), cut_of_(from.shorts("message.cut")), streams_(programs.pairs()) {
    auto settings = from.floats("fluid.settings"), ports = from.floats("fluid.ports"), cuts = from.floats("fluid.cuts");
    auto served_by = from.ints("fluid.served_by");
    auto weights = from.floats("fluid.weights");
    auto owners = from.shorts("fluid.owners");
    if (settings.size != 8) throw BadScenario("fluid.settings: found " + std::to_string(settings.size) + " numbers, allowed 8");
    notice_bytes_ = settings[0];
    overhead_ns_ = settings[1];
    sharing_factor_ = settings[2];
    answer_bytes_ = settings[3];
    quanta_per_message_ = std::max(1, int32_t(settings[4]));
    queued_packets_ = int32_t(settings[5]);
    refilled_below_ = int32_t(settings[6]);
    notices_queue_ = settings[7] != 0;
    if (ports.size != 3 * net_.ports.size())
        throw BadScenario("fluid.ports: found " + std::to_string(ports.size) + " numbers, allowed 3 of each port");
    for (size_t i = 0; i < ports.size; i += 3) ports_.push_back({ports[i], ports[i + 1], int64_t(ports[i + 2])});
    in_order_.resize(2 * ports_.size());
    for (size_t i = 0; i + 2 < cuts.size; i += 3) cuts_.push_back({int32_t(cuts[i]), cuts[i + 1], cuts[i + 2]});
    for (int32_t cut : cut_of_)
        if (cut < 0 || size_t(cut) >= cuts_.size()) throw BadScenario("message.cut: found " + std::to_string(cut));
    if (served_by.size) {
        if (served_by.size != FluidClasses::kClasses * ports_.size() || weights.size != served_by.size)
            throw BadScenario("fluid.served_by: found " + std::to_string(served_by.size) + " numbers, allowed 8 of each port");
        for (size_t i = 0; i < served_by.size; i += FluidClasses::kClasses)
            classes_.emplace_back(served_by.data + i, weights.data + i);
    }
    if (owners.size) waits_ = std::make_unique<FluidWaits>(owners);
}

inline uint32_t Fluid::make(const Quantum& quantum) {
    if (free_.empty()) {
        quanta_.push_back(quantum);
        return uint32_t(quanta_.size()) - 1;
    }
    uint32_t number = free_.back();
    free_.pop_back();
    quanta_[number] = quantum;
    return number;
}

// At the end of those that wait to enter the host's port.
inline void Fluid::wait(const Quantum& quantum) {
    Stream& stream = streams_[quantum.pair];
    uint32_t number = make(quantum);
    if (stream.last == kNone) stream.first = number;
    else quanta_[stream.last].next = number;
    stream.last = number;
    stream.full_waiting += !quantum.corked;
}

inline bool Fluid::send(int32_t pair, int32_t message, bool invites, Time now) {
    if (message == Programs::kNone || invites) {
        bool announces_nothing = queued_packets_ && !invites;  // queue pairs have credits alone
        if (announces_nothing || notice_bytes_ == 0) return true;
        if (!notices_queue_) {
            if (invites) at(double(now) + idle_notice_ns(programs_.pair(pair)), kInvited, uint32_t(message));
            return true;
        }
        wait({notice_bytes_, notice_bytes_, 0, uint32_t(pair), kNone, message, 1, 0, invites, false, true, false});
        fill(uint32_t(pair), now, false);
        return true;
    }
    if (overhead_ns_ != 0) {
        at(std::max(double(now), double(now) + overhead_ns_), kPosted, uint32_t(message));
        return false;
    }
    line_up(uint32_t(pair), message, now);
    return !queued_packets_;  // the acknowledgement completes what goes over queue pairs
}

inline void Fluid::line_up(uint32_t pair, int32_t message, Time now) {
    const Cut& cut = cuts_[size_t(cut_of_[size_t(message)])];
    bool rests = cut.rest_bytes > 0;
    if (cut.full)
        wait({cut.full * cut.full_bytes, cut.full_bytes, 0, pair, kNone, message, cut.full, 0, false, !rests, false, false});
    if (rests) wait({cut.rest_bytes, cut.rest_bytes, 0, pair, kNone, message, 1, 0, false, true, true, false});
    fill(pair, now, false);
}

inline int64_t Fluid::most_segments(const Pair& pair) const {
    int64_t found = INT32_MAX;
    for (uint32_t i = 0; i < pair.hops; ++i) found = std::min(found, ports_[net_.links[pair.route + i]].segments);
    return found;
}

inline double Fluid::idle_notice_ns(const Pair& pair) const {
    double found = 0;
    for (uint32_t i = 0; i < pair.hops; ++i) {
        const Port& port = ports_[net_.links[pair.route + i]];
        found += port.delay_ns + notice_bytes_ / port.bytes_per_ns;
    }
    return found;
}

// All that may enter the host's port does, in order. `left`: a packet has left the port, or has come by the other direction,
// so that what is held back goes.
inline void Fluid::fill(uint32_t pair, Time now, bool left) {
    Stream& stream = streams_[pair];
    if (stream.first == kNone) return;
    if (queued_packets_) {
        if (stream.is_full && stream.queued_segments >= refilled_below_) return;
        stream.is_full = false;
    }
    int64_t most = queued_packets_ ? queued_packets_ : most_segments(programs_.pair(pair));
    while (stream.first != kNone) {
        const Quantum& item = quanta_[stream.first];
        int32_t segments = 1;
        if (!item.corked) {
            int32_t full = cuts_[size_t(cut_of_[size_t(item.message)])].full;
            int64_t bound = queued_packets_ ? queued_packets_ / 3 : most / 4;
            int64_t step = std::min<int64_t>((full + quanta_per_message_ - 1) / quanta_per_message_, bound);
            segments = std::min(item.segments, int32_t(std::max<int64_t>(1, step)));
        }
        bool fits = stream.queued_segments + segments <= most;
        if (queued_packets_ && !fits) {
            stream.is_full = true;
            return;
        }
        // Auto corking: behind more than what it counts itself (tcp_should_autocork).
        bool held = item.corked && !left && !stream.full_waiting && stream.queued_bytes >= counted(item);
        if (!queued_packets_ && stream.queued && (!fits || held)) return;
        enter(take(stream, segments), now);
    }
}

// The first segments of what waits.
inline uint32_t Fluid::take(Stream& stream, int32_t segments) {
    uint32_t number = stream.first;
    if (quanta_[number].segments > segments) {
        Quantum part = quanta_[number];
        part.segments = segments;
        part.wire_bytes = segments * part.first_bytes;
        part.last = false;
        Quantum& rest = quanta_[number];
        rest.segments -= segments;
        rest.wire_bytes = rest.segments * rest.first_bytes;
        return make(part);
    }
    const Quantum& whole = quanta_[number];
    stream.full_waiting -= !whole.corked;
    stream.first = whole.next;
    if (stream.first == kNone) stream.last = kNone;
    return number;
}

inline void Fluid::enter(uint32_t number, Time now) {
    Quantum& quantum = quanta_[number];
    Stream& stream = streams_[quantum.pair];
    ++stream.queued;
    stream.queued_segments += quantum.segments;
    stream.queued_bytes += counted(quantum);
    quantum.tail_ns = double(now);
    ++net_.sent;
    forward(number, now);
}

// Into the queue of the next port. Where there is one class of traffic its time there is known at once, as nothing that
// comes later goes first.
inline void Fluid::forward(uint32_t number, Time now) {
    const Quantum& quantum = quanta_[number];
    const Pair& pair = programs_.pair(quantum.pair);
    uint32_t link = net_.links[pair.route + quantum.hop];
    if (classes_.empty()) return transmit(number, link, double(now), ports_[link].free_ns);
    classes_[link].put(pair.selector, {number, quantum.wire_bytes, now});
    if (!classes_[link].busy) serve(link, now);
}

inline void Fluid::serve(uint32_t link, Time now) {
    FluidClasses::Waiting found;
    classes_[link].busy = classes_[link].next(found);
    if (!classes_[link].busy) return;
    transmit(found.quantum, link, double(found.came_ns), double(now));
    at(ports_[link].free_ns, kFree, link);
}

// A quantum that came then leaves a port once that is free.
inline void Fluid::transmit(uint32_t number, uint32_t link, double came, double free_ns) {
    Quantum& quantum = quanta_[number];
    Port& port = ports_[link];
    double rate = port.bytes_per_ns, start = came;
    if (free_ns > came) {
        start = free_ns;
        if (port.user != quantum.pair) rate /= sharing_factor_;
    }
    double head = start + quantum.first_bytes / rate;
    double end = std::max(start + quantum.wire_bytes / rate, quantum.tail_ns + quantum.first_bytes / rate);
    port.free_ns = end;
    port.user = quantum.pair;
    ++net_.hops;
    if (waits_ && quantum.message >= 0) waits_->passes(link, quantum.message, came, start, end);
    if (!quantum.hop) {
        int64_t leaves = int64_t(quantum.segments) << kBytesBits | counted(quantum);
        if (quantum.segments > 1) in_order(2 * link + 1, head, kBegun, quantum.pair);
        in_order(2 * link + 1, end, leaves << kWhatBits | kLeft, quantum.pair);
    }
    ++quantum.hop;
    quantum.tail_ns = end + port.delay_ns;
    bool comes = quantum.hop == programs_.pair(quantum.pair).hops;
    in_order(2 * link, comes ? quantum.tail_ns : head + port.delay_ns, kArrived, number);
}

// A packet that comes has the kernel try to send what is held back (tcp_data_snd_check).
inline void Fluid::deliver(uint32_t number, Time now) {
    Quantum quantum = quanta_[number];
    free_.push_back(number);
    if (!queued_packets_) fill(uint32_t(programs_.pair(quantum.pair).reverse), now, true);
    if (quantum.answers) {
        if (quantum.message != kCredit) programs_.has_sent(quantum.message, now);
        return;
    }
    if (quantum.invites) {
        if (queued_packets_) answer(quantum.pair, kCredit, now);
        programs_.has_been_invited(quantum.message, now);
    } else if (quantum.last) {
        if (queued_packets_) answer(quantum.pair, quantum.message, now);
        programs_.has_received(quantum.message, now);
    }
}

// An acknowledgement of a queue pair, which goes at once, before all that waits.
inline void Fluid::answer(uint32_t pair, int32_t message, Time now) {
    uint32_t back = uint32_t(programs_.pair(pair).reverse);
    enter(make({answer_bytes_, answer_bytes_, 0, back, kNone, message, 1, 0, false, false, false, true}), now);
}

inline void Fluid::fire(uint32_t whose, int64_t what, Time now) {
    switch (what & ((1 << kWhatBits) - 1)) {
        case kArrived: {
            const Quantum& quantum = quanta_[whose];
            if (quantum.hop < programs_.pair(quantum.pair).hops) return forward(whose, now);
            return deliver(whose, now);
        }
        case kLeft:
            --streams_[whose].queued;
            streams_[whose].queued_segments -= int32_t(what >> (kWhatBits + kBytesBits));
            streams_[whose].queued_bytes -= (what >> kWhatBits) & ((int64_t(1) << kBytesBits) - 1);
            return fill(whose, now, true);
        case kBegun:
            return fill(whose, now, true);
        case kPosted: {
            int32_t message = int32_t(whose);
            line_up(uint32_t(programs_.pair_of(message)), message, now);
            if (!queued_packets_) programs_.has_sent(message, now);
            return;
        }
        case kFree:
            return serve(whose, now);
        case kInvited:
            return programs_.has_been_invited(int32_t(whose), now);
        case kInOrder: {
            Event event = in_order_[whose].front();
            in_order_[whose].pop_front();
            if (!in_order_[whose].empty()) arm(whose);
            return fire(event.whose, event.value, now);
        }
    }
}
