// SPDX-License-Identifier: GPL-2.0-only
// BBR as Linux 6.12 has it (net/ipv4/tcp_bbr.c; Cardwell et al., BBR, 2016): a model of the path, its
// bandwidth and its round trip, sets window and pace.
//
// Bandwidths are in packets a microsecond, times 2^24, gains in 256ths, times in microseconds or in
// jiffies of a millisecond, as in the kernel. Where PROBE_BW's cycle begins is random there, and drawn
// here.
#pragma once
#include <algorithm>
#include <cstdint>

#include "endpoint.hpp"

// The Mersenne Twister (Matsumoto and Nishimura 1998), seeded by an array of one number.
class Twister {
  public:
    explicit Twister(uint32_t seed) {
        state_[0] = 19650218;
        for (uint32_t i = 1; i < kSize; ++i) state_[i] = 1812433253u * (state_[i - 1] ^ state_[i - 1] >> 30) + i;
        uint32_t i = 1;
        for (uint32_t k = 0; k < kSize; ++k) {
            state_[i] = (state_[i] ^ (state_[i - 1] ^ state_[i - 1] >> 30) * 1664525u) + seed;
            if (++i >= kSize) {
                state_[0] = state_[kSize - 1];
                i = 1;
            }
        }
        for (uint32_t k = 0; k < kSize - 1; ++k) {
            state_[i] = (state_[i] ^ (state_[i - 1] ^ state_[i - 1] >> 30) * 1566083941u) - i;
            if (++i >= kSize) {
                state_[0] = state_[kSize - 1];
                i = 1;
            }
        }
        state_[0] = 0x80000000u;
    }
    uint32_t next() {
        if (at_ == kSize) turn();
        uint32_t y = state_[at_++];
        y ^= y >> 11;
        y ^= y << 7 & 0x9D2C5680u;
        y ^= y << 15 & 0xEFC60000u;
        return y ^ y >> 18;
    }

  private:
    void turn() {
        for (uint32_t i = 0; i < kSize; ++i) {
            uint32_t y = (state_[i] & 0x80000000u) | (state_[(i + 1) % kSize] & 0x7FFFFFFFu);
            state_[i] = state_[(i + 397) % kSize] ^ y >> 1 ^ (y & 1 ? 0x9908B0DFu : 0);
        }
        at_ = 0;
    }
    static constexpr uint32_t kSize = 624;
    uint32_t state_[kSize], at_ = kSize;
};

// The largest value of the last so many rounds, from three samples (lib/win_minmax.c).
class WindowedMax {
  public:
    int64_t value() const { return best_[0].value; }

    // As of minmax_running_max.
    void add(int64_t window, int64_t time, int64_t value) {
        Sample added{time, value};
        if (value >= best_[0].value || time - best_[2].time > window) {
            best_[0] = best_[1] = best_[2] = added;
            return;
        }
        if (value >= best_[1].value) best_[2] = best_[1] = added;
        else if (value >= best_[2].value) best_[2] = added;
        age(window, added);
    }

  private:
    struct Sample {
        int64_t time = 0, value = 0;
    };
    void shift(const Sample& added) {
        best_[0] = best_[1];
        best_[1] = best_[2];
        best_[2] = added;
    }
    // As of minmax_subwin_update.
    void age(int64_t window, const Sample& added) {
        int64_t age = added.time - best_[0].time;
        if (age > window) {
            shift(added);
            if (added.time - best_[0].time > window) shift(added);
        } else if (best_[1].time == best_[0].time && age > window / 4) {
            best_[2] = best_[1] = added;
        } else if (best_[2].time == best_[1].time && age > window / 2) {
            best_[2] = added;
        }
    }
    Sample best_[3];
};

// BBR, version 1.
class Bbr {
  public:
    explicit Bbr(Endpoint& sender)
        : s_(sender), random_(uint32_t(sender.srtt_us)), round_ends_at_(sender.delivered), min_rtt_us_(sender.min_rtt_us) {
        int64_t rtt_us = std::max<int64_t>(s_.srtt_us >> 3, 1);
        s_.pacing_rate = pace(s_.cwnd * kBwUnit / rtt_us, kHighGain);
    }

