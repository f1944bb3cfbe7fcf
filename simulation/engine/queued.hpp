// SPDX-License-Identifier: GPL-2.0-only
// Ports whose packets leave in an order of their own: classes of traffic, flows, pauses; and all ports that
// write telemetry or that faults befall.
//
// As emulator/kernel has them (gwport_queue.c, gwport_link.c and a file for each discipline): a port does all
// that it did until now when somebody looks, and sets its timer to the next step that others must see in its
// time. Every direction of a connection is a flow of FQ-CoDel: that two of them share a hash is not followed.
#pragma once
#include <array>
#include <cmath>
#include <memory>
#include <unordered_map>

#include "network.hpp"
#include "red.hpp"

struct gwcells_port;

enum class QueueKind : int64_t { kDropTail = 0, kRed, kDctcp, kCodel, kFqCodel, kShared, kVoq, kLossless, kCredits, kCells };

// struct tc_gwport_qopt, of a class or of a whole port.
struct QueueOptions {
    static constexpr size_t kNumbers = 26;
    QueueKind kind;
    int64_t buffer_bytes, k_bytes, kmin_bytes, kmax_bytes;
    Time target_ns, interval_ns, ce_threshold_ns;
    int64_t xoff_bytes, xon_bytes, headroom_bytes;
    int64_t quantum_bytes, class_quantum_bytes;
    int64_t pmax_q32, weight_q32, alpha_q16;
    int64_t lossy_classes, ecn;
    int64_t trim;  // 1: cuts the payload of what has no room, 2: on the way to a host
    int64_t card, cards, fabric_links, fabric_bps;  // of cells
    Time fabric_ns;
    int64_t cell_bytes, header_bytes;

    bool has_flows() const { return kind == QueueKind::kVoq || kind == QueueKind::kFqCodel; }
    bool has_cells() const { return kind == QueueKind::kCells; }
    bool has_credits() const { return kind == QueueKind::kCredits; }
    bool shares_buffer() const { return kind == QueueKind::kShared || kind == QueueKind::kLossless || has_credits(); }
    bool can_bypass() const { return shares_buffer() || kind == QueueKind::kDropTail || kind == QueueKind::kDctcp; }
};

// A packet that waits: since when, and by which port it came in, kNobody at a host.
struct Held {
    uint32_t packet = kNoPacket, ingress = kNobody;
    Time came = 0;
};

struct Queue {
    Ring<Held> packets;
    int64_t bytes = 0, deficit = 0;
    bool active = false;
    // CoDel's state.
    Time first_above_ns = 0, drop_next_ns = 0;
    int64_t count = 0, last_count = 0;
    bool dropping = false;
};

struct TrafficClass {
    const QueueOptions* options = nullptr;
    Queue only;  // where it has no flows
    std::unordered_map<uint32_t, std::unique_ptr<Queue>> flows;
    Ring<Queue*> fresh, old;
    int64_t bytes = 0, packets = 0, deficit = 0;
    RedAverage red;
    // As an ingress: bytes that came in by this port and wait anywhere in the switch.
    int64_t ingress_bytes = 0;
    bool xoff_sent = false;
    int64_t spent = 0;  // credits: bytes that have a place at the far end
};

// Places that become free at a port's ingress, or are taken there: when its neighbour hears of it.
struct Credit {
    Time time;
    int64_t bytes;
    int number;  // of the class
};

// The bytes that wait at the ports of a switch that share its memory, and those of them that are set aside.
struct SwitchMemory {
    int64_t bytes = 0, headroom_bytes = 0;
    Chassis* chassis = nullptr;  // its fabric of cells
};

// Faults of a link. One that is down carries nothing but pauses, and takes nothing.
struct LinkFaults {
    int64_t loss_q32 = 0, corrupt_q32 = 0;
    bool down = false;
};

struct QueuedState {
    static constexpr int kClasses = 8;
    std::array<TrafficClass, kClasses> classes;
    uint32_t class_map = 0;
    bool single_class = false, by_class = false, shares_buffer = false, can_bypass = false, has_credits = false;
    uint8_t weighted = 0, backlogged = 0, paused = 0;  // bit per class
    int turn = 0;
    int64_t frame_bytes = 0;   // what may wait without being too much for CoDel
    Time packet_ns = 1;        // of a packet, by which RED's average falls while the port is idle
    Time idle_since_ns = 0;    // 0: not idle
    bool sending = false;      // whose end somebody waits for
    int64_t wire_bytes = 0;    // sent until now
    SwitchMemory* memory = nullptr;
    gwcells_port* cells = nullptr;  // as an egress of its switch's fabric
    PortRandom random{0};
    Ring<uint32_t> pauses;
    Ring<Credit> credits;  // for the neighbour, in order of time
    LinkFaults faults;

