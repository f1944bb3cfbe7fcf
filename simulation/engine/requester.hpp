// SPDX-License-Identifier: GPL-2.0-only
// The sending half of a queue pair, and what acknowledgements do to it: as rxe_req.c, rxe_comp.c and rxe_congestion.c.
#pragma once
#include "queue_pair.hpp"
#include "reroutes.hpp"

inline QueuePair::QueuePair(Network& network, uint32_t number, const RoceSetting& roce, const DeviceSetting& device,
                            CompletionQueue& completions, uint32_t completions_number)
    : net(network),
      number(number),
      roce_(roce),
      device_(device),
      controller_(device),
      completions_(completions),
      completions_number_(completions_number),
      retries_left_(roce.retries) {
    if (device.rate.kind == RXE_RATE_TIMELY || device.rate.kind == RXE_RATE_NSCC) sent_times_.resize(kSentTimes);
    rxe_entropy_init(&entropy_);
    if (device.entropy.values) value_of_.resize(kMostUnacknowledged);
}

inline void QueuePair::fill() {
    while (!waiting_.empty() && under_way_ < kMostUnderWay) {
        Waits next = waiting_.front();
        waiting_.pop_front();
        ++under_way_;
        Work work;
        work.message = next.message;
        work.is_write = next.is_write;
        work.size_bytes = next.size_bytes;
        works_.push_back(work);
        schedule(sender_, What::kSendTask);
    }
}

// As rxe_sched_task: a task that is busy looks again.
inline void QueuePair::schedule(Task& task, What what) {
    if (task == Task::kBusy) task = Task::kArmed;
    if (task != Task::kIdle) return;
    task = Task::kBusy;
    net.at_worker(what, number);
}

// As do_task.
inline void QueuePair::run(Task& task, What what, Time now) {
    for (;;) {
        bool goes_on = true;
        for (int64_t left = kMostRuns; goes_on && left >= 0; --left)
            goes_on = what == What::kSendTask ? send_step(now) : respond(now);
        bool was_armed = task == Task::kArmed;
        task = was_armed && !goes_on ? Task::kBusy : Task::kIdle;
        if (goes_on) schedule(task, what);
        if (goes_on || !was_armed) return;
    }
}

inline void QueuePair::fire(What what, Time now) {
    switch (what) {
        case What::kSendTask:
            return run(sender_, what, now);
        case What::kReceiveTask:
            return run(receiver_, what, now);
        case What::kQueuePairTimer:
            retry_event_ns_ = kNever;
            if (retry_ns_ > now) return set_retry_timer(retry_ns_ - roce_.timeout_ns);
            retry_ns_ = kNever;
            has_timed_out_ = true;
            return schedule(sender_, What::kSendTask);
        case What::kQueuePairPace:
            if (pace_ns_ != now) return;
            pace_ns_ = kNever;
            return schedule(sender_, What::kSendTask);
        case What::kQueuePairLost:
            if (lost_timer_ns_ != now) return;
            lost_timer_ns_ = kNever;
            return schedule(sender_, What::kSendTask);
        default:
            left_event_ns_ = kNever;
            if (waits_for_port_ && in_port(now) < kPortLow) schedule(sender_, What::kSendTask);
            return watch_port(now);
    }
}

// As rxe_sender: a step of the requester, one of the completer.
inline bool QueuePair::send_step(Time now) {
    bool requested = request(now), completed = complete(now);
    return requested || completed;
}

// Sends a packet where it may (rxe_requester). Whether there may be more to do.
inline bool QueuePair::request(Time now) {
    if (needs_retry_) {
        if (!retry_selectively(now)) retry();
        needs_retry_ = false;
    }
    if (has_lost(now)) {
        if (waits_for_port(now) || is_paced(now)) return false;
        send_again(now);
        return true;
    }
    if (next_work_ == works_.size()) return false;
    if (is_full(now)) {
        waits_for_psn_ = true;
        return false;
    }
    if (waits_for_port(now) || is_paced(now)) return false;

    Work& work = works_[next_work_];
    int64_t mtu = roce_.path_mtu_bytes;
    int64_t count = std::max<int64_t>(1, (work.size_bytes + mtu - 1) / mtu);
    bool is_first = !work.packets, is_last = work.packets + 1 == count;
    if (is_first) {
        work.first_psn = next_psn_;
        work.last_psn = next_psn_ + count - 1;
    }
    bool asks = is_last || ++unasked_ >= std::min(device_.ack_every, window(now));
    if (asks) unasked_ = 0;
    send_packet(work, next_psn_, asks, now);
    if (next_psn_ < highest_psn_) ++resent;

    work.state = is_last ? Work::kPending : Work::kProcessing;
    ++work.packets;
    ++next_psn_;
    highest_psn_ = std::max(highest_psn_, next_psn_);
    if (is_last) ++next_work_;
    waits_for_port_ = false;
    if (retry_ns_ == kNever) set_retry_timer(now);
    return true;
}