    // As of bbr_ssthresh.
    int64_t ssthresh() {
        save_window();
        return s_.ssthresh;
    }

    // As of bbr_set_state.
    void enters_loss() {
        prior_state_ = kLoss;
        full_bw_ = 0;
        round_start_ = true;
        sample_long_term({0, 0, 0, 0, -1, 0, 1, false});
    }

    // As of bbr_undo_cwnd.
    int64_t undo() {
        full_bw_ = 0;
        full_rounds_ = 0;
        forget_long_term();
        return s_.cwnd;
    }

    // As of bbr_cwnd_event: something is sent when nothing was under way.
    void tx_start(Time now) {
        if (!s_.rate.app_limited) return;
        restarts_ = true;
        epoch_us_ = now / 1000;
        epoch_acked_ = 0;
        if (mode_ == kProbeBw) set_pace(bandwidth(), kUnit);
        else if (mode_ == kProbeRtt) end_probing_rtt(now);
    }

    // As of bbr_main: an acknowledgement was taken in.
    void main(const RateSample& sample, Time now) {
        update_bandwidth(sample);
        update_aggregation(sample);
        if (mode_ == kProbeBw && phase_is_over(sample, now)) next_phase();
        check_full(sample);
        check_drain(now);
        update_min_rtt(sample, now);
        update_gains();
        set_pace(bandwidth(), pacing_gain_);
        set_window(sample);
    }

  private:
    using Wide = __int128;
    enum Mode { kStartup, kDrain, kProbeBw, kProbeRtt };
    static constexpr int64_t kBwUnit = 1 << 24, kUnit = 1 << 8;
    static constexpr int64_t kHighGain = kUnit * 2885 / 1000 + 1, kDrainGain = kUnit * 1000 / 2885;
    static constexpr int64_t kWindowGain = 2 * kUnit;
    static constexpr int kCycles = 8, kCycleDrawn = 7;
    static constexpr int64_t kCycle[kCycles] = {kUnit * 5 / 4, kUnit * 3 / 4, kUnit, kUnit, kUnit, kUnit, kUnit, kUnit};
    static constexpr int64_t kBwRounds = 10, kMinRttJiffies = 10'000, kProbeRttJiffies = 200;
    static constexpr int64_t kLeastWindow = 4, kInitialWindow = 10;
    static constexpr int64_t kFullGrowth = kUnit * 5 / 4, kFullRounds = 3;
    static constexpr int64_t kLtRounds = 4, kLtLoss = 50, kLtRatio = kUnit / 8, kLtDiffBytes = 500, kLtMostRounds = 48;
    static constexpr int64_t kExtraRounds = 5, kExtraReset = 1 << 20, kExtraMostUs = 100'000;

    // The model of the path.

    int64_t bandwidth() const { return lt_uses_ ? lt_bw_ : bw_.value(); }

    void update_bandwidth(const RateSample& sample) {
        round_start_ = false;
        if (sample.delivered < 0 || sample.interval_us <= 0) return;
        if (sample.prior_delivered >= round_ends_at_) {
            round_ends_at_ = s_.delivered;
            ++rounds_;
            round_start_ = true;
            conserves_ = false;
        }
        sample_long_term(sample);
        int64_t found = int64_t(Wide(sample.delivered) * kBwUnit / sample.interval_us);
        if (!sample.app_limited || found >= bw_.value()) bw_.add(kBwRounds, rounds_, found);
    }