    bool can_send() const { return !pauses.empty() || (backlogged & ~paused); }
    // By these options, one or those of all classes.
    void apply(const QueueOptions* first, bool own);
};

class Queued {
  public:
    Queued(Network& network, uint32_t number)
        : net_(network), number_(number), port_(network.ports[number]), state_(*port_.queued) {}

    // As gw_enqueue_frame.
    Time send(uint32_t packet, Time now);
    // Does all that the port did until now (gw_update).
    void update(Time now);
    void fire(Time now, std::vector<uint32_t>& arrived);
    // As of gw_apply: what is in transmission, or on the wire, stays what it is.
    void impair(int64_t rate_bps, Time delay_ns, const LinkFaults& faults, Time now) {
        update(now);
        if (port_.rate_bps != rate_bps) {
            if (port_.free_frac) ++port_.free_ns;  // the fraction is in units of the old rate
            port_.free_frac = 0;
            port_.rate_bps = rate_bps;
            port_.costs = new LineCosts(rate_bps);
        }
        port_.delay_ns = delay_ns;
        state_.faults = faults;
        update(now);
    }
    // The neighbour has places again (gw_give_credits).
    void hear_of_credits(Ring<Credit>& credits, Time now) {
        update(now);
        for (; !credits.empty() && credits.front().time <= now; credits.pop_front())
            state_.classes[size_t(credits.front().number)].spent -= credits.front().bytes;
        for (int i = 0; i < kClasses; ++i) look_for_credits(i);
        update(now);
        net_.arm(number_);
    }
    // A packet that has waited at a card is whole again (gw_is_whole).
    void offer(const Held& held, Time now) {
        TrafficClass& found = state_.classes[0];
        update(now);
        found.only.packets.push_back(held);
        found.only.bytes += net_.packets[held.packet].length;
        ++found.packets;
        state_.backlogged |= 1;
        update(now);
        net_.arm(number_);
    }
    // The neighbour says so (gw_pause_received).
    void pause(const Packet& frame, Time now) {
        uint8_t classes = uint8_t(1 << frame.selector);
        update(now);
        state_.paused = uint8_t((state_.paused & ~classes) | (frame.stops ? classes : 0));
        update(now);
        net_.arm(number_);
    }

  private:
    static constexpr uint32_t kPauseBytes = 60;  // a pause frame as Linux counts it (ETH_ZLEN)
    static constexpr uint32_t kTrimmedBytes = 14 + GW_TRIMMED_BYTES;
    static constexpr int kClasses = QueuedState::kClasses;

