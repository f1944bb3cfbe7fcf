// SPDX-License-Identifier: GPL-2.0-only
// What acknowledgements do to a TCP sender: windows, losses, retransmissions. As tcp_ack and what it calls
// do it (net/ipv4/tcp_input.c and tcp_recovery.c of Linux 6.12): proportional rate reduction (RFC 6937), RACK
// (RFC 8985), F-RTO (RFC 5682). A reduction is undone where a timer was wrong, and not for what comes twice:
// paths do not reorder.
#pragma once
#include "bbr.hpp"
#include "endpoint.hpp"

// As of tcp_ack.
inline void Endpoint::on_ack(const Packet& packet, Time now) {
    int64_t ack = packet.ack;
    if (ack < snd_una) return;
    bool advanced = ack > snd_una;
    if (advanced) {
        retransmits_ = 0;
        snd_una = ack;
    }
    int64_t prior_delivered = delivered, prior_lost = lost;
    int64_t prior_in_flight = paces ? in_flight() : 0;
    first_sacked_ns_ = last_sacked_ns_ = 0;
    bool sacked_now = packet.sacks ? take_sacks(packet, now) : false;
    if (!packets_out) {
        control_in_ack_event();
        if (probe_seq_) end_probe(packet, advanced, sacked_now);
        return;
    }
    int64_t rtt_us = -1, ca_rtt_us = -1;
    int64_t acked = advanced ? clean(packet.ece, now, rtt_us, ca_rtt_us) : 0;
    bool sets_timer = acked > 0;
    if (sacked_now && first_sacked_ns_) {
        ca_rtt_us = now / 1000 - last_sacked_ns_ / 1000;
        int64_t sack_rtt_us = now / 1000 - first_sacked_ns_ / 1000;
        if (rtt_us < 0) rtt_us = sack_rtt_us;
        Time head = unacked_.empty() ? now : unacked_.front().sent_ns;
        sets_timer |= sack_rtt_us > now / 1000 - head / 1000;
    }
    if (rtt_us >= 0) {
        min_rtt_us = std::min(min_rtt_us, std::max<int64_t>(ca_rtt_us, 1));
        measured(rtt_us);
    }
    control_pkts_acked(ca_rtt_us, now);
    control_in_ack_event();
    if (probe_seq_) end_probe(packet, advanced, sacked_now);
    Again again = kNothing;
    bool suspicious = !(packet.data || acked || advanced);
    if (suspicious || packet.ece || sacked_now || packet.dsack || state != kOpen) {
        reorder_armed_ = false;
        again = alert(packet, advanced, sacked_now, suspicious, now);
        sets_timer &= !reorder_armed_;
    }
    if (sets_timer) acknowledged(now);
    int64_t delivered_now = delivered - prior_delivered, lost_now = lost - prior_lost;
    if (paces) {
        bbr_->main(rate.sample(delivered, delivered_now, lost_now, prior_in_flight, ca_rtt_us, min_rtt_us, now), now);
    } else {
        if (state == kCwr || state == kRecovery) reduce(delivered_now, lost_now, advanced);
        else if (acked) control_cong_avoid(delivered_now, now);
        update_pacing_rate();
    }
    if (again != kNothing) recover(again, now);
}

// As of tcp_xmit_recovery.
inline void Endpoint::recover(Again again, Time now) {
    if (again == kSendNew) {
        xmit(now);
        if (snd_nxt > high_seq_) return;
        frto_ = false;
    }
    retransmit_lost(now);
}

