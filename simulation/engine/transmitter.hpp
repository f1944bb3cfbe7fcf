// SPDX-License-Identifier: GPL-2.0-only
// The sending half of a TCP socket: its queue, its windows, and what waits in its host's port. As tcp_write_xmit and
// what it calls do it (net/ipv4/tcp_output.c and tcp.c of Linux 6.12), with TCP small queues and auto
// corking.
#pragma once
#include "bbr.hpp"
#include "endpoint.hpp"

inline Endpoint::Endpoint(Network& network, uint32_t number, const TcpSetting& tcp, int64_t mss, int64_t rtt_us,
                          bool listened)
    : net(network),
      number(number),
      control(tcp.control),
      paces(tcp.control == Control::kBbr),
      ecn(tcp.ecn),
      needs_ecn(tcp.control == Control::kDctcp),
      mss(mss),
      send_buffer_bytes_(tcp.send_buffer_bytes),
      headers_bytes_(uint32_t(kHeadersBytes + tcp.outer_bytes)),
      min_rto_us_(tcp.min_rto_us),
      buffer_bytes_(tcp.receive_buffer_bytes),
      window_clamp_(tcp.receive_buffer_bytes / 2 - mss) {
    begin(tcp.initial_window, rtt_us);
    // tcp_openreq_init_rwin counts timestamps, tcp_connect_init does not know yet that there are some.
    int64_t unit = listened ? mss : mss + kTimestampBytes;
    edge_ = buffer_bytes_ / 2 / unit * unit;
    receive_window_ = std::min(edge_, window_clamp_);
}

inline Endpoint::~Endpoint() = default;

inline void Endpoint::begin(int64_t initial_window, int64_t rtt_us) {
    cwnd = initial_window;
    srtt_us = std::max<int64_t>(1, rtt_us << 3);
    min_rtt_us = least_of(rtt_us);
    if (paces) bbr_ = std::make_unique<Bbr>(*this);
    else update_pacing_rate();
    mdev_us_ = srtt_us >> 2;
    rttvar_us_ = mdev_max_us_ = std::max(mdev_us_, min_rto_us_);
    set_rto();
}

inline void Endpoint::begin_anew(const TcpSetting& tcp, int64_t rtt_us, int64_t greeting_us, Time now) {
    cubic_ = {};
    begin(tcp.initial_window, rtt_us);
    if (greeting_us >= 0) greeted(greeting_us, now);
}

inline void Endpoint::connect(Endpoint& other) {
    peer = other.number;
    other.peer = number;
    window_bytes_ = other.window();
    other.window_bytes_ = window();
}

inline void Endpoint::greet(Endpoint& other, int64_t size, int64_t rtt_us, Time now) {
    write_seq = snd_una = snd_nxt = size;
    delivered = max_packets_out = 1;
    greeted(rtt_us, now);
    other.rcv_nxt = other.rcv_wup_ = other.prior_rcv_nxt_ = size;
    other.ato_ = kAtoMin;
    other.quick_ = kQuickAcks - 1;
    other.last_received_ = now / kJiffyNs;
    other.measure_by_window(now);
    other.control_in_ack_event();  // the greeting acknowledges too, and a socket without memory takes it the slow way
}

inline void Endpoint::greeted(int64_t rtt_us, Time now) {
    cwnd_limited = cwnd <= 1;
    min_rtt_us = std::min(min_rtt_us, least_of(rtt_us));
    measured(rtt_us);
    control_pkts_acked(rtt_us, now);
    control_in_ack_event();
    if (!paces) {
        control_cong_avoid(1, now);
        update_pacing_rate();
    } else {
        data_segments_ = 1;
        bbr_->main({1, min_rtt_us, 0, 1, min_rtt_us, 1, 0, true}, now);
    }
}

inline int64_t Endpoint::control_ssthresh() {
    switch (control) {
        case Control::kCubic:
            return cubic_.ssthresh(*this);
        case Control::kDctcp:
            return dctcp_.ssthresh(*this);
        case Control::kBbr:
            return bbr_->ssthresh();
        default:
            return std::max<int64_t>(cwnd >> 1, 2);
    }
}

// The window that counts again once a reduction turns out to have been wrong.
inline int64_t Endpoint::control_undo_cwnd() {
    if (control == Control::kBbr) return bbr_->undo();
    return std::max(cwnd, control == Control::kDctcp ? dctcp_.loss_cwnd() : prior_cwnd_);
}