    bool bypasses(const Packet& packet, TrafficClass& found, const Held& held, Time now);
    bool admits(const Packet& packet, TrafficClass& found, Queue& queue, const Held& held, Time now);
    bool trims(Packet& packet, const QueueOptions& options, const Held& held, Time now);
    bool lossless_admits(const Packet& packet, const TrafficClass& found, const Held& held) const;
    int64_t card_of(const Held& held) const;
    bool card_has_room(const Packet& packet, const Held& held, Time now);
    void hold(const Packet& packet, TrafficClass& found, Queue& queue, const Held& held, Time now);
    TrafficClass* ingress_class(const Packet& packet, const Held& held) const;
    Queue& queue_of(const Packet& packet, TrafficClass& found, const Held& held);
    int64_t waits(const TrafficClass& found) const { return state_.by_class ? found.bytes : port_.backlog; }
    int class_of(const Packet& packet) const {
        return state_.single_class ? 0 : int(state_.class_map >> 4 * packet.selector & 7);
    }
    void push(const Packet& packet, TrafficClass& found, Queue& queue, const Held& held, Time now);
    Held pop(TrafficClass& found, Queue& queue, Time time);
    void drop(const Held& held, Time now);
    uint32_t next(Time time);
    uint32_t next_of(TrafficClass& found, Time time);
    uint32_t next_weighted(uint8_t classes, Time time);
    uint32_t take(TrafficClass& found, Queue& queue, Time time);
    Held codel_pop(TrafficClass& found, Queue& queue, Time time, bool& too_long);
    Held codel_take(TrafficClass& found, Queue& queue, Time time);
    Time codel_after(const TrafficClass& found, Time time, int64_t count) const;
    bool could_mark(const TrafficClass& found, const Held& held) {
        if (!found.options->ecn || held.packet == kNoPacket || !net_.packets[held.packet].ect) return false;
        port_.mark(net_.packets[held.packet]);
        return true;
    }
    // Whether the class has a next packet, and no credits for it (gw_look_for_credits).
    void look_for_credits(int number) {
        const TrafficClass& found = state_.classes[size_t(number)];
        if (!found.options->has_credits()) return;
        bool lacks = !found.only.packets.empty() &&
                     found.spent + net_.packets[found.only.packets.front().packet].length > found.options->buffer_bytes;
        state_.paused = uint8_t((state_.paused & ~(1 << number)) | lacks << number);
    }
    // As of gw_note_credit. The neighbour of a port by which packets came hears of their places there.
    void note_credit(uint32_t ingress, int number, int64_t bytes, Time time) {
        if (ingress == kNobody || !net_.ports[ingress].queued) return;
        Ring<Credit>& credits = net_.ports[ingress].queued->credits;
        time += net_.ports[ingress].delay_ns;
        if (!credits.empty()) {
            Credit& last = credits.back();
            if (last.time >= time && last.number == number) {
                last.bytes += bytes;
                return;
            }
            time = std::max(time, last.time);
        }
        credits.push_back({time, bytes, number});
        net_.arm(ingress);
    }
    void tell_neighbour(uint32_t ingress, uint8_t selector, bool stop, Time now);
    void transmit(uint32_t packet);
    void rest(Time now) {  // gw_transmitter_idle
        if (!state_.idle_since_ns) state_.idle_since_ns = port_.ready();
        port_.free_ns = now;
        port_.free_frac = 0;
    }

    Network& net_;
    uint32_t number_;
    Port& port_;
    QueuedState& state_;
};

inline void QueuedState::apply(const QueueOptions* first, bool own) {
    by_class = own;
    int64_t headroom = 0;
    for (int i = 0; i < kClasses; ++i) {
        const QueueOptions& each = own ? first[i] : *first;
        classes[size_t(i)].options = &each;
        shares_buffer |= each.shares_buffer();
        can_bypass |= each.can_bypass();
        has_credits |= each.has_credits();
        if (each.class_quantum_bytes) weighted |= uint8_t(1 << i);
        if (own || !i) headroom += each.headroom_bytes;
    }
    single_class = !own && (first->kind == QueueKind::kFqCodel || first->has_cells());
    if (memory) memory->headroom_bytes += headroom;
}

inline Time Queued::send(uint32_t number, Time now) {
    Packet& packet = net_.packets[number];
    Held held{number, kNobody, now};
    if (packet.hop > 1) held.ingress = net_.came_by ^ 1;
    TrafficClass& found = state_.classes[size_t(class_of(packet))];
    update(now);
    if (bypasses(packet, found, held, now)) {
        transmit(number);
    } else {
        Queue& queue = queue_of(packet, found, held);
        if (state_.faults.down || !admits(packet, found, queue, held, now)) {
            if (!state_.faults.down && trims(packet, *found.options, held, now)) {
                update(now);
                net_.arm(number_);
                return kHeld;
            }
            ++port_.drops;
            return kLost;
        }
        const QueueOptions& options = *found.options;
        if (queue.bytes > options.k_bytes) port_.mark(packet);
        if (options.kind == QueueKind::kLossless && options.kmax_bytes && queue.bytes &&
            RedLine{options.kmin_bytes << 16, options.kmax_bytes << 16, options.pmax_q32}.hits(queue.bytes << 16, state_.random))
            port_.mark(packet);
        if (options.has_cells()) hold(packet, found, queue, held, now);
        else push(packet, found, queue, held, now);
        update(now);
    }
    net_.arm(number_);
    return kHeld;
}

