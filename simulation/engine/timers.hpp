// SPDX-License-Identifier: GPL-2.0-only
// The timers of a TCP sender: what is lost at the end, and what its port has no room for. As
// net/ipv4/tcp_timer.c and tcp_output.c of Linux 6.12 have them: tail loss probes and RACK's timer (RFC 8985),
// the retransmission timer (RFC 6298), the wait for a port. One is set at a time.
#pragma once
#include "bbr.hpp"
#include "endpoint.hpp"

inline constexpr int64_t kMostRetries = 15;  // net.ipv4.tcp_retries2
inline constexpr char kTimedOut[] = "a connection hears nothing after 15 retransmissions, which ends it";

inline int64_t jiffies_of(int64_t microseconds) { return (microseconds + 999) / 1000; }

// The kernel counts from -300 seconds on (INITIAL_JIFFIES), and ranks in the virtual kernel set out 10.5
// seconds after that.
inline constexpr int64_t kJiffiesAtStart = 10'500 - 300'000;

// The level of the timer wheel that holds a timer of so many jiffies.
inline int wheel_level(int64_t jiffies) { return jiffies < 63 ? 0 : jiffies < 504 ? 1 : 2; }

// When a timer of so many jiffies fires: later by up to a step of the wheel's level that holds it, of 1, 8 or
// 64 jiffies (kernel/time/timer.c: calc_index).
inline Time expiry_ns(Time now, int64_t jiffies) {
    int64_t expires = now / kJiffyNs + jiffies + kJiffiesAtStart;
    int shift = 3 * wheel_level(jiffies);
    int64_t step = int64_t(1) << shift;
    return (((expires + step) >> shift) * step - kJiffiesAtStart) * kJiffyNs;
}

inline void Endpoint::measured(int64_t rtt_us) {
    estimate(rtt_us);
    set_rto();
}

// As of tcp_rtt_estimator; srtt is kept eightfold, mdev fourfold.
inline void Endpoint::estimate(int64_t rtt_us) {
    int64_t error = rtt_us - (srtt_us >> 3);
    srtt_us = std::max<int64_t>(1, srtt_us + error);
    if (error < 0) {
        error = -error - (mdev_us_ >> 2);
        if (error > 0) error >>= 3;
    } else {
        error -= mdev_us_ >> 2;
    }
    mdev_us_ += error;
    if (mdev_us_ > mdev_max_us_) {
        mdev_max_us_ = mdev_us_;
        rttvar_us_ = std::max(rttvar_us_, mdev_max_us_);
    }
    if (snd_una > rtt_seq_) {
        if (mdev_max_us_ < rttvar_us_) rttvar_us_ -= (rttvar_us_ - mdev_max_us_) >> 2;
        rtt_seq_ = snd_nxt;
        mdev_max_us_ = min_rto_us_;
    }
}

inline void Endpoint::set_rto() {
    rto_jiffies_ = jiffies_of((srtt_us >> 3) + rttvar_us_);
    backoff_ = 0;
}

// As of tcp_event_new_data_sent and the end of tcp_write_xmit.
inline void Endpoint::arm_after_sending(bool was_idle, bool probe, Time now) {
    if (was_idle || timer_ == kProbe) rearm(now);
    if (probe) schedule_probe(now, false);
}

// As of tcp_set_xmit_timer.
inline void Endpoint::acknowledged(Time now) {
    if (!schedule_probe(now, true)) rearm(now);
}

// As of tcp_schedule_loss_probe.
inline bool Endpoint::schedule_probe(Time now, bool advancing) {
    if (!packets_out || (state != kOpen && state != kCwr)) return false;
    int64_t more_us = packets_out == 1 ? min_rto_us_ : kTimeoutMinUs;
    int64_t timeout = jiffies_of((srtt_us >> 2) + more_us);
    int64_t left_us = advancing ? rto_jiffies_ * 1000 : until_rto_us(now);
    if (left_us > 0) timeout = std::min(timeout, jiffies_of(left_us));
    arm_behind_pace(kProbe, timeout, now);
    return true;
}

inline int64_t Endpoint::until_rto_us(Time now) const {
    return unacked_.front().sent_ns / 1000 + rto_jiffies_ * 1000 - now / 1000;
}

// As of tcp_rearm_rto.
inline void Endpoint::rearm(Time now) {
    if (!packets_out) {
        timer_ = kNoTimer;
        return;
    }
    int64_t timeout = rto_jiffies_;
    if (timer_ == kProbe || timer_ == kReorder) timeout = jiffies_of(std::max<int64_t>(until_rto_us(now), 1));
    arm_behind_pace(kRto, timeout, now);
}

// As of tcp_reset_xmit_timer: what waits for its pace moves the timer.
inline void Endpoint::arm_behind_pace(Timer timer, int64_t jiffies, Time now) {
    if (paced_until_ns > now) jiffies += (paced_until_ns - now) / kJiffyNs;
    arm(timer, std::min(jiffies, kMaxRtoJiffies), now);
}

inline void Endpoint::arm(Timer timer, int64_t jiffies, Time now) {
    timer_ = timer;
    jiffies = std::max<int64_t>(jiffies, 1);
    timer_ns_ = expiry_ns(now, jiffies);
    net.put_on_wheel(timer_place_, timer_ns_, wheel_level(jiffies), now);
    if (!timer_set_for_ || timer_ns_ < timer_set_for_) {
        timer_set_for_ = timer_ns_;
        net.at_timers(timer_ns_, What::kRetransmitTimer, number);
    }
}