inline void Endpoint::control_cong_avoid(int64_t acked, Time now) {
    if (control == Control::kCubic) return cubic_.cong_avoid(*this, acked, now);
    // Slow start, then a segment a round trip (tcp_reno_cong_avoid).
    if (!is_cwnd_limited()) return;
    if (cwnd < ssthresh) {
        acked = slow_start(*this, acked);
        if (!acked) return;
    }
    additive_increase(*this, cwnd, acked);
}

inline void Endpoint::control_tx_start(Time now) {
    if (control == Control::kCubic) cubic_.tx_start(*this, now);
    else if (control == Control::kBbr) bbr_->tx_start(now);
}

inline bool Endpoint::write(int64_t size, int32_t message, Time now) {
    int64_t left = unwritten_.empty() ? put(size, now) : size;
    if (!left) return true;
    unwritten_.push_back({left, message});
    unwritten_bytes_ += left;
    return false;
}

inline std::optional<int32_t> Endpoint::write_on(Time now) {
    if (unwritten_.empty() || has_no_space_) return std::nullopt;
    Unwritten& first = unwritten_.front();
    int64_t left = put(first.bytes, now);
    unwritten_bytes_ -= first.bytes - left;
    first.bytes = left;
    if (left) return std::nullopt;
    int32_t message = first.message;
    unwritten_.pop_front();
    return message;
}

inline void Endpoint::ask_for_send_buffer(int64_t size) {
    if (asked_bytes_ >= size) return;
    send_buffer_bytes_ = asked_bytes_ = std::max(2 * std::min(size, kMostAskedBytes), kLeastSendBuffer);
}

// Acknowledged bytes make room for what is not written yet, once a third is free (tcp_check_space,
// sk_stream_write_space).
inline void Endpoint::check_space(Time now) {
    if (!has_no_space_ || send_buffer_bytes_ - charged_ < charged_ >> 1) return;
    has_no_space_ = false;
    net.at_processes(now, What::kWritable, number, 0);
}

// As of tcp_sendmsg_locked, of a thread that does not wait: the bytes that there was no room for.
inline int64_t Endpoint::put(int64_t size, Time now) {
    int64_t left = size, room = mss - option_bytes_;
    tries_again_ = false;
    if (paces) check_app_limited(now);
    if (room < mss) was_cut_ = true;
    while (left) {
        if (queue_.empty() || queue_.back().end_seq - queue_.back().seq >= room) {
            if (charged_ >= send_buffer_bytes_) {
                has_no_space_ = true;
                break;
            }
            queue_.push_back({write_seq, write_seq, false});
            charged_ += kSkbBytes;
        }
        Skb& tail = queue_.back();
        tail.push = false;
        int64_t part = std::min(left, room - (tail.end_seq - tail.seq));
        tail.end_seq += part;
        write_seq += part;
        charged_ += part;
        left -= part;
        if (left && queue_.size() == 1) xmit(now, room, 1);
    }
    if (queue_.empty() || left == size) return left;
    Skb& tail = queue_.back();
    tail.push = true;
    int64_t length = tail.end_seq - tail.seq;
    if (length < room && !unacked_.empty() && waits(now) > length + kSkbBytes) {
        throttle();
        if (!tries_again_) return left;
    }
    xmit(now, room, 0);
    return left;
}

// Bytes per second, which bound what waits in the port and HyStart's patience.
inline void Endpoint::update_pacing_rate() {
    int64_t unit = mss * 80'000 * (cwnd < ssthresh / 2 ? 200 : 120);
    pacing_rate = unit * std::max(cwnd, packets_out) / srtt_us;
}

inline void Endpoint::xmit(Time now, int push_one) { xmit(now, mss - option_bytes_, push_one); }

// Sends what the windows and the port allow (tcp_write_xmit): all, with `push_one` 1 a segment at most, with
// 2 one at least. A segment has `room` for data beside what its header carried when this began: a segment that was
// received twice is told of by the first that is sent then, and takes its bytes of all (tcp_current_mss).
inline void Endpoint::xmit(Time now, int64_t room, int push_one) {
    int64_t sent = 0;
    bool was_idle = !packets_out;
    while (!queue_.empty()) {
        if (paces && is_paced(now)) break;
        if (room < mss || was_cut_) cut(room);
        Skb skb = queue_.front();
        if (in_flight() >= cwnd && push_one != 2) break;
        if (skb.end_seq > snd_una + window_bytes_) break;
        if (holds_enough(skb.end_seq - skb.seq, now)) break;
        if (!transmit(skb, now)) break;
        ++sent;
        if (push_one) break;
    }
    bool limited = in_flight() >= cwnd;
    if (sent || limited) validate(limited);
    if (sent) {
        if (state == kCwr || state == kRecovery) prr_out_ += sent;
        arm_after_sending(was_idle, push_one != 2, now);
    } else if (!queue_.empty() && !packets_out && push_one != 1) {
        wait_for_room(now);
    }
}

