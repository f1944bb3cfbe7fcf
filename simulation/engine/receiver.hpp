// SPDX-License-Identifier: GPL-2.0-only
// The receiving half of a socket: as tcp_rcv_established, tcp_data_queue and __tcp_ack_snd_check do it
// (net/ipv4/tcp_input.c of Linux 6.12), with an application that reads at once: delayed acknowledgements and
// quick ones, replies that carry them ("ping-pong"), DCTCP's echo of marks (RFC 8257 section 3.2), selective
// acknowledgements.
#pragma once
#include "endpoint.hpp"
#include "programs.hpp"
#include "timers.hpp"

inline void Endpoint::receive(const Packet& packet, Time now) {
    bool data = packet.data;
    if (packet.end_seq() < rcv_wup_ || int32_t(echo_ms_ - packet.stamp_ms) > kReplayedMs) {
        if (is_refused(packet)) return refuse(packet, now);
    }
    bool is_old = packet.ack < snd_una;
    if (packet.cwr && !is_old) {
        demands_cwr_ = false;
        ack_now_ |= data;
    }
    // As the kernel's fast path has it, data that tells nothing new has nothing sent. It needs memory that the
    // socket has already: what is left of its last page (sk_forward_alloc).
    bool slow = packet.window != window_bytes_ || packet.ece || packet.cwr;
    slow = slow || !ahead_.empty() || packet.sacks || packet.seq != rcv_nxt || is_old;
    bool is_late = int32_t(packet.stamp_ms - echo_ms_) < 0;  // sent in an earlier millisecond than what came before it
    slow = slow || is_late;
    int64_t spare = (kPageBytes - charged_ % kPageBytes) % kPageBytes;
    bool tells = slow || packet.ack != snd_una || packet.data + kSkbBytes > spare;
    if (packet.seq <= rcv_wup_ && !is_late) echo_ms_ = packet.stamp_ms;
    window_updated_ = updates_window(packet);
    if (window_updated_) {
        window_from_seq_ = packet.seq;
        window_bytes_ = packet.window;
    }
    if (tells || !data) {
        on_ack(packet, now);
        tells = true;
    }
    measure_receiver(packet, now);
    if (data) {
        held_bytes_ = packet.data + kSkbBytes;
        if (!ahead_.empty()) held_bytes_ += ahead_bytes();
        if (reads_late_) held_bytes_ += waiting_bytes();
        take(packet, now);
    }
    if (!queue_.empty() && tells) xmit(now);
    check_space(now);
    if (!data) {
        if (slow && scheduled_) answer(now);
        return;
    }
    if (scheduled_) answer(now);
    if (reads_late_) {
        held_bytes_ = waiting_bytes() + (ahead_.empty() ? 0 : ahead_bytes());
        if (unread_bytes()) net.at_processes(now, What::kRead, number, rcv_nxt);
        return;
    }
    bool more = !expected.empty() && expected.front().received < rcv_nxt;
    if (!more) has_read(now);
    if (!expected.empty() && expected.front().received <= rcv_nxt)
        net.at_processes(now, What::kRead, number, rcv_nxt);
}

// As of tcp_may_update_window.
inline bool Endpoint::updates_window(const Packet& packet) const {
    if (packet.ack < snd_una) return false;
    return packet.ack > snd_una || packet.seq > window_from_seq_ ||
           (packet.seq == window_from_seq_ && packet.window > window_bytes_);
}

// As of tcp_validate_incoming: a packet from before what was acknowledged, or from milliseconds before what has come
// (PAWS, RFC 7323), unless it is an acknowledgement that was overtaken (tcp_disordered_ack).
inline bool Endpoint::is_refused(const Packet& packet) const {
    if (packet.end_seq() < rcv_wup_) return true;
    bool tells_nothing = !packet.data && packet.seq == rcv_nxt && packet.ack == snd_una && !updates_window(packet);
    return !tells_nothing || int32_t(echo_ms_ - packet.stamp_ms) > rto_jiffies_ * 6 / 5;
}

// Nobody reads what it acknowledges; it is answered at once, but acknowledgements only now and then
// (tcp_oow_rate_limited, tcp_send_dupack).
inline void Endpoint::refuse(const Packet& packet, Time now) {
    if (!packet.data) {
        int64_t jiffies = now / kJiffyNs;
        if (refused_jiffies_ && jiffies - refused_jiffies_ < kRefusalJiffies) return;
        refused_jiffies_ = jiffies;
    } else if (packet.seq < rcv_nxt) {
        hurry(kQuickAcks);
        tell_duplicate(packet.seq, std::min(packet.end_seq(), rcv_nxt));
    }
    acknowledge(now);
}