// Whether a packet that has no room goes on without its payload, before all others (gw_trim).
inline bool Queued::trims(Packet& packet, const QueueOptions& options, const Held& held, Time now) {
    if (!options.trim || packet.frame != Frame::kRequest || packet.length <= kTrimmedBytes) return false;
    packet.length = kTrimmedBytes;
    packet.selector = kClasses - 1;
    packet.is_trimmed = true;
    packet.is_trimmed_last = options.trim == 2;
    packet.ce = packet.ect;
    TrafficClass& first = state_.classes[size_t(class_of(packet))];
    if (first.bytes + kTrimmedBytes > first.options->buffer_bytes) return false;
    push(packet, first, first.only, held, now);
    return true;
}

// Whether nothing waits, and the transmitter becomes free within this nanosecond (gw_bypass).
inline bool Queued::bypasses(const Packet& packet, TrafficClass& found, const Held& held, Time now) {
    if (!state_.can_bypass || state_.faults.down || port_.free_ns > now || state_.backlogged ||
        !state_.pauses.empty() || state_.paused)
        return false;
    if (port_.free_frac && state_.sending) return false;
    const QueueOptions& options = *found.options;
    int64_t length = packet.length;
    if (!state_.shares_buffer && !state_.by_class) return length <= options.buffer_bytes;
    if (!options.can_bypass()) return false;
    if (options.kind == QueueKind::kShared) return admits(packet, found, found.only, held, now);
    if (options.has_credits()) return found.spent + length <= options.buffer_bytes;
    if (options.kind != QueueKind::kLossless) return length <= options.buffer_bytes;
    if (!lossless_admits(packet, found, held)) return false;
    TrafficClass* in = ingress_class(packet, held);
    return !in || !(in->xoff_sent || in->ingress_bytes + length > in->options->xoff_bytes);
}

inline Queue& Queued::queue_of(const Packet& packet, TrafficClass& found, const Held& held) {
    if (!found.options->has_flows() && !found.options->has_cells()) return found.only;
    uint32_t which = held.ingress == kNobody ? 0 : held.ingress + 1;
    if (found.options->has_cells()) which = uint32_t(card_of(held));
    if (found.options->kind == QueueKind::kFqCodel) which = packet.target * 2 + (packet.frame != Frame::kSegment);
    std::unique_ptr<Queue>& queue = found.flows[which];
    if (!queue) queue = std::make_unique<Queue>();
    return *queue;
}

inline bool Queued::admits(const Packet& packet, TrafficClass& found, Queue& queue, const Held& held, Time now) {
    const QueueOptions& options = *found.options;
    int64_t length = packet.length;
    switch (options.kind) {
        case QueueKind::kRed: {
            bool fits = waits(found) + length <= options.buffer_bytes;
            // A packet that does not fit is an arrival all the same.
            if (!port_.backlog && state_.idle_since_ns && state_.idle_since_ns < now)
                found.red.fall((now - state_.idle_since_ns) / state_.packet_ns, options.weight_q32);
            found.red.meet(queue.bytes, options.weight_q32);
            RedLine line{options.kmin_bytes << 16, options.kmax_bytes << 16, options.pmax_q32};
            bool hit = line.hits(found.red.average_q16, state_.random);
            if (!fits || !hit) return fits;
            if (!options.ecn) return false;
            port_.mark(net_.packets[held.packet]);
            return true;
        }
        case QueueKind::kFqCodel:  // the longest flow loses its first packet
            while (found.packets && waits(found) + length > options.buffer_bytes) {
                Queue* longest = nullptr;
                for (auto* turns : {&found.fresh, &found.old})
                    for (uint32_t i = 0; i < turns->size(); ++i)
                        if (!longest || (*turns)[i]->bytes > longest->bytes) longest = (*turns)[i];
                drop(pop(found, *longest, now), now);
            }
            return waits(found) + length <= options.buffer_bytes;
        case QueueKind::kVoq:
            return queue.bytes + length <= options.buffer_bytes;
        case QueueKind::kShared: {
            int64_t room = std::max<int64_t>(0, options.buffer_bytes - state_.memory->bytes);
            return length <= room && queue.bytes + length <= int64_t(__int128(room) * options.alpha_q16 >> 16);
        }
        case QueueKind::kLossless:
            return lossless_admits(packet, found, held);
        case QueueKind::kCredits:
            return true;
        case QueueKind::kCells:
            return card_has_room(packet, held, now);
        default:
            return waits(found) + length <= options.buffer_bytes;
    }
}

