// SPDX-License-Identifier: GPL-2.0-only
// The receiving half of a queue pair: as rxe_recv.c and rxe_resp.c. A receive is posted for whatever comes:
// each end has as many as the other has works under way, and its rank posts them anew at once.
#pragma once
#include "selective.hpp"

inline void QueuePair::receive(uint32_t number, Time now) {
    Packet& packet = net.packets[number];
    if (packet.frame == Frame::kCnp) {
        ++cnps;
        if (controller_.set.kind == RXE_RATE_DCQCN) rxe_dcqcn_cnp(&controller_.dcqcn, &controller_.set, uint64_t(now));
        return;
    }
    if (packet.frame == Frame::kProbe) return emit(make(Frame::kProbeAnswer, packet.seq, kBthBytes + kCrcBytes), now);
    if (packet.frame == Frame::kProbeAnswer) return rxe_entropy_answered(&entropy_, uint32_t(packet.seq));
    bool is_request = packet.frame == Frame::kRequest;
    if (is_request && packet.ce && controller_.set.kind == RXE_RATE_DCQCN && now >= cnp_after_ns_) {
        cnp_after_ns_ = now + Time(controller_.set.cnp_interval_ns);
        emit(make(Frame::kCnp, 0, kBthBytes + kCnpBytes + kCrcBytes), now);
    }
    Told told{packet.seq, packet.frame, packet.is_write, packet.is_last, packet.asks, packet.message, packet.hops_told, kNobody};
    told.is_trimmed = packet.is_trimmed;
    told.is_marked = !is_request ? packet.ece : packet.is_trimmed ? !packet.is_trimmed_last : packet.ce && value_routes;
    told.is_congested = is_request && packet.ce;
    if (has_bitmap(packet.frame)) {
        told.answers = packet.ack;
        told.came = uint64_t(packet.echo_ms) << 32 | packet.stamp_ms;
    }
    if (packet.hops_asked) {
        told.telemetry = packet.ranges;
        packet.hops_asked = 0;  // it is ours now
    }
    (is_request ? requests_ : responses_).push_back(told);
    if (is_request) schedule(receiver_, What::kReceiveTask);
    else schedule(sender_, What::kSendTask);
}

// Answers a request (rxe_receiver). Whether there was one.
inline bool QueuePair::respond(Time now) {
    if (device_.selective) take_early(now);
    if (requests_.empty()) return false;
    Told told = requests_.front();
    requests_.pop_front();
    if (told.is_trimmed) {
        if (told.psn >= expected_psn_ && !early_.contains(told.psn)) answer(Frame::kTrimmed, told, now);
    } else if (told.psn > expected_psn_ && device_.selective) {
        keep(told, now);
    } else if (told.psn > expected_psn_) {
        if (!sent_nak_) {
            sent_nak_ = true;
            acknowledge(Frame::kNak, expected_psn_, nullptr, now);
        }
    } else if (told.psn < expected_psn_) {
        acknowledge(Frame::kAcknowledge, expected_psn_ - 1, nullptr, now);
    } else {
        sent_nak_ = false;
        ++expected_psn_;
        if (told.is_last) tell(told.is_write ? Completion::kMessageCame : Completion::kCreditCame, told.message, now);
        if (told.is_marked && !told.is_early) answer(Frame::kBitmap, told, now);
        else if (told.asks && !told.is_early) acknowledge(Frame::kAcknowledge, told.psn, &told, now);
    }
    if (told.telemetry != kNobody) free_telemetry(told);
    return true;
}

inline void QueuePair::acknowledge(Frame frame, int64_t psn, const Told* answered, Time now, uint64_t came) {
    int64_t more = has_bitmap(frame) ? kBitmapBytes : 0;
    uint32_t made = make(frame, psn, kBthBytes + kAethBytes + more + kCrcBytes);
    if (has_bitmap(frame)) {
        Packet& packet = net.packets[made];
        packet.ack = answered->psn;
        packet.ece = answered->is_marked;
        packet.stamp_ms = uint32_t(came);
        packet.echo_ms = uint32_t(came >> 32);
    }
    if (answered && controller_.set.kind == RXE_RATE_DCTCP) net.packets[made].ece = answered->is_congested;
    if (answered && answered->telemetry != kNobody) {
        Packet& packet = net.packets[made];
        packet.ranges = net.packets.make_telemetry();
        packet.hops_asked = packet.hops_told = answered->hops;  // no port has room to write
        std::copy_n(net.packets.telemetry(answered->telemetry), answered->hops, net.packets.telemetry(packet.ranges));
        packet.length += uint32_t(kIntHeaderBytes + answered->hops * kIntHopBytes);
    }
    emit(made, now);
}

inline void QueuePair::tell(Completion::Kind kind, int32_t message, Time now) {
    completions_.found.push_back({kind, number, message});
    if (completions_.told) return;
    completions_.told = true;
    net.at_processes(now, What::kCompletions, completions_number_, 0);
}

inline void QueuePair::free_telemetry(const Told& told) { net.packets.free_telemetry(told.telemetry); }