// The reader has taken all that has come in order. It takes one message at a time: with the last one nothing is left.
inline void Endpoint::has_read(Time now) {
    held_bytes_ = ahead_.empty() ? 0 : ahead_bytes();
    if (scheduled_ && reader_acknowledges()) acknowledge(now);
}

// As of tcp_data_queue.
inline void Endpoint::take(const Packet& packet, Time now) {
    int64_t seq = packet.seq, end = packet.end_seq();
    if (has_duplicate_) {
        has_duplicate_ = false;
        count_options();
    }
    if (end <= rcv_nxt) {
        tell_duplicate(seq, end);
        hurry(kQuickAcks);
        scheduled_ = true;
        return;
    }
    if (seq > rcv_nxt) {
        see_ecn(packet, now);
        measure(packet);
        scheduled_ = true;
        int64_t held = ahead_bytes();
        // A packet that goes into the memory of the one before it counts by its own bytes alone (truesize_adjust, where
        // that has been copied on its way and is no clone of the sender's); else it has to be worth its overhead.
        bool joins = hops > 1 && std::any_of(ahead_.begin(), ahead_.end(), [&](const Range& each) { return each.last == seq; });
        bool is_worth = joins || ((int64_t(packet.data) + kSkbBytes) * ratio_ >> 8) <= int64_t(packet.data);
        if (keep(seq, end, now) && is_worth) widen(held);
        return;
    }
    if (seq < rcv_nxt) tell_duplicate(seq, rcv_nxt);
    rcv_nxt = end;
    received(packet, now);
    if (!ahead_.empty()) {
        size_t taken = 0;
        while (taken < ahead_.size() && ahead_[taken].first <= rcv_nxt) {
            const Range& each = ahead_[taken++];
            if (each.first < end) extend_duplicate(each.first, std::min(each.last, end));  // tcp_ofo_queue
            rcv_nxt = std::max(rcv_nxt, each.last);
        }
        ahead_.erase(ahead_.begin(), ahead_.begin() + ptrdiff_t(taken));
        std::erase_if(sacks_, [&](const Range& each) { return each.first <= rcv_nxt; });
        count_options();
        if (ahead_.empty()) ack_now_ = true;
    }
}

// A range that has come twice is told once, with what is sent next (tcp_dsack_set).
inline void Endpoint::tell_duplicate(int64_t seq, int64_t end) {
    duplicate_ = {seq, end};
    has_duplicate_ = true;
    count_options();
}

// As of tcp_dsack_extend.
inline void Endpoint::extend_duplicate(int64_t seq, int64_t end) {
    if (!has_duplicate_) return tell_duplicate(seq, end);
    if (seq > duplicate_.last || duplicate_.first > end) return;
    duplicate_ = {std::min(seq, duplicate_.first), std::max(end, duplicate_.last)};
}

// Keeps what has come ahead of what is missing, as ranges in order. Whether any of it is new.
inline bool Endpoint::keep(int64_t seq, int64_t end, Time now) {
    bool is_new = true;
    for (const Range& each : ahead_) {
        int64_t first = std::max(seq, each.first), last = std::min(end, each.last);
        if (first >= last) continue;
        extend_duplicate(first, last);
        is_new = is_new && (seq < each.first || each.last < end);
    }
    tell_of(seq, end, now);
    count_options();
    size_t from = 0;
    while (from < ahead_.size() && ahead_[from].last < seq) ++from;
    size_t until = from;
    for (; until < ahead_.size() && ahead_[until].first <= end; ++until) {
        seq = std::min(seq, ahead_[until].first);
        end = std::max(end, ahead_[until].last);
    }
    if (from == until) {
        ahead_.insert(ahead_.begin() + ptrdiff_t(from), {seq, end});
    } else {
        ahead_[from] = {seq, end};
        ahead_.erase(ahead_.begin() + ptrdiff_t(from) + 1, ahead_.begin() + ptrdiff_t(until));
    }
    return is_new;
}