inline bool Queued::lossless_admits(const Packet& packet, const TrafficClass& found, const Held& held) const {
    const QueueOptions& options = *found.options;
    int number = class_of(packet);
    int64_t room = options.buffer_bytes, length = packet.length;
    if (options.lossy_classes >> number & 1) {  // must not take what keeps the others lossless
        room = std::max<int64_t>(0, room - state_.memory->headroom_bytes);
    } else if (held.ingress != kNobody && net_.ports[held.ingress].queued) {
        const TrafficClass& in = net_.ports[held.ingress].queued->classes[size_t(number)];
        if (in.ingress_bytes + length > in.options->xoff_bytes + in.options->headroom_bytes) return false;
    }
    return state_.memory->bytes + length <= room;
}

// The count of bytes that came in by a port whose neighbour can be paused, else null.
inline TrafficClass* Queued::ingress_class(const Packet& packet, const Held& held) const {
    int number = class_of(packet);
    if (held.ingress == kNobody || (state_.classes[size_t(number)].options->lossy_classes >> number & 1)) return nullptr;
    QueuedState* in = net_.ports[held.ingress].queued;
    if (!in) return nullptr;
    TrafficClass& found = in->classes[size_t(number)];
    return found.options->kind == QueueKind::kLossless ? &found : nullptr;
}

inline void Queued::push(const Packet& packet, TrafficClass& found, Queue& queue, const Held& held, Time now) {
    int64_t length = packet.length;
    queue.packets.push_back(held);
    queue.bytes += length;
    if (found.options->has_flows() && !queue.active) {
        queue.active = true;
        queue.deficit = found.options->quantum_bytes;
        (found.options->kind == QueueKind::kFqCodel ? found.fresh : found.old).push_back(&queue);
    }
    ++found.packets;
    found.bytes += length;
    state_.backlogged |= uint8_t(1 << (&found - state_.classes.data()));
    port_.backlog += length;
    if (!found.options->shares_buffer()) return;
    if (found.options->has_credits()) {
        note_credit(held.ingress, class_of(packet), -length, now);
        return look_for_credits(class_of(packet));
    }
    state_.memory->bytes += length;
    if (found.options->kind != QueueKind::kLossless) return;
    TrafficClass* in = ingress_class(packet, held);
    if (!in) return;
    in->ingress_bytes += length;
    if (!in->xoff_sent && in->ingress_bytes > in->options->xoff_bytes) {
        in->xoff_sent = true;
        tell_neighbour(held.ingress, uint8_t(class_of(packet)), true, now);
    }
}

inline Held Queued::pop(TrafficClass& found, Queue& queue, Time time) {
    if (queue.packets.empty()) return {};
    Held held = queue.packets.front();
    queue.packets.pop_front();
    const Packet& packet = net_.packets[held.packet];
    int64_t length = packet.length;
    queue.bytes -= length;
    found.bytes -= length;
    if (!--found.packets) state_.backlogged &= uint8_t(~(1 << (&found - state_.classes.data())));
    port_.backlog -= length;
    if (!found.options->shares_buffer()) return held;
    if (found.options->has_credits()) {
        note_credit(held.ingress, class_of(packet), length, time);
        return held;
    }
    state_.memory->bytes -= length;
    if (found.options->kind != QueueKind::kLossless) return held;
    TrafficClass* in = ingress_class(packet, held);
    if (!in) return held;
    in->ingress_bytes -= std::min(length, in->ingress_bytes);
    if (in->xoff_sent && in->ingress_bytes < in->options->xon_bytes) {
        in->xoff_sent = false;
        tell_neighbour(held.ingress, uint8_t(class_of(packet)), false, time);
    }
    return held;
}

inline void Queued::drop(const Held& held, Time now) {
    ++port_.drops;
    net_.tell_sender(net_.packets[held.packet], now);
    net_.packets.drop(held.packet);
}

// A pause frame goes before all that waits (gw_send_pause_frame).
inline void Queued::tell_neighbour(uint32_t ingress, uint8_t selector, bool stop, Time now) {
    uint32_t number = net_.packets.make();
    Packet& frame = net_.packets[number];
    frame.route = ingress;  // the first routes are each link's own
    frame.hops = frame.hop = 1;
    frame.target = ingress ^ 1;
    frame.sender = kNobody;
    frame.frame = Frame::kPause;
    frame.selector = selector;
    frame.stops = stop;
    frame.length = kPauseBytes;
    Queued in(net_, ingress);
    if (in.port_.ready() < now && !in.state_.can_send()) in.rest(now);
    in.state_.pauses.push_back(number);
    net_.arm(ingress);
}