    void update_aggregation(const RateSample& sample) {
        if (sample.acked <= 0 || sample.delivered < 0 || sample.interval_us <= 0) return;
        if (round_start_) {
            extra_rounds_ = std::min<int64_t>(0x1F, extra_rounds_ + 1);
            if (extra_rounds_ >= kExtraRounds) {
                extra_rounds_ = 0;
                extra_place_ ^= 1;
                extra_[extra_place_] = 0;
            }
        }
        int64_t delivered_us = s_.rate.delivered_us;
        int64_t expected = int64_t(Wide(bandwidth()) * std::max<int64_t>(0, delivered_us - epoch_us_) / kBwUnit);
        if (epoch_acked_ <= expected || epoch_acked_ + sample.acked >= kExtraReset) {
            epoch_acked_ = 0;
            epoch_us_ = delivered_us;
            expected = 0;
        }
        epoch_acked_ += sample.acked;
        int64_t extra = std::min(epoch_acked_ - expected, s_.cwnd);
        extra_[extra_place_] = std::max(extra_[extra_place_], extra);
    }

    void check_full(const RateSample& sample) {
        if (full_ || !round_start_ || sample.app_limited) return;
        if (bw_.value() >= int64_t(Wide(full_bw_) * kFullGrowth >> 8)) {
            full_bw_ = bw_.value();
            full_rounds_ = 0;
            return;
        }
        ++full_rounds_;
        full_ = full_rounds_ >= kFullRounds;
    }

    void check_drain(Time now) {
        if (mode_ == kStartup && full_) {
            mode_ = kDrain;
            s_.ssthresh = wanted(bw_.value(), kUnit);
        }
        if (mode_ == kDrain && in_network(s_.in_flight(), now) <= wanted(bw_.value(), kUnit)) probe_bandwidth();
    }

    void update_min_rtt(const RateSample& sample, Time now) {
        int64_t jiffies = now / kJiffyNs;
        bool expired = jiffies > min_rtt_jiffies_ + kMinRttJiffies;
        if (sample.rtt_us >= 0 && (sample.rtt_us < min_rtt_us_ || expired)) {
            min_rtt_us_ = sample.rtt_us;
            min_rtt_jiffies_ = jiffies;
        }
        if (expired && !restarts_ && mode_ != kProbeRtt) {
            mode_ = kProbeRtt;
            save_window();
            probed_until_ = 0;
        }
        if (mode_ == kProbeRtt) stay_in_probe_rtt(jiffies, now);
        if (sample.delivered > 0) restarts_ = false;
    }

    void stay_in_probe_rtt(int64_t jiffies, Time now) {
        int64_t flying = s_.in_flight();
        int64_t limited = s_.delivered + flying;
        s_.rate.app_limited = limited ? limited : 1;
        if (!probed_until_ && flying <= kLeastWindow) {
            probed_until_ = jiffies + kProbeRttJiffies;
            probe_round_done_ = false;
            round_ends_at_ = s_.delivered;
        } else if (probed_until_) {
            probe_round_done_ |= round_start_;
            if (probe_round_done_) end_probing_rtt(now);
        }
    }

    void end_probing_rtt(Time now) {
        int64_t jiffies = now / kJiffyNs;
        if (!probed_until_ || jiffies <= probed_until_) return;
        min_rtt_jiffies_ = jiffies;
        s_.cwnd = std::max(s_.cwnd, prior_cwnd_);
        if (full_) probe_bandwidth();
        else mode_ = kStartup;
    }

    // The cycle of gains.

    void probe_bandwidth() {
        mode_ = kProbeBw;
        uint32_t drawn;
        do drawn = random_.next() >> 29;
        while (drawn >= uint32_t(kCycleDrawn));
        cycle_ = kCycles - 1 - int(drawn);
        next_phase();
    }

    void next_phase() {
        cycle_ = (cycle_ + 1) % kCycles;
        cycle_us_ = s_.rate.delivered_us;
    }

    bool phase_is_over(const RateSample& sample, Time now) const {
        bool full = s_.rate.delivered_us - cycle_us_ > min_rtt_us_;
        if (pacing_gain_ == kUnit) return full;
        int64_t flying = in_network(sample.prior_in_flight, now);
        if (pacing_gain_ > kUnit) {
            bool enough = flying >= wanted(bw_.value(), pacing_gain_);
            return full && (sample.losses > 0 || enough);
        }
        return full || flying <= wanted(bw_.value(), kUnit);
    }