// As of tcp_sack_new_ofo_skb: the range that has grown last comes first. Held-back ranges are told before a
// third one begins to change.
inline void Endpoint::tell_of(int64_t seq, int64_t end, Time now) {
    size_t place = 0;
    while (place < sacks_.size() && (sacks_[place].last < seq || end < sacks_[place].first)) ++place;
    bool is_new = place == sacks_.size();
    if (!is_new) sacks_[place] = {std::min(sacks_[place].first, seq), std::max(sacks_[place].last, end)};
    if (place >= kBlocksExpected && held_acks_) acknowledge(now);
    if (is_new) {
        if (sacks_.size() >= kKeptBlocks) sacks_.resize(kKeptBlocks - 1);
        sacks_.insert(sacks_.begin(), {seq, end});
        return;
    }
    Range grown = sacks_[place];
    sacks_.erase(sacks_.begin() + ptrdiff_t(place));
    for (size_t i = 0; i < sacks_.size();) {
        if (sacks_[i].first <= grown.last && grown.first <= sacks_[i].last) {
            grown = {std::min(grown.first, sacks_[i].first), std::max(grown.last, sacks_[i].last)};
            sacks_.erase(sacks_.begin() + ptrdiff_t(i));
        } else {
            ++i;
        }
    }
    sacks_.insert(sacks_.begin(), grown);
}

// As of tcp_event_data_recv.
inline void Endpoint::received(const Packet& packet, Time now) {
    scheduled_ = true;
    measure(packet);
    measure_by_window(now);
    int64_t jiffies = now / kJiffyNs;
    if (!ato_) {
        quick_ = std::max(quick_, kQuickAcks);
        ato_ = kAtoMin;
    } else {
        int64_t gap = jiffies - last_received_;
        if (gap <= kAtoMin / 2) ato_ = (ato_ >> 1) + kAtoMin / 2;
        else if (gap < ato_) ato_ = std::min((ato_ >> 1) + gap, rto_jiffies_);
        else if (gap > rto_jiffies_) quick_ = std::max(quick_, kQuickAcks);
    }
    last_received_ = jiffies;
    see_ecn(packet, now);
    if (packet.data >= kGrowsFromBytes) widen(packet.data + kSkbBytes + waiting_bytes());
}

// The memory that packets take that have come ahead.
inline int64_t Endpoint::ahead_bytes() const {
    int64_t bytes = 0;
    for (const Range& each : ahead_) bytes += ((each.last - each.first) << 8) / ratio_;
    return bytes;
}

// As of tcp_grow_window, for a socket that holds so many bytes of packets.
inline void Endpoint::widen(int64_t held) {
    int64_t room = ((buffer_bytes_ - held) * ratio_) >> 8;
    room = std::min(room, window_clamp_) - receive_window_;
    if (room > 0) {
        receive_window_ += std::min(room, 2 * mss);
        quick_ |= 1;
    }
}

// The window that is advertised, in the unit that the header has (__tcp_select_window): the room beside what waits to
// be read, and never less than before.
inline int64_t Endpoint::window() {
    int64_t room = ((buffer_bytes_ - held_bytes_) * ratio_) >> 8;
    int64_t window = std::max(std::min(room, receive_window_), edge_ - rcv_nxt);
    window = ((window + kWindowUnit - 1) >> 8) << 8;
    edge_ = rcv_nxt + window;
    return window;
}

// The window that there is room for (__tcp_select_window), whatever was advertised before.
inline int64_t Endpoint::selected_window() const {
    int64_t all = (buffer_bytes_ * ratio_) >> 8, room = ((buffer_bytes_ - held_bytes_) * ratio_) >> 8;
    if (room < std::min(window_clamp_, all) >> 1 && (room < all >> 4 || room < rcv_mss_)) return 0;
    int64_t window = std::min(room, receive_window_);
    return ((window + kWindowUnit - 1) >> 8) << 8;
}

// As of tcp_recvmsg_locked and __tcp_cleanup_rbuf.
inline int64_t Endpoint::take_in(int64_t most, Time now) {
    int64_t taken = std::min(most, unread_bytes());
    read_ += taken;
    held_bytes_ = waiting_bytes() + (ahead_.empty() ? 0 : ahead_bytes());
    bool answers = scheduled_ && rcv_nxt - rcv_wup_ > rcv_mss_;
    if (scheduled_ && taken && !unread_bytes()) answers |= reader_acknowledges();
    if (taken && !answers) {
        int64_t window_now = edge_ - rcv_nxt, window = 2 * window_now <= window_clamp_ ? selected_window() : 0;
        answers = window && window >= 2 * window_now;
    }
    if (answers) acknowledge(now);
    return taken;
}

