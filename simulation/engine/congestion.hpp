// SPDX-License-Identifier: GPL-2.0-only
// Linux's congestion control: Reno, CUBIC with HyStart, and DCTCP, as of Linux 6.12.
//
// Windows are in segments, times in microseconds or in jiffies of a millisecond, as in the kernel.
// Sources: net/ipv4/tcp_cong.c, tcp_cubic.c and tcp_dctcp.c; Ha, Rhee and Xu, CUBIC (2008) and Ha and
// Rhee, HyStart (2008); Alizadeh et al., DCTCP (SIGCOMM 2010), RFC 8257.
#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>

#include "packet.hpp"

enum class Control : int64_t { kReno = 0, kCubic, kDctcp, kBbr };

inline constexpr int64_t kInfiniteSsthresh = 0x7FFFFFFF;
// The most that a connection gives its port at once: 64 KiB without the largest header (sk_setup_caps in
// net/core/sock.c).
inline constexpr int64_t kGsoBytes = 65'343;

// The part of a sender that congestion control sees, and changes.
struct Window {
    int64_t cwnd = 0, cwnd_cnt = 0, ssthresh = kInfiniteSsthresh;
    int64_t snd_una = 0, snd_nxt = 0, write_seq = 0;
    int64_t delivered = 0, delivered_ce = 0, lost = 0;
    int64_t pacing_rate = 1, last_sent_jiffies = 0;
    int64_t max_packets_out = 0;
    int64_t srtt_us = 0, min_rtt_us = 0;
    bool cwnd_limited = false;

    // As of tcp_is_cwnd_limited.
    bool is_cwnd_limited() const { return cwnd_limited || (cwnd < ssthresh && cwnd < 2 * max_packets_out); }
};

// The window grows by what is acknowledged, up to ssthresh; what is left of that.
inline int64_t slow_start(Window& window, int64_t acked) {
    int64_t cwnd = std::min(window.cwnd + acked, window.ssthresh);
    acked -= cwnd - window.cwnd;
    window.cwnd = cwnd;
    return acked;
}

// A segment more for each `per` acknowledged ones.
inline void additive_increase(Window& window, int64_t per, int64_t acked) {
    if (window.cwnd_cnt >= per) {
        window.cwnd_cnt = 0;
        ++window.cwnd;
    }
    window.cwnd_cnt += acked;
    if (window.cwnd_cnt >= per) {
        int64_t more = window.cwnd_cnt / per;
        window.cwnd_cnt -= more * per;
        window.cwnd += more;
    }
}

// The cubic root as the kernel has it: from a table, with one step of Newton's method.
inline int64_t cubic_root(uint64_t value) {
    static constexpr uint8_t kRoots[64] = {
        0, 54, 54, 54, 118, 118, 118, 118, 123, 129, 134, 138, 143, 147, 151, 156,
        157, 161, 164, 168, 170, 173, 176, 179, 181, 185, 187, 190, 192, 194, 197, 199,
        200, 202, 204, 206, 209, 211, 213, 215, 217, 219, 221, 222, 224, 225, 227, 229,
        231, 232, 234, 236, 237, 239, 240, 242, 244, 245, 246, 248, 250, 251, 252, 254};
    int bits = std::bit_width(value);
    if (bits < 7) return (kRoots[value] + 35) >> 6;
    bits = ((bits * 84) >> 8) - 1;
    uint64_t root = (uint64_t(kRoots[value >> (3 * bits)] + 10) << bits) >> 6;
    root = 2 * root + value / (root * (root - 1));
    return int64_t((root * 341) >> 10);
}

// CUBIC with fast convergence, its TCP-friendly region, and HyStart's two tests.
class Cubic {
  public:
    // As of cubictcp_recalc_ssthresh.
    int64_t ssthresh(const Window& window) {
        epoch_start_ = 0;
        last_max_ = window.cwnd < last_max_ ? window.cwnd * (kBetaScale + kBeta) / (2 * kBetaScale) : window.cwnd;
        return std::max<int64_t>(window.cwnd * kBeta / kBetaScale, 2);
    }