inline void QueuePair::send_packet(const Work& work, int64_t psn, bool asks, Time now) {
    int64_t mtu = roce_.path_mtu_bytes;
    int64_t payload = std::min(mtu, work.size_bytes - (psn - work.first_psn) * mtu);
    bool is_first = psn == work.first_psn, is_last = psn == work.last_psn;
    int64_t bytes = kBthBytes + payload + (-payload & 3) + kCrcBytes;
    if (work.is_write && (is_first || device_.selective)) bytes += kRethBytes;
    if (is_last) bytes += kImmediateBytes;
    uint32_t made = make(Frame::kRequest, psn, bytes);
    Packet& packet = net.packets[made];
    packet.ect = device_.ecn;
    packet.data = uint32_t(payload);
    packet.message = work.message;
    packet.is_write = work.is_write;
    packet.is_last = is_last;
    packet.asks = asks;
    emit(made, now);
    has_sent(bytes, now);
    ++sent;
}

// Whether its packets in the host's port are so many that no other may follow.
inline bool QueuePair::waits_for_port(Time now) {
    if (in_port(now) <= kPortHigh || retry_ns_ == kNever) return false;
    waits_for_port_ = true;
    watch_port(now);
    return true;
}

// Begins anew with what is not acknowledged (req_retry).
inline void QueuePair::retry() {
    next_work_ = 0;
    next_psn_ = acked_psn_;
    for (uint32_t i = 0; i < works_.size(); ++i) {
        Work& work = works_[i];
        if (work.state == Work::kPosted) break;
        work.packets = i ? 0 : acked_psn_ - work.first_psn;
        work.state = Work::kPosted;
    }
}

// Takes in an acknowledgement, if there is one (rxe_completer). Whether there may be more to do.
inline bool QueuePair::complete(Time now) {
    again_ = false;
    bool timed_out = has_timed_out_;
    has_timed_out_ = false;
    if (needs_retry_) return false;

    bool has_told = !responses_.empty();
    Told told{};
    if (has_told) {
        told = responses_.front();
        responses_.pop_front();
        timed_out = false;
        has_been_acked(told, now);
        if (has_heard(told, now)) reset_retry_counters();
    }
    auto exits = [&] {
        bool found = again_;
        again_ = false;
        return found;
    };
    auto retries = [&](bool has_work) {  // COMPST_ERROR_RETRY
        if (!has_work || works_.front().state == Work::kPosted) return exits();
        again_ = false;
        if (started_retry_ && !timed_out) return true;
        if (!retries_left_)
            throw BadScenario("a queue pair sends a packet " + std::to_string(roce_.retries + 1) +
                              " times and hears nothing of it: transport retry counter exceeded");
        --retries_left_;
        if (timed_out) ++timeouts;
        if (next_psn_ > acked_psn_) needs_retry_ = started_retry_ = true;
        return true;
    };
    auto completes = [&] {
        Work work = works_.front();
        works_.pop_front();
        --next_work_;
        tell(work.is_write ? Completion::kMessageSent : Completion::kCreditSent, work.message, now);
    };
    auto updates = [&] {  // COMPST_UPDATE_COMP
        acked_psn_ = std::max(acked_psn_, told.psn + 1);
        need_no_psn();
    };
    for (;;) {
        bool has_work = !works_.empty();
        if (!has_work || works_.front().state == Work::kPosted) {
            if (has_told) {
                again_ = false;
                return true;
            }
            if (timed_out && has_work) return retries(true);
            reset_retry_timer(now);
            return exits();
        }
        Work& work = works_.front();
        if (!has_told) {
            if (timed_out) return retries(true);
            reset_retry_timer(now);
            return exits();
        }
        if (told.psn > work.last_psn) {
            if (work.state != Work::kPending) break;
            reset_retry_counters();
            acked_psn_ = std::max(acked_psn_, work.last_psn + 1);
            need_no_psn();
            completes();
            continue;
        }
        if (told.psn < acked_psn_) {
            if (told.psn == work.last_psn) completes();
            break;
        }
        if (told.frame == Frame::kNak) {
            ++naks;
            if (told.psn > acked_psn_) {
                reset_retry_counters();
                acked_psn_ = told.psn;
                need_no_psn();
            }
            return retries(true);
        }
        reset_retry_counters();
        if (work.state == Work::kPending && work.last_psn == told.psn) completes();
        updates();
        break;
    }
    again_ = false;
    return true;
}

// Timers.