// As of tcp_measure_rcv_mss: what the sender's full segments are taken to be.
inline void Endpoint::measure(const Packet& packet) {
    int64_t length = packet.data, before = last_segment_;
    last_segment_ = 0;
    if (length >= rcv_mss_) {
        if (length > rcv_mss_) {
            ratio_ = (length << 8) / (length + kSkbBytes);
            window_clamp_ = (buffer_bytes_ * ratio_) >> 8;
        }
        rcv_mss_ = std::min(length, mss);
        pushed_ |= packet.push;
        return;
    }
    length += packet.sacks ? kFirstSackBytes + kSackBytes * (packet.sacks - 1) : 0;  // the header is longer than usual
    int64_t whole = length + kTcpHeaderBytes;
    if (whole >= kMssDefault + 20 || (whole >= kMinMss + 20 && !packet.push)) {
        last_segment_ = length;
        if (length == before) {
            rcv_mss_ = length;
            return;
        }
    }
    pushed_again_ |= pushed_;
    pushed_ = true;
}

// As of __tcp_ecn_check_ce, and dctcp_ece_ack_update where DCTCP runs.
inline void Endpoint::see_ecn(const Packet& packet, Time now) {
    if (!ecn) return;
    if (!packet.ect) {
        if (seen_ecn_) hurry(2);
        return;
    }
    seen_ecn_ = true;
    if (needs_ecn) {
        if (packet.ce != ce_) {
            if (ack_timer_ns_) {
                demands_cwr_ = ce_;
                if (prior_rcv_nxt_ == rcv_nxt) {
                    acknowledge(now);
                } else {  // tcp_event_ack_sent
                    has_told_held();
                    rcv_wup_ = rcv_nxt;
                    send_ack(prior_rcv_nxt_, now);
                }
            }
            ack_now_ = true;
        }
        prior_rcv_nxt_ = rcv_nxt;
        ce_ = demands_cwr_ = packet.ce;
    } else if (packet.ce && !demands_cwr_) {
        hurry(2);
        demands_cwr_ = true;
    }
}

// As of tcp_enter_quickack_mode.
inline void Endpoint::hurry(int64_t quick) {
    quick_ = std::max(quick_, quick);
    pingpong_ = 0;
    ato_ = kAtoMin;
}

// Acknowledgements.

// As of __tcp_ack_snd_check.
inline void Endpoint::answer(Time now) {
    // A reader that is behind acknowledges by itself where the window would shrink.
    bool is_much = rcv_nxt - rcv_wup_ > rcv_mss_ && (!unread_bytes() || selected_window() >= edge_ - rcv_wup_);
    if (is_much || (quick_ && !pingpong_) || ack_now_) acknowledge(now);
    else if (!ahead_.empty()) answer_ahead(now);
    else delay(now);
}

// Duplicate acknowledgements: the first ones at once, further ones together.
inline void Endpoint::answer_ahead(Time now) {
    if (held_for_ != rcv_nxt) {
        held_for_ = rcv_nxt;
        dup_acks_ = 0;
    }
    if (held_acks_ >= kCompressed || dup_acks_ < kDuplicates) {
        dup_acks_ += held_acks_ < kCompressed;
        acknowledge(now);
        return;
    }
    ++held_acks_;
    if (!waits_to_release_) {
        // The least of what both ends know of the round trip, eightfold; the receiver measures in milliseconds,
        // and nothing until one has passed in a round trip.
        int64_t rtt_us = std::min(receiver_rtt_, srtt_us);
        Time wait_ns = std::min(kCompressedNs, rtt_us * (1000 >> 3) / 20);
        waits_to_release_ = true;
        net.within(now + wait_ns, now + wait_ns + kCompressedSlackNs, number);
    }
}

inline void Endpoint::release_acks(Time now) {
    waits_to_release_ = false;
    if (held_acks_) acknowledge(now);
}

// As of tcp_rcv_rtt_measure_ts.
inline void Endpoint::measure_receiver(const Packet& packet, Time now) {
    if (int64_t(packet.echo_ms) == last_echo_ms_) return;
    last_echo_ms_ = packet.echo_ms;
    int64_t passed = now / kJiffyNs - packet.echo_ms;
    if (passed > 0 && packet.data >= rcv_mss_) {
        int64_t sample = passed * 8000;
        if (receiver_rtt_ && sample >= receiver_rtt_) sample = receiver_rtt_ + passed * 1000 - (receiver_rtt_ >> 3);
        receiver_rtt_ = sample;
    }
}