// Has the first skb be a segment beside what else its header has to carry: it is cut, or takes from the next
// one what it lacks (tcp_mss_split_point, tcp_grow_skb).
inline void Endpoint::cut(int64_t size) {
    int64_t lacks = size - (queue_.front().end_seq - queue_.front().seq);
    if (lacks < 0) {
        int64_t seq = queue_.front().seq;
        queue_.front().seq += size;
        queue_.push_front({seq, seq + size, false});
        charged_ += kSkbBytes;
        was_cut_ = true;
    }
    while (lacks > 0 && queue_.size() > 1) {
        Skb &skb = queue_[0], &following = queue_[1];
        int64_t taken = std::min(lacks, following.end_seq - following.seq);
        lacks -= taken;
        skb.end_seq += taken;
        following.seq += taken;
        if (following.seq == following.end_seq) {
            skb.push = following.push;
            queue_[1] = skb;
            queue_.pop_front();
            charged_ -= kSkbBytes;
        }
    }
    if (queue_.size() == 1 && size == mss) was_cut_ = false;
}

// Bytes of this socket in its host's port, as sk_wmem_alloc counts them.
inline int64_t Endpoint::waits(Time now) {
    while (!in_port_.empty() && in_port_.front().leaves <= now) {
        wmem_ -= in_port_.front().bytes;
        left_ns_ = in_port_.front().leaves;
        in_port_.pop_front();
        ++left_;
    }
    while (!acks_in_port_.empty() && acks_in_port_.front() <= now) {
        acks_in_port_.pop_front();
        wmem_ -= kAckPortBytes;
    }
    return wmem_;
}

// As of tcp_small_queue_check; the end of a transmission goes on then.
inline bool Endpoint::holds_enough(int64_t length, Time now, int factor) {
    int64_t limit = std::max(2 * (length + kSkbBytes), pacing_rate >> 10);
    if (!paces) limit = std::min(limit, kLimitOutputBytes);
    if (waits(now) <= limit << factor) return false;
    if (unacked_.size() <= 1) return false;
    throttle();
    return true;
}

// Whether a segment's last copy waits in the port still; the end of its transmission goes on then
// (skb_still_in_host_queue).
inline bool Endpoint::waits_in_port(const Segment& segment, Time now) {
    waits(now);
    if (int32_t(segment.order - left_) <= 0) return false;
    throttle();
    return true;
}

inline void Endpoint::throttle() {
    if (throttled_) return;
    throttled_ = true;
    if (!in_port_.empty()) net.at_tasklets(in_port_.front().leaves, What::kHasLeft, number, in_port_.front().place);
    else waits_for_port_ = true;
}

// A packet has left the port while the socket waited for that, if it still does: what the port has no room
// for ends the wait too, and sending is tried again at once (tcp_wfree).
inline void Endpoint::has_left(Time now) {
    if (!throttled_) return;
    throttled_ = false;
    go_on(now);
}

// As of tcp_tsq_write.
inline void Endpoint::go_on(Time now) {
    if (lost_out > retrans_out && cwnd > in_flight()) retransmit_lost(now);
    xmit(now);
}

inline uint32_t Endpoint::make_packet(int64_t seq, int64_t end_seq, int64_t ack) {
    uint32_t made = net.packets.make();
    Packet& packet = net.packets[made];
    packet.route = route;
    packet.hops = hops;
    packet.target = peer;
    packet.selector = selector;
    packet.seq = seq;
    packet.data = uint32_t(end_seq - seq);
    packet.ack = ack;
    packet.window = uint32_t(window());
    packet.length = headers_bytes_ + packet.data;
    packet.ece = demands_cwr_;
    return made;
}