inline void QueuePair::set_retry_timer(Time now) {
    retry_ns_ = now + roce_.timeout_ns;
    if (retry_event_ns_ <= retry_ns_) return;
    retry_event_ns_ = retry_ns_;
    net.at_timers(retry_ns_, What::kQueuePairTimer, number);
}

inline void QueuePair::reset_retry_timer(Time now) {
    if (next_psn_ <= acked_psn_ || awaits_ack()) return;
    timer_psn_ = acked_psn_;
    set_retry_timer(now);
}

// Congestion control (rxe_congestion.c).

inline int64_t QueuePair::window(Time now) {
    int64_t bytes = device_.window_bytes;
    if (controller_.set.kind == RXE_RATE_DCTCP) bytes = int64_t(controller_.dctcp.window_bytes);
    if (controller_.set.kind == RXE_RATE_NSCC) bytes = int64_t(controller_.nscc.window_bytes);
    if (!bytes) return kMostUnacknowledged;
    if (device_.window_by_rate)
        bytes = int64_t(__int128(bytes) * controller_.rate_bps(now) / controller_.set.line_bps);
    int64_t mtu = roce_.path_mtu_bytes;
    return std::clamp<int64_t>((bytes + mtu - 1) / mtu, 1, kMostUnacknowledged);
}

inline bool QueuePair::is_paced(Time now) {
    if (controller_.is_fixed()) return false;
    uint64_t rate = controller_.rate_bps(now);
    if (rate >= controller_.set.line_bps) return false;
    Time due_q8 = started_q8_ + Time(bits_ * uint64_t(kSecondNs) * 256 / rate);
    if (due_q8 <= now << 8) return false;
    pace_ns_ = (due_q8 + 255) >> 8;
    net.at_timers(pace_ns_, What::kQueuePairPace, number);
    return true;
}

inline void QueuePair::has_sent(int64_t bytes, Time now) {
    if (controller_.is_fixed()) return;
    Time now_q8 = now << 8;
    Time due_q8 = started_q8_ + Time(bits_ * uint64_t(kSecondNs) * 256 / controller_.rate_bps(now));
    // A request that was due within this nanosecond began when it was due.
    started_q8_ = due_q8 + 256 > now_q8 && due_q8 <= now_q8 ? due_q8 : now_q8;
    if (device_.int_hops) bytes += kIntHeaderBytes + device_.int_hops * kIntHopBytes;
    bits_ = 8 * uint64_t(bytes + kEthernetBytes + kIpBytes + kUdpBytes + kWireOverheadBytes);
}

inline void QueuePair::has_been_acked(const Told& told, Time now) {
    auto kind = controller_.set.kind;
    if (kind != RXE_RATE_TIMELY && kind != RXE_RATE_HPCC && kind != RXE_RATE_DCTCP) return;
    int64_t psn = has_bitmap(told.frame) ? told.answers : told.psn;
    if (told.frame == Frame::kTrimmed || knows(psn)) {
        if (told.telemetry != kNobody) free_telemetry(told);
        return;
    }
    bool round_over = !in_round_ || psn >= round_psn_;
    if (kind == RXE_RATE_HPCC) {
        if (told.telemetry != kNobody) {
            rxe_hpcc_ack(&controller_.hpcc, &controller_.set, net.packets.telemetry(told.telemetry), told.hops, round_over);
            free_telemetry(told);
        }
    } else if (kind == RXE_RATE_DCTCP) {
        rxe_dctcp_ack(&controller_.dctcp, &controller_.set, uint64_t(roce_.path_mtu_bytes), told.is_marked, round_over);
    } else {
        SentTime& found = sent_times_[size_t(psn) % kSentTimes];
        if (!round_over || found.psn != psn) return;
        found.psn = -1;
        rxe_timely_rtt(&controller_.timely, &controller_.set, uint64_t(now - found.left_ns));
    }
    if (round_over) {
        round_psn_ = next_psn_;
        in_round_ = true;
    }
}

// With selective repeat: so many packets more are known to have come (rxe_congestion_heard).
inline void QueuePair::has_learnt(const Told& told, int64_t packets, Time now) {
    if (controller_.set.kind != RXE_RATE_NSCC) return;
    uint64_t mtu = uint64_t(roce_.path_mtu_bytes), rtt = 0;
    int64_t psn = has_bitmap(told.frame) ? told.answers : told.psn;
    rxe_nscc_heard heard{uint64_t(now), mtu, uint64_t(device_.window_bytes), uint64_t(packets) * mtu,
                         uint64_t(in_flight()) * mtu};
    SentTime& found = sent_times_[size_t(psn) % kSentTimes];
    if (found.psn == psn) {
        found.psn = -1;
        rtt = uint64_t(now - found.left_ns);
    }
    if (told.frame == Frame::kTrimmed) rxe_nscc_trimmed(&controller_.nscc, &controller_.set, &heard);
    else rxe_nscc_acked(&controller_.nscc, &controller_.set, &heard, rtt, has_bitmap(told.frame) && told.is_marked);
}