// Takes what is acknowledged off the queue (tcp_clean_rtx_queue): segments, and the round trips of the first
// and the last one, -1 where none tells.
inline int64_t Endpoint::clean(bool ece, Time now, int64_t& rtt_us, int64_t& ca_rtt_us) {
    int64_t acked = 0;
    Time first = -1, last = 0;
    bool resent = false;
    Time oldest_ns = unacked_.empty() ? 0 : unacked_.front().sent_ns;
    original_acked_ = false;
    while (!unacked_.empty() && unacked_.front().end_seq <= snd_una) {
        Segment& segment = unacked_.front();
        unacked_.pop_front();  // its place is not taken before this is done
        ++acked;
        if (segment.retransmitted) {
            retrans_out -= segment.again;
            resent = true;
        } else if (!segment.sacked) {
            last = segment.sent_ns;
            if (first < 0) first = last;
            if (segment.end_seq <= high_seq_) original_acked_ = true;
        }
        if (segment.sacked) {
            --sacked_out;
        } else {
            ++delivered;
            if (ece) ++delivered_ce;
            rack(segment, now);
        }
        if (paces) rate.took(segment);
        lost_out -= segment.lost;
        --packets_out;
        charged_ -= segment.end_seq - segment.seq + kSkbBytes;
    }
    rtt_us = ca_rtt_us = -1;
    if (first >= 0 && !resent) {
        rtt_us = now / 1000 - first / 1000;
        ca_rtt_us = now / 1000 - last / 1000;
    } else if (acked && !first_sacked_ns_) {
        // The timestamp that comes back tells, in milliseconds, and at least one (tcp_rtt_tsopt_us).
        rtt_us = ca_rtt_us = 1000 * std::max<int64_t>(1, now / kJiffyNs - oldest_ns / kJiffyNs);
    }
    return acked;
}

// As of tcp_sacktag_write_queue: whether something is new.
inline bool Endpoint::take_sacks(const Packet& packet, Time now) {
    bool found = false;
    const Range* ranges = net.packets.ranges(packet);
    for (uint32_t i = 0; i < unacked_.size(); ++i) {
        Segment& segment = unacked_[i];
        if (segment.sacked || segment.end_seq <= packet.ack) continue;
        bool told = false;
        for (uint8_t k = 0; k < packet.sacks && !told; ++k)
            told = ranges[k].first <= segment.seq && segment.end_seq <= ranges[k].last;
        if (!told) continue;
        found = segment.sacked = true;
        if (!segment.retransmitted) {
            if (!first_sacked_ns_) first_sacked_ns_ = segment.sent_ns;
            last_sacked_ns_ = segment.sent_ns;
        }
        retrans_out -= segment.again;
        segment.again = false;
        lost_out -= segment.lost;
        segment.lost = false;
        ++sacked_out;
        ++delivered;
        if (packet.ece) ++delivered_ce;
        rack(segment, now);
        if (paces) rate.took(segment);
    }
    return found;
}

// As of tcp_fastretrans_alert; what is to be sent then.
inline Endpoint::Again Endpoint::alert(const Packet& packet, bool advanced, bool sacked, bool suspicious, Time now) {
    if (packet.ece) prior_ssthresh_ = 0;
    bool beyond = state == kCwr && snd_una > high_seq_;
    if (beyond || (state == kRecovery && snd_una >= high_seq_)) {
        end_reduction();
        state = kOpen;
    }
    if (state == kRecovery) {
        find_losses(now);
        return kResendLost;
    }
    Again again = kNothing;
    if (state == kLoss) {
        again = process_loss(advanced, sacked, suspicious);
        int64_t under_way = retrans_out;
        find_losses(now);
        if (state == kLoss && retrans_out >= under_way) return again;
    }
    find_losses(now);
    if (!lost_out) {
        try_to_open(packet.ece);
        return again;
    }
    enter_recovery(packet.ece);
    return kResendLost;
}

inline void Endpoint::try_to_open(bool ece) {
    if (ece) begin_cwr();
    if (state != kCwr) keep_open();
}

// As of tcp_try_keep_open.
inline void Endpoint::keep_open() {
    bool again = retrans_out || (!unacked_.empty() && unacked_.front().retransmitted);
    CaState next = sacked_out || lost_out || again ? kDisorder : kOpen;
    if (state != next) {
        state = next;
        high_seq_ = snd_nxt;
    }
}

// As of tcp_enter_cwr.
inline void Endpoint::begin_cwr() {
    prior_ssthresh_ = 0;
    if (state < kCwr) {
        begin_reduction();
        state = kCwr;
    }
}

