// SPDX-License-Identifier: GPL-2.0-only
// Acknowledgements and what they do to a TCP sender: windows, losses, retransmissions. As tcp_ack and what it calls
// do it (net/ipv4/tcp_input.c and tcp_recovery.c of Linux 6.12): proportional rate reduction (RFC 6937), RACK
// (RFC 8985), F-RTO (RFC 5682), DSACK (RFC 2883), and reductions that are undone where nothing was lost.
#pragma once
#include "bbr.hpp"
#include "endpoint.hpp"

// As of tcp_ack.
inline void Endpoint::on_ack(const Packet& packet, Time now) {
    int64_t ack = packet.ack, prior_una = snd_una;
    echoed_ms_ = packet.echo_ms;
    first_sacked_ns_ = last_sacked_ns_ = 0;
    sampled_delivered_ = 0;
    sacked_ = original_acked_ = duplicates_ = duplicates_probe_ = false;
    if (ack < snd_una) {
        if (packet.sacks) take_old(packet, now);
        return;
    }
    int64_t prior_highest = highest_sacked();
    advanced_ = ack > snd_una;
    if (advanced_) {
        retransmits_ = 0;
        snd_una = ack;
    }
    int64_t prior_delivered = delivered, prior_lost = lost;
    int64_t prior_in_flight = paces ? in_flight() : 0;
    if (packet.sacks) {
        int64_t delivered_now = take_sacks(packet, prior_una, now);
        delivered += delivered_now;
        if (packet.ece) delivered_ce += delivered_now;
    }
    if (!packets_out) {
        is_duplicate_ = !(packet.data || advanced_ || window_updated_);
        control_in_ack_event();
        if (duplicates_) alert(packet.ece, prior_una, now);
        if (probe_seq_) end_probe(packet);
        return;
    }
    int64_t rtt_us = -1, ca_rtt_us = -1;
    int64_t acked = advanced_ ? clean(packet, prior_highest, now, rtt_us, ca_rtt_us) : 0;
    bool sets_timer = acked > 0;
    if (sacked_ && first_sacked_ns_) {
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
    widen_reordering();
    control_in_ack_event();
    is_duplicate_ = !(packet.data || acked || advanced_ || window_updated_);
    if (probe_seq_) end_probe(packet);
    Again again = kNothing;
    if (is_duplicate_ || packet.ece || sacked_ || duplicates_ || state != kOpen) {
        reorder_armed_ = false;
        is_duplicate_ = is_duplicate_ && !duplicates_;
        again = alert(packet.ece, prior_una, now);
        sets_timer &= !reorder_armed_;
    }
    if (sets_timer) acknowledged(now);
    int64_t delivered_now = delivered - prior_delivered, lost_now = lost - prior_lost;
    if (paces) {
        bbr_->main(rate.sample(delivered, delivered_now, lost_now, prior_in_flight, ca_rtt_us, min_rtt_us, now), now);
    } else {
        if (state == kCwr || state == kRecovery) reduce(delivered_now, lost_now, advanced_);
        else if (acked || (sacked_ && reordering_ > kReordering)) control_cong_avoid(delivered_now, now);
        update_pacing_rate();
    }
    if (again != kNothing) recover(again, now);
}

// An acknowledgement that a newer one has overtaken tells by its ranges alone; what they deliver counts nowhere
// (old_ack of tcp_ack).
inline void Endpoint::take_old(const Packet& packet, Time now) {
    advanced_ = is_duplicate_ = false;
    take_sacks(packet, snd_una, now);
    if (paces) rate.forget();
    Again again = alert(false, snd_una, now);
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
inline int64_t Endpoint::clean(const Packet& packet, int64_t prior_highest, Time now, int64_t& rtt_us, int64_t& ca_rtt_us) {
    int64_t acked = 0, low_seq = snd_nxt;
    Time first = -1, last = 0;
    bool resent = false;
    while (!unacked_.empty() && unacked_.front().end_seq <= snd_una) {
        Segment& segment = unacked_.front();
        unacked_.pop_front();  // its place is not taken before this is done
        ++acked;
        if (segment.retransmitted) {
            retrans_out -= segment.again;
            --resent_out_;
            resent = true;
        } else if (!segment.sacked) {
            last = segment.sent_ns;
            if (first < 0) first = last;
            low_seq = std::min(low_seq, segment.seq);
            if (segment.end_seq <= high_seq_) original_acked_ = true;
        }
        if (segment.sacked) {
            --sacked_out;
        } else {
            ++delivered;
            if (packet.ece) ++delivered_ce;
            // The echoed time is older than the last copy: another one has come (tcp_skb_spurious_retrans).
            if (!segment.retransmitted || echoed_ms_ >= segment.sent_ns / kJiffyNs) rack(segment, now);
        }
        if (!segment.sacked) took(segment);
        lost_out -= segment.lost;
        --packets_out;
        charged_ -= segment.end_seq - segment.seq + (segment.merged ? 0 : kSkbBytes);
    }
    rtt_us = ca_rtt_us = -1;
    if (first >= 0 && !resent) {
        rtt_us = now / 1000 - first / 1000;
        ca_rtt_us = now / 1000 - last / 1000;
    } else if (acked && !first_sacked_ns_) {
        // The timestamp that comes back tells, in milliseconds, and at least one (tcp_rtt_tsopt_us).
        rtt_us = ca_rtt_us = 1000 * std::max<int64_t>(1, now / kJiffyNs - echoed_ms_);
    }
    if (acked && low_seq < prior_highest) meets_reordering(low_seq);
    return acked;
}

inline void Endpoint::took(Segment& segment) {
    sampled_delivered_ = std::max(sampled_delivered_, segment.sent.delivered);
    if (paces) rate.took(segment);
}

// As of tcp_sacktag_write_queue: how many segments are delivered by that.
inline int64_t Endpoint::take_sacks(const Packet& packet, int64_t prior_una, Time now) {
    const Range* told = net.packets.ranges(packet);
    Range ranges[kMostBlocks];
    bool is_second = told[0].first < packet.ack;  // what came twice, as of tcp_check_dsack
    if (!is_second && packet.sacks > 1) is_second = told[1].first <= told[0].first && told[0].last <= told[1].last;
    int64_t low_seq = snd_nxt, delivered_now = is_second ? take_duplicate(told[0], prior_una) : 0, last = 0;
    size_t count = 0;
    bool has_second = false;
    for (uint32_t i = 0; i < packet.sacks; ++i) {
        if (!is_valid(told[i], i == 0 && duplicates_) || told[i].last <= prior_una) continue;
        has_second |= i == 0 && duplicates_;
        last = std::max(last, told[i].last);
        ranges[count++] = told[i];
    }
    if (!packets_out) return delivered_now;
    for (uint32_t i = 0; i < unacked_.size(); ++i) {
        Segment& segment = unacked_[i];
        if (segment.seq >= last) break;
        auto lies_in = [&](const Range& range) { return range.first <= segment.seq && segment.end_seq <= range.last; };
        if (std::none_of(ranges, ranges + count, lies_in)) continue;
        bool twice = has_second && lies_in(ranges[0]);
        if (twice && segment.retransmitted) {
            if (may_be_undone_ && undo_resent_ > 0 && segment.end_seq > undo_from_seq_) --undo_resent_;
            if (segment.sacked) low_seq = std::min(low_seq, segment.seq);
        }
        if (segment.end_seq <= snd_una) continue;
        if (!segment.sacked) {
            if (merges(i, twice)) merge(i);
            rack(segment, now);
            if (segment.again) {
                if (segment.lost) {
                    segment.lost = segment.again = false;
                    --lost_out;
                    --retrans_out;
                }
            } else {
                if (!segment.retransmitted) {
                    if (segment.seq < highest_sacked()) low_seq = std::min(low_seq, segment.seq);
                    if (segment.end_seq <= high_seq_) original_acked_ = true;
                    if (!first_sacked_ns_) first_sacked_ns_ = segment.sent_ns;
                    last_sacked_ns_ = segment.sent_ns;
                }
                lost_out -= segment.lost;
                segment.lost = false;
            }
            sacked_ = segment.sacked = true;
            highest_sacked_ = sacked_out ? std::max(highest_sacked_, segment.end_seq) : segment.end_seq;
            ++sacked_out;
            ++delivered_now;
            took(segment);
        }
        if (twice && segment.again) {
            segment.again = false;
            --retrans_out;
        }
    }
    if (state != kLoss || may_be_undone_) meets_reordering(low_seq);
    return delivered_now;
}

// As of tcp_is_sackblock_valid.
inline bool Endpoint::is_valid(const Range& range, bool is_second) const {
    if (range.last > snd_nxt || range.first >= range.last) return false;
    if (range.first > snd_una) return true;
    return is_second && may_be_undone_ && range.last <= snd_una && range.last > undo_from_seq_;
}

// Whether a segment that is told of goes into the skb of the one before it (tcp_shift_skb_data), or one that is
// told of already.
inline bool Endpoint::merges(uint32_t place, bool twice) const {
    if (!place) return false;
    const Segment &segment = unacked_[place], &before = unacked_[place - 1];
    if (!twice && segment.again && !segment.lost) return false;
    bool is_told = before.sacked && !before.lost && !before.again;
    return is_told && before.end_seq - before.seq == segment.end_seq - segment.seq;
}

// Its own skb is gone then, and that of the next one, if it was told of before and is as long.
inline void Endpoint::merge(uint32_t place) {
    auto loses_skb = [this](Segment& segment) {
        if (!segment.merged) charged_ -= kSkbBytes;
        segment.merged = true;
    };
    Segment& segment = unacked_[place];
    loses_skb(segment);
    if (place + 1 >= unacked_.size()) return;
    Segment& next = unacked_[place + 1];
    bool is_told = next.sacked && !next.lost && !next.again;
    if (is_told && next.end_seq - next.seq == segment.end_seq - segment.seq) loses_skb(next);
}

// Segments that came twice, so many (tcp_check_dsack, tcp_dsack_seen). More than was ever sent again is not believed.
inline int64_t Endpoint::take_duplicate(const Range& range, int64_t prior_una) {
    int64_t bytes = range.last - range.first, segments = 1;
    if (bytes > mss) segments = (bytes + mss - 1) / mss;
    else if (probe_seq_ && probe_seq_ == range.last) duplicates_probe_ = true;
    duplicates_seen_ += segments;
    if (duplicates_seen_ > retransmitted) return 0;
    if (has_seen_reordering_ && !duplicates_probe_) has_seen_duplicate_ = true;
    duplicates_ = true;
    if (may_be_undone_ && undo_resent_ > 0 && range.last <= prior_una && range.last > undo_from_seq_)
        undo_resent_ = std::max<int64_t>(0, undo_resent_ - segments);
    return segments;
}

// Something that was never sent again comes below what has come already (tcp_check_sack_reordering).
inline void Endpoint::meets_reordering(int64_t low_seq) {
    int64_t highest = highest_sacked();
    if (low_seq >= highest) return;
    int64_t metric = highest - low_seq;
    if (metric > reordering_ * mss) reordering_ = std::min((metric + mss - 1) / mss, kMostReordering);
    has_seen_reordering_ = true;
}

// As of tcp_rack_update_reo_wnd.
inline void Endpoint::widen_reordering() {
    if (!sampled_delivered_) return;
    if (sampled_delivered_ < reorder_delivered_) has_seen_duplicate_ = false;
    if (has_seen_duplicate_) {
        reorder_steps_ = std::min<int64_t>(0xFF, reorder_steps_ + 1);
        has_seen_duplicate_ = false;
        reorder_delivered_ = delivered;
        reorder_persists_ = kReorderRecoveries;
    } else if (!reorder_persists_) {
        reorder_steps_ = 1;
    }
}

// As of tcp_fastretrans_alert; what is to be sent then.
inline Endpoint::Again Endpoint::alert(bool ece, int64_t prior_una, Time now) {
    if (ece) prior_ssthresh_ = 0;
    if (state == kOpen) {
        first_resent_ms_ = -1;
    } else if (snd_una >= high_seq_) {
        if (state == kCwr && snd_una != high_seq_) {
            end_reduction();
            state = kOpen;
        } else if (state == kRecovery) {
            end_recovery();
            end_reduction();
        }
    }
    if (state == kRecovery) {
        if (advanced_ && may_be_undone_ && was_delayed()) {  // tcp_try_undo_partial
            meets_reordering(prior_una);
            if (retrans_out) return kNothing;
            if (!any_resent()) first_resent_ms_ = -1;
            undo(true);
            keep_open();
        }
        if (undo_by_duplicates()) try_to_open(ece);
        find_losses(now);
        if (state != kRecovery) {
            if (!lost_out) return kNothing;
            enter_recovery(ece);
        }
        return kResendLost;
    }
    Again again = kNothing;
    if (state == kLoss) {
        again = process_loss();
        int64_t under_way = retrans_out;
        find_losses(now);
        if (state != kOpen && retrans_out >= under_way) return again;
    }
    if (state <= kDisorder) undo_by_duplicates();
    find_losses(now);
    if (!lost_out) {
        try_to_open(ece);
        return again;
    }
    enter_recovery(ece);
    return kResendLost;
}

// As of tcp_try_undo_recovery.
inline void Endpoint::end_recovery() {
    if (may_undo()) undo(false);
    else if (reorder_persists_) --reorder_persists_;
    state = kOpen;
}

inline void Endpoint::try_to_open(bool ece) {
    if (!any_resent()) first_resent_ms_ = -1;
    if (ece) begin_cwr();
    if (state != kCwr) keep_open();
}

// As of tcp_try_keep_open.
inline void Endpoint::keep_open() {
    CaState next = sacked_out || lost_out || any_resent() ? kDisorder : kOpen;
    if (state != next) {
        state = next;
        high_seq_ = snd_nxt;
    }
}

// As of tcp_enter_cwr.
inline void Endpoint::begin_cwr() {
    prior_ssthresh_ = 0;
    if (state < kCwr) {
        may_be_undone_ = false;
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

// As of tcp_enter_recovery.
inline void Endpoint::enter_recovery(bool ece) {
    if (!any_resent()) first_resent_ms_ = -1;
    prior_ssthresh_ = 0;
    begin_undo();
    if (state != kCwr && state != kRecovery) {
        if (!ece) prior_ssthresh_ = current_ssthresh();
        begin_reduction();
    }
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

// As of tcp_identify_packet_loss and tcp_rack_mark_lost.
inline void Endpoint::find_losses(Time now) {
    if (!rack_advanced_ || unacked_.empty()) return;
    rack_advanced_ = false;
    int64_t timeout_us = mark_losses(now);
    if (timeout_us) {
        reorder_armed_ = true;
        reorder_within(timeout_us, now);
    }
}

// As of tcp_rack_reo_wnd.
inline int64_t Endpoint::reordering_window_us() const {
    if (!has_seen_reordering_ && (state >= kRecovery || sacked_out >= reordering_)) return 0;
    return std::min((min_rtt_us >> 2) * reorder_steps_, srtt_us >> 3);
}

// As of tcp_rack_detect_loss: microseconds until a segment counts as lost, 0 for none. Segments are looked at in the
// order in which they were sent last, up to the first one that was not sent before what has come. One that was found
// lost so is not looked at again until it is sent, even if that is undone.
inline int64_t Endpoint::mark_losses(Time now) {
    int64_t window_us = reordering_window_us(), timeout_us = 0, now_us = now / 1000;
    auto is_out = [](const Segment& segment) {
        return !segment.sacked && segment.listed && !(segment.lost && !segment.again);
    };
    auto is_before = [&](const Segment& segment) {
        int64_t sent_us = segment.sent_ns / 1000;
        return sent_us < rack_us_ || (sent_us == rack_us_ && segment.end_seq < rack_seq_);
    };
    const Segment* end = nullptr;
    for (uint32_t i = 0; i < unacked_.size(); ++i) {
        const Segment& segment = unacked_[i];
        if (!is_out(segment) || is_before(segment)) continue;
        if (!end || int32_t(segment.order - end->order) < 0) end = &segment;
        if (!resent_out_) break;  // all are in the order of their sending
    }
    for (uint32_t i = 0; i < unacked_.size(); ++i) {
        Segment& segment = unacked_[i];
        if (!resent_out_ && &segment == end) break;
        if (!is_out(segment) || (end && int32_t(segment.order - end->order) >= 0)) continue;
        int64_t left_us = rack_rtt_us_ + window_us - (now_us - segment.sent_ns / 1000);
        if (left_us <= 0) lose(segment), segment.listed = false;
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
        if (send_again(place, now) != kSentAgain) break;
        if (state == kCwr || state == kRecovery) ++prr_out_;
        rearms |= place == 0;
    }
    if (rearms) head_sent_again(now);
}

// As of tcp_retransmit_skb. A probe does not count as what was sent again.
inline Endpoint::Resent Endpoint::send_again(uint32_t place, Time now, bool is_probe) {
    Resent found = waits_in_port(unacked_[place], now) ? kWaitsInPort : has_route() ? kNoRoom : kNoWay;
    if (found == kNoRoom) {
        int64_t room = mss - option_bytes_;
        if (unacked_[place].seq < snd_una) {  // tcp_trim_head
            charged_ -= snd_una - unacked_[place].seq;
            unacked_[place].seq = snd_una;
        }
        if (option_bytes_) split(place);
        while (unacked_[place].end_seq - unacked_[place].seq < room && can_join(place, room, now)) join(place);
        int64_t ack = acknowledgement();
        bool ece = demands_cwr_;
        Segment& segment = unacked_[place];
        uint32_t made = make_packet(segment.seq, segment.end_seq, ack);
        Packet& packet = net.packets[made];
        packet.ece = ece;
        packet.push = segment.push;
        packet.ect = ecn && needs_ecn;
        if (option_bytes_) tell_ranges(packet);
        if (!in_flight()) control_tx_start(now);
        last_sent_jiffies = now / kJiffyNs;
        data_sent(now);
        resent_out_ += !segment.retransmitted;
        segment.retransmitted = true;
        segment.sent_ns = now;
        ++retransmitted;
        if (into_port(made, now)) {
            found = kSentAgain;
            segment.order = given_;
            segment.listed = true;
            if (!segment.again && !is_probe) {
                segment.again = true;
                ++retrans_out;
            }
            if (paces) pace(segment, now);
            else segment.sent.delivered = delivered;
        }
    }
    if (!is_probe) {
        if (first_resent_ms_ < 0) first_resent_ms_ = unacked_[place].sent_ns / kJiffyNs;
        undo_resent_ = std::max<int64_t>(0, undo_resent_) + 1;
    }
    return found;
}

// As of tcp_fragment: what does not fit beside the options of the header, and waits.
inline bool Endpoint::split(uint32_t place) {
    int64_t size = mss - option_bytes_;
    Segment& segment = unacked_[place];
    if (segment.end_seq - segment.seq <= size) return false;
    Segment rest{segment.seq + size, segment.end_seq, segment.sent_ns, segment.order, segment.push};
    rest.lost = segment.lost;
    rest.retransmitted = segment.retransmitted;
    rest.listed = segment.listed;
    rest.sent = segment.sent;
    rest.has_sent = segment.has_sent;
    resent_out_ += rest.retransmitted;
    segment.end_seq = rest.seq;
    segment.push = false;
    unacked_.insert(place + 1, rest);
    ++packets_out;
    lost_out += rest.lost;
    charged_ += kSkbBytes;
    return true;
}

// Whether the next segment goes along with one that is sent again (tcp_retrans_try_collapse): there is room, and no
// clone of it is left. The first switch makes a copy of its own (skb_cow in ip_forward); without one, those that count
// as lost are taken to have none.
inline bool Endpoint::can_join(uint32_t place, int64_t room, Time now) const {
    if (place + 1 >= unacked_.size()) return false;
    const Segment &segment = unacked_[place], &next = unacked_[place + 1];
    if (next.sacked || next.end_seq - segment.seq > room) return false;
    if (next.lost && !next.again) return true;
    if (hops < 2) return false;
    int32_t behind = int32_t(next.order - left_);
    return behind < 0 || (behind == 0 && left_ns_ + net.ports[net.links[route]].delay_ns <= now);
}

// As of tcp_collapse_retrans.
inline void Endpoint::join(uint32_t place) {
    Segment& segment = unacked_[place];
    const Segment& next = unacked_[place + 1];
    segment.end_seq = next.end_seq;
    segment.push |= next.push;
    if (next.retransmitted && segment.retransmitted) --resent_out_;
    segment.retransmitted = segment.retransmitted || next.retransmitted;
    lost_out -= next.lost;
    retrans_out -= next.again;
    --packets_out;
    charged_ -= kSkbBytes;
    unacked_.erase(place + 1);
}

// As of tcp_process_loss; what is to be sent then.
inline Endpoint::Again Endpoint::process_loss() {
    bool recovered = snd_una >= high_seq_;
    if (advanced_ && may_undo()) {
        undo_loss();
        return kNothing;
    }
    if (frto_) {
        if (original_acked_) {
            undo_loss();
            return kNothing;
        }
        if (snd_nxt > high_seq_) {
            if (sacked_ || is_duplicate_) frto_ = false;
        } else if (advanced_ && !recovered) {
            high_seq_ = snd_nxt;
            if (!queue_.empty() && snd_una + window_bytes_ > snd_nxt) return kSendNew;
            frto_ = false;
        }
    }
    if (recovered) {
        end_recovery();
        return kNothing;
    }
    return kResendLost;
}

// As of tcp_init_undo.
inline void Endpoint::begin_undo() {
    may_be_undone_ = true;
    undo_from_seq_ = snd_una;
    undo_resent_ = retrans_out + (probe_seq_ && probe_again_);
    if (!undo_resent_) undo_resent_ = -1;
}

// As of tcp_try_undo_loss: the timer was wrong, as what it took to be lost has come.
inline void Endpoint::undo_loss() {
    undo(true);
    retransmits_ = 0;
    state = kOpen;
}

// As of tcp_try_undo_dsack: all that was sent again has come twice.
inline bool Endpoint::undo_by_duplicates() {
    if (!may_be_undone_ || undo_resent_) return false;
    reorder_persists_ = std::min(kReorderRecoveries, reorder_persists_ + 1);
    undo(false);
    return true;
}

// As of tcp_undo_cwnd_reduction.
inline void Endpoint::undo(bool unmarks) {
    if (unmarks) {
        for (uint32_t i = 0; i < unacked_.size(); ++i) unacked_[i].lost = false;
        lost_out = 0;
    }
    if (prior_ssthresh_) {
        cwnd = control_undo_cwnd();
        if (prior_ssthresh_ > ssthresh) {
            ssthresh = prior_ssthresh_;
            sends_cwr_ = false;
        }
    }
    may_be_undone_ = false;
    rack_advanced_ = true;
}

// As of tcp_process_tlp_ack.
inline void Endpoint::end_probe(const Packet& packet) {
    if (packet.ack < probe_seq_) return;
    if (!probe_again_ || duplicates_probe_) {
        probe_seq_ = 0;
    } else if (packet.ack > probe_seq_) {
        begin_reduction();
        state = kCwr;
        end_reduction();
        keep_open();
    } else if (is_duplicate_ && !sacked_) {
        probe_seq_ = 0;
    }
}