inline void Queued::update(Time now) {
    while (port_.ready() <= now) {
        state_.sending = false;
        uint32_t packet = state_.can_send() ? next(port_.ready()) : kNoPacket;
        if (packet == kNoPacket) return rest(now);
        transmit(packet);
    }
}

// As of gw_dequeue: pause frames, then classes of strict priority, then those that share by weight.
inline uint32_t Queued::next(Time time) {
    if (!state_.pauses.empty()) {
        uint32_t frame = state_.pauses.front();
        state_.pauses.pop_front();
        return frame;
    }
    for (int i = QueuedState::kClasses; i--;) {
        if (!((state_.backlogged & ~state_.paused & ~state_.weighted) >> i & 1)) continue;
        uint32_t packet = next_of(state_.classes[size_t(i)], time);
        if (packet != kNoPacket) return packet;
    }
    if (!state_.weighted) return kNoPacket;
    return next_weighted(uint8_t(state_.backlogged & ~state_.paused & state_.weighted), time);
}

// As of gw_dequeue_weighted.
inline uint32_t Queued::next_weighted(uint8_t classes, Time time) {
    while (classes) {
        TrafficClass& found = state_.classes[size_t(state_.turn)];
        if ((classes >> state_.turn & 1) && found.deficit > 0) {
            uint32_t packet = next_of(found, time);
            if (packet != kNoPacket) {
                found.deficit -= std::max<int64_t>(net_.packets[packet].length, kLeastBytes) + kOverheadBytes;
                return packet;
            }
            classes &= uint8_t(~(1 << state_.turn));
            if (!classes) break;
        }
        if (!(state_.backlogged >> state_.turn & 1)) found.deficit = std::min<int64_t>(found.deficit, 0);
        do state_.turn = (state_.turn + 1) % QueuedState::kClasses;
        while (!(classes >> state_.turn & 1));
        TrafficClass& following = state_.classes[size_t(state_.turn)];
        following.deficit += following.options->class_quantum_bytes;
    }
    return kNoPacket;
}

// As of gw_dequeue_class and gw_round_robin.
inline uint32_t Queued::next_of(TrafficClass& found, Time time) {
    if (!found.options->has_flows()) return take(found, found.only, time);
    while (!found.fresh.empty() || !found.old.empty()) {
        bool is_new = !found.fresh.empty();
        Ring<Queue*>& turns = is_new ? found.fresh : found.old;
        Queue* queue = turns.front();
        if (queue->deficit <= 0) {
            queue->deficit += found.options->quantum_bytes;
            turns.pop_front();
            found.old.push_back(queue);
            continue;
        }
        uint32_t packet = take(found, *queue, time);
        if (packet != kNoPacket) {
            queue->deficit -= net_.packets[packet].length;
            return packet;
        }
        turns.pop_front();
        if (is_new && !found.old.empty()) found.old.push_back(queue);
        else queue->active = false;
    }
    return kNoPacket;
}

inline uint32_t Queued::take(TrafficClass& found, Queue& queue, Time time) {
    bool codel = found.options->kind == QueueKind::kCodel || found.options->kind == QueueKind::kFqCodel;
    return (codel ? codel_take(found, queue, time) : pop(found, queue, time)).packet;
}

// RFC 8289 as gw_codel_dequeue has it.
inline Held Queued::codel_take(TrafficClass& found, Queue& queue, Time time) {
    const QueueOptions& options = *found.options;
    bool too_long;
    Held held = codel_pop(found, queue, time, too_long);
    if (!too_long) {
        queue.dropping = false;
    } else if (!queue.dropping) {
        int64_t delta = queue.count - queue.last_count;
        bool soon = time < queue.drop_next_ns + 16 * options.interval_ns;
        queue.dropping = true;
        queue.count = queue.last_count = delta > 1 && soon ? delta : 1;
        if (!could_mark(found, held)) {
            drop(held, time);
            held = codel_pop(found, queue, time, too_long);
        }
        queue.drop_next_ns = codel_after(found, time, queue.count);
    } else {
        while (queue.dropping && time >= queue.drop_next_ns) {
            ++queue.count;
            Time following = codel_after(found, queue.drop_next_ns, queue.count);
            if (could_mark(found, held)) {
                queue.drop_next_ns = following;
                break;
            }
            drop(held, time);
            held = codel_pop(found, queue, time, too_long);
            if (too_long) queue.drop_next_ns = following;
            else queue.dropping = false;
        }
    }
    if (held.packet != kNoPacket && options.ce_threshold_ns >= 0 && time - held.came > options.ce_threshold_ns)
        port_.mark(net_.packets[held.packet]);
    return held;
}