// The host's port.

inline uint32_t QueuePair::make(Frame frame, int64_t psn, int64_t bytes) {
    uint32_t taken = take_route(frame, psn);
    uint32_t made = net.packets.make();
    Packet& packet = net.packets[made];
    packet.frame = frame;
    packet.route = taken;
    packet.hops = hops;
    packet.hop = 1;
    packet.target = peer;
    packet.sender = number;
    packet.selector = device_.trim && frame != Frame::kRequest ? GW_TOS_CONTROL >> 5 : selector;
    packet.seq = psn;
    packet.length = uint32_t(kEthernetBytes + roce_.outer_bytes + kIpBytes + kUdpBytes + bytes);
    if (frame == Frame::kRequest && device_.int_hops) {
        packet.hops_asked = device_.int_hops;
        packet.ranges = net.packets.make_telemetry();
        packet.length += uint32_t(kIntHeaderBytes + device_.int_hops * kIntHopBytes);
    }
    return made;
}

// The route of the next packet, by its entropy value (rxe_paths.c).
inline uint32_t QueuePair::take_route(Frame frame, int64_t psn) {
    if (!value_routes) return route;
    uint32_t value = uint32_t(psn), probe = uint32_t(device_.entropy.values);
    if (frame != Frame::kProbe) value = rxe_entropy_take(&entropy_, &device_.entropy, uint64_t(net.now_ns), &probe);
    if (frame == Frame::kRequest) value_of_[size_t(psn % kMostUnacknowledged)] = uint8_t(value);
    if (probe < device_.entropy.values) emit(make(Frame::kProbe, probe, kBthBytes + kCrcBytes), net.now_ns);
    return value_routes[value];
}

// A packet did not come in time (rxe_missed).
inline void QueuePair::path_loses(int64_t psn, Time now) {
    if (controller_.set.kind == RXE_RATE_NSCC) rxe_nscc_lost(&controller_.nscc, uint64_t(roce_.path_mtu_bytes));
    if (value_routes)
        rxe_entropy_lost(&entropy_, &device_.entropy, value_of_[size_t(psn % kMostUnacknowledged)], uint64_t(now));
}

// Gives a packet to the host's port (rxe_send), or to the other queue pair where that is on the same host: it takes no
// time, and does not count as one in the port (rxe_loopback).
inline void QueuePair::emit(uint32_t number, Time now) {
    if (!hops) {
        net.queue_pairs[peer]->receive(number, now);
        return net.packets.drop(number);
    }
    bool has_route = net.packets[number].route != Reroutes::kNoRoute;
    uint32_t port = has_route ? net.links[net.packets[number].route] : kNobody;
    ++held_;
    Time leaves = has_route ? net.send(port, number, now) : kLost;
    if (leaves == kLost) {
        if (net.packets[number].frame == Frame::kRequest)
            throw BadScenario(has_route ? "a host's own port has no room for a packet of a queue pair, or its link is down, "
                                          "which ends the queue pair"
                                        : "a host has no route for a packet of a queue pair, which ends the queue pair");
        --held_;
        net.packets.drop(number);
    } else if (leaves != kHeld) {
        leaves_port(net.packets[number], leaves);
        net.leaves_host(port, leaves);
    }
}

inline void QueuePair::leaves_port(const Packet& packet, Time leaves_ns) {
    --held_;
    leaving_.push_back(leaves_ns);
    if (!sent_times_.empty() && packet.frame == Frame::kRequest &&
        (packet.asks || controller_.set.kind == RXE_RATE_NSCC))
        sent_times_[size_t(packet.seq) % kSentTimes] = {packet.seq, leaves_ns};
    watch_port(net.now_ns);
}

inline int64_t QueuePair::in_port(Time now) {
    while (!leaving_.empty() && leaving_.front() <= now) leaving_.pop_front();
    return held_ + leaving_.size();
}

// While the requester waits for room in the port, each packet that leaves fewer than so many there wakes it
// (rxe_skb_tx_dtor).
inline void QueuePair::watch_port(Time now) {
    if (!waits_for_port_ || left_event_ns_ != kNever) return;
    int64_t leaves = std::max<int64_t>(1, in_port(now) - kPortLow + 1);
    if (leaves > int64_t(leaving_.size())) return;
    left_event_ns_ = leaving_[uint32_t(leaves - 1)];
    net.at_timers(left_event_ns_, What::kHasLeftPort, number);
}