// As of tcp_init_cwnd_reduction.
inline void Endpoint::begin_reduction() {
    high_seq_ = snd_nxt;
    probe_seq_ = 0;
    cwnd_cnt = 0;
    prior_cwnd_ = cwnd;
    prr_delivered_ = prr_out_ = 0;
    ssthresh = control_ssthresh();
    sends_cwr_ = ecn;
}

// As of tcp_cwnd_reduction.
inline void Endpoint::reduce(int64_t delivered_now, int64_t lost_now, bool advanced) {
    if (delivered_now <= 0) return;
    prr_delivered_ += delivered_now;
    int64_t flying = in_flight(), delta = ssthresh - flying, count;
    if (delta < 0) {
        count = (ssthresh * prr_delivered_ + prior_cwnd_ - 1) / prior_cwnd_ - prr_out_;
    } else {
        count = std::max(prr_delivered_ - prr_out_, delivered_now);
        if (advanced && !lost_now) ++count;
        count = std::min(delta, count);
    }
    cwnd = flying + std::max<int64_t>(count, prr_out_ ? 0 : 1);
}

inline void Endpoint::enter_recovery(bool ece) {
    prior_ssthresh_ = 0;
    if (state != kCwr && state != kRecovery) {
        if (!ece) prior_ssthresh_ = current_ssthresh();
        begin_reduction();
    }
    high_seq_ = snd_nxt;
    if (control == Control::kDctcp) dctcp_.react_to_loss(*this);
    state = kRecovery;
}

// As of tcp_current_ssthresh.
inline int64_t Endpoint::current_ssthresh() const {
    if (state == kCwr || state == kRecovery) return ssthresh;
    return std::max(ssthresh, (cwnd >> 1) + (cwnd >> 2));
}

// As of tcp_rack_advance.
inline void Endpoint::rack(const Segment& segment, Time now) {
    int64_t sent_us = segment.sent_ns / 1000, rtt_us = now / 1000 - sent_us;
    if (segment.retransmitted && rtt_us < min_rtt_us) return;
    rack_advanced_ = true;
    rack_rtt_us_ = rtt_us;
    if (sent_us > rack_us_ || (sent_us == rack_us_ && segment.end_seq > rack_seq_)) {
        rack_us_ = sent_us;
        rack_seq_ = segment.end_seq;
    }
}

// As of tcp_rack_mark_lost.
inline void Endpoint::find_losses(Time now) {
    if (!rack_advanced_) return;
    rack_advanced_ = false;
    int64_t timeout_us = mark_losses(now);
    if (timeout_us) {
        reorder_armed_ = true;
        reorder_within(timeout_us, now);
    }
}

// As of tcp_rack_detect_loss: microseconds until a segment counts as lost, 0 for none.
inline int64_t Endpoint::mark_losses(Time now) {
    int64_t window_us = 0;
    if (!(state >= kRecovery || sacked_out >= kReordering)) window_us = std::min(min_rtt_us >> 2, srtt_us >> 3);
    int64_t timeout_us = 0, now_us = now / 1000;
    for (uint32_t i = 0; i < unacked_.size(); ++i) {
        Segment& segment = unacked_[i];
        if (segment.sacked || (segment.lost && !segment.again)) continue;
        int64_t sent_us = segment.sent_ns / 1000;
        if (sent_us > rack_us_ || (sent_us == rack_us_ && segment.end_seq >= rack_seq_)) {
            if (segment.retransmitted) continue;
            break;
        }
        int64_t left_us = rack_rtt_us_ + window_us - (now_us - sent_us);
        if (left_us <= 0) lose(segment);
        else timeout_us = std::max(timeout_us, left_us);
    }
    return timeout_us;
}

// As of tcp_mark_skb_lost.
inline void Endpoint::lose(Segment& segment) {
    if (segment.lost) {
        if (!segment.again) return;
        segment.again = false;
        --retrans_out;
    } else {
        segment.lost = true;
        ++lost_out;
    }
    ++lost;
}