// Gives the first skb to the port; it stays in the queue where there is no room.
inline bool Endpoint::transmit(Skb skb, Time now) {
    int64_t ack = acknowledgement();
    bool ece = demands_cwr_;
    if (!in_flight()) control_tx_start(now);
    last_sent_jiffies = now / kJiffyNs;
    data_sent(now);
    uint32_t made = make_packet(skb.seq, skb.end_seq, ack);
    Packet& packet = net.packets[made];
    packet.ect = ecn;
    packet.ece = ece;
    packet.push = skb.push;
    packet.cwr = sends_cwr_;
    sends_cwr_ = false;
    if (option_bytes_) tell_ranges(packet);
    if (!into_port(made, now)) return false;
    queue_.pop_front();
    unacked_.push_back({skb.seq, skb.end_seq, now, given_, skb.push});
    if (paces) pace(unacked_.back(), now);
    else unacked_.back().sent.delivered = delivered;
    ++packets_out;
    snd_nxt = skb.end_seq;
    return true;
}

// A packet goes into the host's port, and counts for its socket until it has left. False where the port has
// no room, or its link is down: the window falls then, as of tcp_enter_cwr. False as well where there is no route.
inline bool Endpoint::into_port(uint32_t made, Time now) {
    Packet& packet = net.packets[made];
    if (!has_route()) {
        if (packet.data && throttled_) {
            throttled_ = false;
            tries_again_ = true;
        }
        net.packets.drop(made);
        return false;
    }
    packet.hop = 1;
    packet.sender = number;
    packet.stamp_ms = uint32_t(now / kJiffyNs);
    packet.echo_ms = echo_ms_;
    uint32_t port = net.links[route];
    bool is_data = packet.data;
    int64_t counts = is_data ? packet.data + kSkbBytes : kAckPortBytes;
    wmem_ += counts;
    Time leaves = net.send(port, made, now);
    if (leaves == kLost) {
        net.packets.drop(made);
        wmem_ -= counts;
        begin_cwr();
        if (is_data && throttled_) {
            throttled_ = false;
            tries_again_ = true;
        }
        return false;
    }
    given_ += is_data;
    if (leaves != kHeld) {
        if (is_data) in_port_.push_back({leaves, counts, net.next_place()});
        else acks_in_port_.push_back(leaves);
        net.leaves_host(port, leaves);
    }
    return true;
}

inline void Endpoint::leaves_port(Time leaves_ns, int64_t size_bytes) {
    if (!size_bytes) {
        acks_in_port_.push_back(leaves_ns);
        return;
    }
    in_port_.push_back({leaves_ns, size_bytes + kSkbBytes, net.next_place()});
    if (waits_for_port_) {
        waits_for_port_ = false;
        net.at_tasklets(leaves_ns, What::kHasLeft, number, in_port_.front().place);
    }
}

// Pacing (tcp_pacing_check, tcp_update_skb_after_send), where congestion control wants it.

// As of tcp_rate_check_app_limited.
inline void Endpoint::check_app_limited(Time now) {
    if (write_seq - snd_nxt < mss && waits(now) - 1 <= kSkbBytes && in_flight() < cwnd && lost_out <= retrans_out) {
        int64_t limited = delivered + in_flight();
        rate.app_limited = limited ? limited : 1;
    }
}

// Whether the next segment's time has not come; sending goes on then.
inline bool Endpoint::is_paced(Time now) {
    if (paced_until_ns <= now) return false;
    if (!pace_timer_set_) {
        pace_timer_set_ = true;
        net.at_tasklets(paced_until_ns, What::kPaceIsOver, number);
    }
    return true;
}

// A segment was given to the port, and the next one has to wait. The first ones do not.
inline void Endpoint::pace(Segment& segment, Time now) {
    Time before = paced_until_ns, begins = std::max(paced_until_ns, now);
    segment.sent_ns = paced_until_ns = begins;
    ++data_segments_;
    if (data_segments_ >= kUnpaced) {
        Time takes = (segment.end_seq - segment.seq) * kSecondNs / pacing_rate;
        paced_until_ns = begins + takes - std::min(takes / 2, begins - before);
    }
    rate.sent(segment, packets_out, delivered);
}

// As of tcp_cwnd_validate.
inline void Endpoint::validate(bool limited) {
    if (snd_una >= cwnd_usage_seq_ || limited || (!cwnd_limited && packets_out > max_packets_out)) {
        cwnd_limited = limited;
        max_packets_out = packets_out;
        cwnd_usage_seq_ = snd_nxt;
    }
}

inline void Endpoint::fire(What what, Time now) {
    switch (what) {
        case What::kRetransmitTimer:
            return on_timer(now);
        case What::kAckTimer:
            return ack_timeout(now);
        case What::kHasLeft:
            return has_left(now);
        default:
            pace_timer_set_ = false;
            return go_on(now);
    }
}