// As of tcp_rcv_rtt_measure: a window's bytes take a round trip at least.
inline void Endpoint::measure_by_window(Time now) {
    int64_t now_us = now / 1000;
    if (measured_since_us_) {
        if (rcv_nxt < measured_until_) return;
        int64_t sample = std::max<int64_t>(1, now_us - measured_since_us_) << 3;
        if (!receiver_rtt_ || sample < receiver_rtt_) receiver_rtt_ = sample;
    }
    measured_until_ = rcv_nxt + edge_ - rcv_wup_;
    measured_since_us_ = now_us;
}

// As of __tcp_cleanup_rbuf, for a reader that leaves nothing behind.
inline bool Endpoint::reader_acknowledges() const {
    if (rcv_nxt - rcv_wup_ > rcv_mss_) return true;
    return ahead_.empty() && (pushed_again_ || (pushed_ && !pingpong_));
}

// As of tcp_send_delayed_ack.
inline void Endpoint::delay(Time now) {
    int64_t ato = std::min(ato_, kAtoMin);
    Time expires = expiry_ns(now, ato);
    if (ack_timer_ns_) {
        if (ack_timer_ns_ / kJiffyNs <= now / kJiffyNs + (ato >> 2)) {
            acknowledge(now);
            return;
        }
        expires = std::min(expires, ack_timer_ns_);
    }
    ack_timer_ns_ = expires;
    net.put_on_wheel(ack_place_, expires, wheel_level(ato), now);
    if (!ack_timer_set_for_) {
        ack_timer_set_for_ = expires;
        net.at_timers(expires, What::kAckTimer, number);
    }
}

inline void Endpoint::ack_timeout(Time now) {
    ack_timer_set_for_ = 0;
    if (!ack_timer_ns_) return;
    if (now < ack_timer_ns_) {
        ack_timer_set_for_ = ack_timer_ns_;
        net.at_timers(ack_timer_ns_, What::kAckTimer, number);
        return;
    }
    if (pingpong_) {
        pingpong_ = 0;
        ato_ = kAtoMin;
    } else {
        ato_ = std::min(ato_ << 1, rto_jiffies_);
    }
    if (scheduled_) acknowledge(now);
    ack_timer_ns_ = 0;
}

inline void Endpoint::send_ack(int64_t ack, Time now) {
    uint32_t made = make_packet(snd_nxt, snd_nxt, ack);
    Packet& packet = net.packets[made];
    packet.ect = ecn && needs_ecn;
    if (option_bytes_) tell_ranges(packet);
    if (paces) paced_until_ns = std::max(paced_until_ns, now);  // tcp_wstamp_ns, of which pace() takes its credit
    into_port(made, now);
}

// Has a packet tell what has come twice, and what has come ahead of what is missing.
inline void Endpoint::tell_ranges(Packet& packet) {
    Range told[kMostBlocks];
    size_t count = 0;
    if (has_duplicate_) told[count++] = duplicate_;
    for (size_t i = 0; i < sacks_.size() && count < kMostBlocks; ++i) told[count++] = sacks_[i];
    has_duplicate_ = false;
    net.packets.tell(packet, told, uint8_t(count));
    packet.length += uint32_t(option_bytes_);
    count_options();
}

inline void Endpoint::count_options() {
    int64_t blocks = int64_t(std::min(sacks_.size() + has_duplicate_, kMostBlocks));
    option_bytes_ = blocks ? kFirstSackBytes + kSackBytes * (blocks - 1) : 0;
}

// As of tcp_event_ack_sent: pending acknowledgements are done with. Returns the acknowledged number.
inline int64_t Endpoint::acknowledgement() {
    if (quick_ && scheduled_) {
        --quick_;
        if (!quick_) ato_ = kAtoMin;
    }
    scheduled_ = pushed_ = pushed_again_ = ack_now_ = false;
    ack_timer_ns_ = 0;
    has_told_held();
    rcv_wup_ = rcv_nxt;
    return rcv_nxt;
}

// Acknowledgements that were held back go with this one.
inline void Endpoint::has_told_held() {
    if (!held_acks_) return;
    held_acks_ = 0;
    if (!waits_to_release_) return;
    net.without(number);
    waits_to_release_ = false;
}

// As of tcp_event_data_sent: a reply soon after data makes a conversation.
inline void Endpoint::data_sent(Time now) {
    if (now / kJiffyNs - last_received_ < ato_) pingpong_ = std::min<int64_t>(pingpong_ + 1, 255);
}