// As of tcp_xmit_retransmit_queue.
inline void Endpoint::retransmit_lost(Time now) {
    if (retrans_out >= lost_out) return;
    bool rearms = false, splits = option_bytes_;
    for (uint32_t place = 0; place < unacked_.size(); ++place) {
        if (paces && is_paced(now)) break;
        if (in_flight() >= cwnd || retrans_out >= lost_out) break;
        const Segment& segment = unacked_[place];
        if (!segment.lost || segment.again || segment.sacked) continue;
        if (holds_enough(segment.end_seq - segment.seq, now, 1)) break;
        if (splits && option_bytes_) split(place);
        if (!send_again(place, now)) break;
        if (state == kCwr || state == kRecovery) ++prr_out_;
        rearms |= place == 0;
    }
    if (rearms) head_sent_again(now);
}

// As of tcp_retransmit_skb; whether the port had room. A probe does not count as what was sent again.
inline bool Endpoint::send_again(uint32_t place, Time now, bool is_probe) {
    if (option_bytes_) split(place);
    int64_t ack = acknowledgement();
    bool ece = demands_cwr_;
    uint32_t made = make_packet(unacked_[place].seq, unacked_[place].end_seq, ack);
    Packet& packet = net.packets[made];
    packet.ece = ece;
    packet.push = unacked_[place].push;
    packet.ect = ecn && needs_ecn;
    if (option_bytes_) tell_ranges(packet);
    if (!in_flight()) control_tx_start(now);
    last_sent_jiffies = now / kJiffyNs;
    data_sent(now);
    unacked_[place].retransmitted = true;
    ++retransmitted;
    if (!into_port(made, now)) return false;
    Segment& segment = unacked_[place];
    if (!segment.again && !is_probe) {
        segment.again = true;
        ++retrans_out;
    }
    segment.sent_ns = now;
    if (paces) pace(segment, now);
    return true;
}

// As of tcp_fragment: what does not fit beside the options of the header, and waits.
inline bool Endpoint::split(uint32_t place) {
    int64_t size = mss - option_bytes_;
    Segment& segment = unacked_[place];
    if (segment.end_seq - segment.seq <= size) return false;
    Segment rest{segment.seq + size, segment.end_seq, segment.sent_ns, segment.push};
    rest.lost = segment.lost;
    rest.retransmitted = segment.retransmitted;
    segment.end_seq = rest.seq;
    segment.push = false;
    unacked_.insert(place + 1, rest);
    ++packets_out;
    lost_out += rest.lost;
    charged_ += kSkbBytes;
    return true;
}

// As of tcp_process_loss; what is to be sent then.
inline Endpoint::Again Endpoint::process_loss(bool advanced, bool sacked, bool suspicious) {
    bool recovered = snd_una >= high_seq_;
    if (frto_) {
        if (advanced && original_acked_) {
            undo();
            return kNothing;
        }
        if (snd_nxt > high_seq_) {
            if (sacked || suspicious) frto_ = false;
        } else if (advanced && !recovered) {
            high_seq_ = snd_nxt;
            if (!queue_.empty() && snd_una + window_bytes_ > snd_nxt) return kSendNew;
            frto_ = false;
        }
    }
    if (recovered) {
        state = kOpen;
        return kNothing;
    }
    return kResendLost;
}

// The timer was wrong, as what it took to be lost has come (tcp_try_undo_loss).
inline void Endpoint::undo() {
    for (uint32_t i = 0; i < unacked_.size(); ++i) unacked_[i].lost = false;
    lost_out = 0;
    if (prior_ssthresh_) {
        cwnd = std::max(cwnd, prior_cwnd_);
        if (prior_ssthresh_ > ssthresh) {
            ssthresh = prior_ssthresh_;
            sends_cwr_ = false;
        }
    }
    rack_advanced_ = true;
    retransmits_ = 0;
    state = kOpen;
}

// As of tcp_process_tlp_ack.
inline void Endpoint::end_probe(const Packet& packet, bool advanced, bool sacked) {
    if (packet.ack < probe_seq_) return;
    if (!probe_again_ || packet.dsack) {
        probe_seq_ = 0;
    } else if (packet.ack > probe_seq_) {
        begin_reduction();
        state = kCwr;
        end_reduction();
        keep_open();
    } else if (!advanced && !sacked) {
        probe_seq_ = 0;
    }
}