inline Held Queued::codel_pop(TrafficClass& found, Queue& queue, Time time, bool& too_long) {
    Held held = pop(found, queue, time);
    too_long = false;
    if (held.packet == kNoPacket || time - held.came < found.options->target_ns || queue.bytes <= state_.frame_bytes)
        queue.first_above_ns = 0;
    else if (!queue.first_above_ns)
        queue.first_above_ns = time + found.options->interval_ns;
    else
        too_long = time >= queue.first_above_ns;
    return held;
}

// RFC 8289's control law: an interval over the root of the count.
inline Time Queued::codel_after(const TrafficClass& found, Time time, int64_t count) const {
    Time interval = found.options->interval_ns;
    unsigned __int128 square = (unsigned __int128)interval * interval / count;
    auto root = (unsigned __int128)std::sqrt((long double)square);
    while (root * root > square) --root;
    while ((root + 1) * (root + 1) <= square) ++root;
    return time + Time(root);
}

// As of gw_transmit.
inline void Queued::transmit(uint32_t number) {
    Packet& packet = net_.packets[number];
    state_.idle_since_ns = 0;
    if (packet.frame == Frame::kRequest && packet.hops_told < packet.hops_asked) {
        net_.packets.telemetry(packet.ranges)[packet.hops_told++] = {
            uint32_t(port_.ready()), uint32_t(state_.wire_bytes),
            uint16_t(std::min<int64_t>(port_.backlog / GW_INT_QUEUE_UNIT, UINT16_MAX)),
            uint16_t(port_.rate_bps / 100'000'000)};
    }
    state_.wire_bytes += std::max<int64_t>(packet.length, kLeastBytes) + kOverheadBytes;
    bool is_lost = packet.frame != Frame::kPause &&
                   (state_.faults.down || state_.random.hits(state_.faults.loss_q32) || state_.random.hits(state_.faults.corrupt_q32));
    if (is_lost) ++port_.drops;
    if (int number = class_of(packet); packet.frame != Frame::kPause && state_.classes[size_t(number)].options->has_credits()) {
        state_.classes[size_t(number)].spent += packet.length;
        look_for_credits(number);
    }
    Time leaves = port_.occupy(packet.length);
    if (packet.hop == 1) ++net_.sent;
    state_.sending = packet.hop == 1 && packet.sender != kNobody;
    // Nobody looks at the end of a transmission that no socket waits for, so one behind it may be told late.
    net_.tell_sender(packet, std::max(leaves, net_.now_ns));
    // A wire does not reorder, also when its delay was just shortened.
    if (!port_.flying.empty()) leaves = std::max(leaves, port_.flying.back().arrives - port_.delay_ns);
    port_.fly(leaves, number, packet.length, false, is_lost || packet.frame == Frame::kPause);
}

// Does all that its timer was set for; what has arrived goes on, or is taken by the neighbour's port (gw_serve).
inline void Queued::fire(Time now, std::vector<uint32_t>& arrived) {
    update(now);
    if (!state_.credits.empty() && state_.credits.front().time <= now)
        Queued(net_, number_ ^ 1).hear_of_credits(state_.credits, now);
    while (!port_.flying.empty() && port_.flying.front().arrives <= now) {
        bool ends_here = port_.flying.front().ends_here;
        uint32_t number = port_.land();
        if (!ends_here && !state_.has_credits) {
            net_.packets.prefetch(number);  // it is read once all ports have handed over theirs
            arrived.push_back(number);
            continue;
        }
        const Packet& packet = net_.packets[number];
        if (int which = class_of(packet); packet.frame != Frame::kPause && state_.classes[size_t(which)].options->has_credits())
            note_credit(number_ ^ 1, which, packet.length, now);  // it may go no further
        if (!ends_here) {
            arrived.push_back(number);
            continue;
        }
        if (packet.frame == Frame::kPause) Queued(net_, packet.target).pause(packet, now);
        net_.packets.drop(number);
    }
}