    // As of cubictcp_cong_avoid.
    void cong_avoid(Window& window, int64_t acked, Time now) {
        if (!window.is_cwnd_limited()) return;
        if (window.cwnd < window.ssthresh) {
            acked = slow_start(window, acked);
            if (!acked) return;
        }
        update(window.cwnd, acked, now / kJiffyNs);
        additive_increase(window, cnt_, acked);
    }

    // As of cubictcp_acked.
    void pkts_acked(Window& window, int64_t rtt_us, Time now) {
        if (rtt_us < 0) return;
        int64_t jiffies = now / kJiffyNs;
        if (epoch_start_ && jiffies - epoch_start_ < kHz) return;
        int64_t delay = std::max<int64_t>(rtt_us, 1);
        if (delay_min_ == 0 || delay_min_ > delay) delay_min_ = delay;
        if (!found_ && window.cwnd < window.ssthresh) hystart(window, delay, now / 1000);
    }

    // The curve does not go on while nothing is sent.
    void tx_start(const Window& window, Time now) {
        int64_t jiffies = now / kJiffyNs;
        int64_t delta = jiffies - window.last_sent_jiffies;
        if (epoch_start_ && delta > 0) epoch_start_ = std::min(epoch_start_ + delta, jiffies);
    }

    // As of cubictcp_state.
    void enters_loss(const Window& window, Time now) {
        epoch_start_ = last_max_ = last_cwnd_ = last_time_ = 0;
        cnt_ = origin_ = k_ = ack_cnt_ = tcp_cwnd_ = 0;
        delay_min_ = 0;
        found_ = false;
        begin_round(window, now / 1000);
    }

  private:
    static constexpr int64_t kHz = 1000, kBictcpHz = 10, kBeta = 717, kBetaScale = 1024;
    static constexpr int64_t kCubeRttScale = 41 * 10;
    static constexpr int64_t kFriendlyScale = 8 * (kBetaScale + kBeta) / 3 / (kBetaScale - kBeta);
    static constexpr int64_t kCubeFactor = (int64_t(1) << (10 + 3 * kBictcpHz)) / (41 * 10);
    static constexpr int64_t kLowWindow = 16, kAckDeltaUs = 2000, kLeastSamples = 8;
    static constexpr int64_t kLeastDelayUs = 4000, kMostDelayUs = 16000;

    // As of bictcp_update.
    void update(int64_t cwnd, int64_t acked, int64_t jiffies) {
        ack_cnt_ += acked;
        if (last_cwnd_ == cwnd && jiffies - last_time_ <= kHz / 32) return;
        if (!(epoch_start_ && jiffies == last_time_)) {
            last_cwnd_ = cwnd;
            last_time_ = jiffies;
            if (epoch_start_ == 0) {
                epoch_start_ = jiffies;
                ack_cnt_ = acked;
                tcp_cwnd_ = cwnd;
                if (last_max_ <= cwnd) {
                    k_ = 0;
                    origin_ = cwnd;
                } else {
                    k_ = cubic_root(uint64_t(kCubeFactor * (last_max_ - cwnd)));
                    origin_ = last_max_;
                }
            }
            cnt_ = curve(cwnd, jiffies);
        }
        befriend(cwnd);
        cnt_ = std::max<int64_t>(cnt_, 2);
    }

    int64_t curve(int64_t cwnd, int64_t jiffies) const {
        int64_t t = jiffies - epoch_start_ + (delay_min_ + 999) / 1000;
        t = (t << kBictcpHz) / kHz;
        __int128 offset = t < k_ ? k_ - t : t - k_;
        int64_t delta = int64_t((kCubeRttScale * offset * offset * offset) >> (10 + 3 * kBictcpHz));
        int64_t target = t < k_ ? origin_ - delta : origin_ + delta;
        int64_t count = target > cwnd ? cwnd / (target - cwnd) : 100 * cwnd;
        return last_max_ == 0 && count > 20 ? 20 : count;
    }