    void update_gains() {
        switch (mode_) {
            case kStartup:
                pacing_gain_ = window_gain_ = kHighGain;
                break;
            case kDrain:
                pacing_gain_ = kDrainGain;
                window_gain_ = kHighGain;
                break;
            case kProbeBw:
                pacing_gain_ = lt_uses_ ? kUnit : kCycle[cycle_];
                window_gain_ = kWindowGain;
                break;
            case kProbeRtt:
                pacing_gain_ = window_gain_ = kUnit;
        }
    }

    // Pace and window.

    // Bytes per second, 1% below the bandwidth.
    int64_t pace(int64_t bandwidth, int64_t gain) const {
        return int64_t((Wide(bandwidth) * s_.mss * gain >> 8) * 990'000 >> 24);
    }

    void set_pace(int64_t bandwidth, int64_t gain) {
        int64_t rate = pace(bandwidth, gain);
        if (full_ || rate > s_.pacing_rate) s_.pacing_rate = rate;
    }

    // Segments that are sent together (bbr_tso_segs_goal).
    int64_t burst() const {
        int64_t size = std::min(s_.pacing_rate >> 10, kGsoBytes);
        int64_t least = s_.pacing_rate < 150'000 ? 1 : 2;
        return std::min<int64_t>(std::max(size / s_.mss, least), 0x7F);
    }

    // The product of bandwidth and delay, in segments (bbr_bdp).
    int64_t product(int64_t bandwidth, int64_t gain) const {
        return int64_t(((Wide(bandwidth) * min_rtt_us_ * gain >> 8) + kBwUnit - 1) / kBwUnit);
    }

    // As of bbr_quantization_budget.
    int64_t budget(int64_t cwnd) const {
        cwnd = (cwnd + 3 * burst() + 1) & ~int64_t(1);
        return mode_ == kProbeBw && cycle_ == 0 ? cwnd + 2 : cwnd;
    }

    int64_t wanted(int64_t bandwidth, int64_t gain) const { return budget(product(bandwidth, gain)); }

    // As of bbr_packets_in_net_at_edt.
    int64_t in_network(int64_t flying, Time now) const {
        int64_t ahead_us = std::max<int64_t>(0, s_.paced_until_ns - now) / 1000;
        if (pacing_gain_ > kUnit) flying += burst();
        return std::max<int64_t>(0, flying - int64_t(Wide(bandwidth()) * ahead_us >> 24));
    }

    void set_window(const RateSample& sample) {
        int64_t cwnd = s_.cwnd;
        if (sample.acked) {
            bool conserves;
            cwnd = recover_or_restore(sample, conserves);
            if (!conserves) cwnd = towards_target(cwnd, sample.acked);
        }
        s_.cwnd = mode_ == kProbeRtt ? std::min(cwnd, kLeastWindow) : cwnd;
    }

    int64_t towards_target(int64_t cwnd, int64_t acked) const {
        int64_t target = product(bandwidth(), window_gain_);
        if (full_) {
            int64_t most = int64_t(Wide(bandwidth()) * kExtraMostUs / kBwUnit);
            target += std::min(std::max(extra_[0], extra_[1]), most);
        }
        target = budget(target);
        if (full_) cwnd = std::min(cwnd + acked, target);
        else if (cwnd < target || s_.delivered < kInitialWindow) cwnd += acked;
        return std::max(cwnd, kLeastWindow);
    }

    // As of bbr_set_cwnd_to_recover_or_restore: the window, and whether no more is sent than has left.
    int64_t recover_or_restore(const RateSample& sample, bool& conserves) {
        CaState before = prior_state_, state = s_.state;
        int64_t cwnd = s_.cwnd;
        if (sample.losses > 0) cwnd = std::max<int64_t>(cwnd - sample.losses, 1);
        if (state == kRecovery && before != kRecovery) {
            conserves_ = true;
            round_ends_at_ = s_.delivered;
            cwnd = s_.in_flight() + sample.acked;
        } else if (before >= kRecovery && state < kRecovery) {
            cwnd = std::max(cwnd, prior_cwnd_);
            conserves_ = false;
        }
        prior_state_ = state;
        conserves = conserves_;
        return conserves ? std::max(cwnd, s_.in_flight() + sample.acked) : cwnd;
    }

    void save_window() {
        if (prior_state_ < kRecovery && mode_ != kProbeRtt) prior_cwnd_ = s_.cwnd;
        else prior_cwnd_ = std::max(prior_cwnd_, s_.cwnd);
    }

    // Policers (bbr_lt_bw_sampling).

    void sample_long_term(const RateSample& sample) {
        if (lt_uses_) {
            if (mode_ == kProbeBw && round_start_) {
                ++lt_rounds_;
                if (lt_rounds_ >= kLtMostRounds) {
                    forget_long_term();
                    probe_bandwidth();
                }
            }
            return;
        }
        if (!lt_sampling_) {
            if (!sample.losses) return;
            begin_long_term();
            lt_sampling_ = true;
        }
        if (sample.app_limited) {
            forget_long_term();
            return;
        }
        lt_rounds_ += round_start_;
        if (lt_rounds_ < kLtRounds) return;
        if (lt_rounds_ > 4 * kLtRounds) {
            forget_long_term();
            return;
        }
        int64_t lost = s_.lost - lt_lost_, delivered = s_.delivered - lt_delivered_;
        if (!sample.losses || !delivered || lost << 8 < kLtLoss * delivered) return;
        int64_t took_ms = s_.rate.delivered_us / 1000 - lt_ms_;
        if (took_ms >= 1) end_long_term(int64_t(Wide(delivered) * kBwUnit / (took_ms * 1000)));
    }

    void end_long_term(int64_t bandwidth) {
        if (lt_bw_) {
            int64_t diff = bandwidth > lt_bw_ ? bandwidth - lt_bw_ : lt_bw_ - bandwidth;
            bool near = Wide(diff) * kUnit <= Wide(kLtRatio) * lt_bw_;
            if (near || pace(diff, kUnit) <= kLtDiffBytes) {
                lt_bw_ = (bandwidth + lt_bw_) >> 1;
                lt_uses_ = true;
                pacing_gain_ = kUnit;
                lt_rounds_ = 0;
                return;
            }
        }
        lt_bw_ = bandwidth;
        begin_long_term();
    }

    void begin_long_term() {
        lt_ms_ = s_.rate.delivered_us / 1000;
        lt_delivered_ = s_.delivered;
        lt_lost_ = s_.lost;
        lt_rounds_ = 0;
    }

    void forget_long_term() {
        lt_bw_ = 0;
        lt_uses_ = lt_sampling_ = false;
        begin_long_term();
    }

    Endpoint& s_;
    Twister random_;
    Mode mode_ = kStartup;
    WindowedMax bw_;
    int64_t rounds_ = 0, round_ends_at_;
    bool round_start_ = false;
    int64_t min_rtt_us_, min_rtt_jiffies_ = 0, probed_until_ = 0;
    bool probe_round_done_ = false;
    int cycle_ = 0;
    int64_t cycle_us_ = 0, pacing_gain_ = kHighGain, window_gain_ = kHighGain;
    bool full_ = false;
    int64_t full_bw_ = 0, full_rounds_ = 0, prior_cwnd_ = 0;
    CaState prior_state_ = kOpen;
    bool conserves_ = false, restarts_ = false, lt_sampling_ = false, lt_uses_ = false;
    int64_t lt_bw_ = 0, lt_rounds_ = 0, lt_delivered_ = 0, lt_lost_ = 0, lt_ms_ = 0;
    int64_t epoch_us_ = 0, epoch_acked_ = 0, extra_[2] = {0, 0}, extra_rounds_ = 0;
    int extra_place_ = 0;
};