inline void Endpoint::on_timer(Time now) {
    if (now != timer_set_for_) return;
    timer_set_for_ = 0;
    if (timer_ == kNoTimer) return;
    if (now < timer_ns_) {
        timer_set_for_ = timer_ns_;
        net.at_timers(timer_ns_, What::kRetransmitTimer, number);
        return;
    }
    Timer timer = timer_;
    if (timer == kRto || timer == kRoom) timer_ = kNoTimer;
    if (timer == kRoom) try_for_room(now);
    else if (!packets_out) timer_ = kNoTimer;
    else if (timer == kProbe) send_probe(now);
    else if (timer == kReorder) reorder_timeout(now);
    else timeout(now);
}

// Nothing is under way, and the port had no room for what is to be sent: try later (tcp_check_probe_timer).
inline void Endpoint::wait_for_room(Time now) {
    if (timer_ == kNoTimer) arm_behind_pace(kRoom, std::max(rto_jiffies_, kLeastRtoJiffies), now);
}

// As of tcp_probe_timer and tcp_write_wakeup: one segment, which asks for an answer.
inline void Endpoint::try_for_room(Time now) {
    if (packets_out || queue_.empty()) return;
    Skb& skb = queue_.front();
    if (skb.seq >= snd_una + window_bytes_) return;
    skb.push = true;
    bool has_way = has_route();
    if (transmit(skb, now)) {
        unsent_probes_ = 0;
        rearm(now);
    } else {
        if (!has_way && ++unsent_probes_ > kMostRetries) throw BadScenario(kTimedOut);
        int64_t backed_off = std::max(rto_jiffies_, kLeastRtoJiffies) << unsent_probes_;
        arm(kRoom, has_way ? kNoRoomJiffies : std::min(backed_off, kMaxRtoJiffies), now);
    }
}

// As of tcp_send_loss_probe.
inline void Endpoint::send_probe(Time now) {
    if (!probe_seq_) {
        bool sent = probe_again_ = false;
        if (!queue_.empty() && queue_.front().end_seq <= snd_una + window_bytes_) {
            int64_t before = packets_out;
            xmit(now, 2);
            sent = packets_out > before;
        } else {
            sent = probe_again_ = send_again(unacked_.size() - 1, now, true) == kSentAgain;
        }
        if (sent) {
            probe_seq_ = snd_nxt;
            timer_ = kNoTimer;
        }
    }
    rearm(now);
}

// As of tcp_rack_reo_timeout.
inline void Endpoint::reorder_timeout(Time now) {
    int64_t before = in_flight(), lost_before = lost;
    mark_losses(now);
    if (in_flight() != before) {
        if (state != kRecovery) {
            enter_recovery(false);
            if (!paces) reduce(1, lost - lost_before, false);
        }
        retransmit_lost(now);
    }
    if (timer_ != kRto) rearm(now);
}

// As of tcp_retransmit_timer and tcp_enter_loss.
inline void Endpoint::timeout(Time now) {
    bool fresh = state < kRecovery;
    int64_t now_us = now / 1000;
    for (uint32_t i = 0; i < unacked_.size(); ++i) {
        Segment& segment = unacked_[i];
        bool recent = rack_rtt_us_ > now_us - segment.sent_ns / 1000;
        if (!segment.sacked && (i == 0 || !recent)) lose(segment);
    }
    if (state <= kDisorder || high_seq_ <= snd_una || (state == kLoss && !retransmits_)) {
        prior_ssthresh_ = current_ssthresh();
        prior_cwnd_ = cwnd;
        ssthresh = control_ssthresh();
        if (control == Control::kDctcp) dctcp_.react_to_loss(*this);
        begin_undo();
    }
    cwnd = in_flight() + 1;
    cwnd_cnt = 0;
    if (state <= kDisorder && sacked_out >= kReordering) reordering_ = std::min(reordering_, kReordering);
    if (control == Control::kCubic) cubic_.enters_loss(*this, now);
    else if (control == Control::kBbr) bbr_->enters_loss();
    state = kLoss;
    high_seq_ = snd_nxt;
    probe_seq_ = 0;
    sends_cwr_ = ecn;
    frto_ = fresh || retransmits_ > 0;
    if (++retransmits_ > kMostRetries) throw BadScenario(kTimedOut);
    if (send_again(0, now) == kNoRoom) {
        arm(kRto, kNoRoomJiffies, now);
        return;
    }
    ++backoff_;
    rto_jiffies_ = std::min(2 * rto_jiffies_, kMaxRtoJiffies);
    arm(kRto, rto_jiffies_, now);
}

// A switch had no route for a segment: as of tcp_ld_RTO_revert, the last doubling of the time until the
// retransmission timer is undone (RFC 6069).
inline void Endpoint::is_unreachable(int64_t seq, Time now) {
    if (seq != snd_una || !retransmits_ || !backoff_ || unacked_.empty()) return;
    int64_t backoff = backoff_ - 1;
    set_rto();
    backoff_ = backoff;
    rto_jiffies_ = std::min(rto_jiffies_ << backoff, kMaxRtoJiffies);
    int64_t left = rto_jiffies_ - jiffies_of(now / 1000 - unacked_.front().sent_ns / 1000);
    if (left > 0) arm(kRto, left, now);
    else timeout(now);
}

// As of the end of tcp_xmit_retransmit_queue.
inline void Endpoint::head_sent_again(Time now) {
    if (timer_ != kReorder) arm_behind_pace(kRto, rto_jiffies_, now);
}

// Something counts as lost unless it is acknowledged by then (tcp_rack_mark_lost).
inline void Endpoint::reorder_within(int64_t timeout_us, Time now) {
    arm(kReorder, std::min(jiffies_of(timeout_us + kTimeoutMinUs), rto_jiffies_), now);
}