    void befriend(int64_t cwnd) {
        int64_t delta = (cwnd * kFriendlyScale) >> 3;
        if (ack_cnt_ > delta) {
            int64_t more = (ack_cnt_ - 1) / delta;
            ack_cnt_ -= more * delta;
            tcp_cwnd_ += more;
        }
        if (tcp_cwnd_ > cwnd) cnt_ = std::min(cnt_, cwnd / (tcp_cwnd_ - cwnd));
    }

    void hystart(Window& window, int64_t delay, int64_t now_us) {
        if (window.snd_una > end_seq_) begin_round(window, now_us);
        if (window.cwnd < kLowWindow) return;
        if (now_us - last_ack_ <= kAckDeltaUs) {
            last_ack_ = now_us;
            if (now_us - round_start_ > (delay_min_ + ack_delay(window)) >> 1) {
                found_ = true;
                window.ssthresh = window.cwnd;
            }
        }
        curr_rtt_ = std::min(curr_rtt_, delay);
        if (samples_ < kLeastSamples) {
            ++samples_;
            return;
        }
        int64_t longest = std::min(std::max(delay_min_ >> 3, kLeastDelayUs), kMostDelayUs);
        if (curr_rtt_ > delay_min_ + longest) {
            found_ = true;
            window.ssthresh = window.cwnd;
        }
    }

    static int64_t ack_delay(const Window& window) {
        if (!window.pacing_rate) return 0;
        return std::min<int64_t>(1000, kGsoBytes * 4 * 1'000'000 / window.pacing_rate);
    }

    void begin_round(const Window& window, int64_t now_us) {
        round_start_ = last_ack_ = now_us;
        end_seq_ = window.snd_nxt;
        curr_rtt_ = int64_t(1) << 31;
        samples_ = 0;
    }

    int64_t epoch_start_ = 0, last_max_ = 0, last_cwnd_ = 0, last_time_ = 0;
    int64_t cnt_ = 0, origin_ = 0, k_ = 0, ack_cnt_ = 0, tcp_cwnd_ = 0;
    int64_t delay_min_ = 0, round_start_ = 0, last_ack_ = 0, end_seq_ = 0;
    int64_t curr_rtt_ = int64_t(1) << 31, samples_ = 0;
    bool found_ = false;
};

// DCTCP: the window falls by alpha / 2, the marked share's average over round trips.
class Dctcp {
  public:
    // As of dctcp_ssthresh.
    int64_t ssthresh(const Window& window) {
        loss_cwnd_ = window.cwnd;
        return std::max<int64_t>(window.cwnd - ((window.cwnd * alpha_) >> 11), 2);
    }

    // As of dctcp_update_alpha, once a round trip.
    void in_ack_event(const Window& window) {
        if (window.snd_una < next_seq_) return;
        int64_t delivered = window.delivered - old_delivered_;
        int64_t marked = window.delivered_ce - old_delivered_ce_;
        int64_t less = alpha_ >> kGShift;
        alpha_ -= less ? std::min(alpha_, less) : alpha_;
        if (marked) {
            int64_t more = (marked << (10 - kGShift)) / std::max<int64_t>(1, delivered);
            alpha_ = std::min(alpha_ + more, kMostAlpha);
        }
        next_seq_ = window.snd_nxt;
        old_delivered_ = window.delivered;
        old_delivered_ce_ = window.delivered_ce;
    }

    // As of dctcp_react_to_loss.
    void react_to_loss(Window& window) {
        loss_cwnd_ = window.cwnd;
        window.ssthresh = std::max<int64_t>(window.cwnd >> 1, 2);
    }
    int64_t loss_cwnd() const { return loss_cwnd_; }
    int64_t alpha() const { return alpha_; }
    // As it fell from one value to another.
    void fall(int64_t from, int64_t to) { alpha_ = to < from ? alpha_ * to / from : alpha_; }

  private:
    static constexpr int64_t kMostAlpha = 1024, kGShift = 4;
    int64_t alpha_ = kMostAlpha, next_seq_ = 0, old_delivered_ = 0, old_delivered_ce_ = 0, loss_cwnd_ = 0;
};
