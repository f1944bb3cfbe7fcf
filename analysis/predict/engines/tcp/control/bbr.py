"""BBR as Linux 6.12 has it (net/ipv4/tcp_bbr.c; Cardwell et al., BBR, 2016): a model of the path,
its bandwidth and its round trip, sets window and pace.

Bandwidths are in packets a microsecond, times 2^24, gains in 256ths, times in microseconds or in
jiffies of a millisecond, as in the kernel. Where PROBE_BW's cycle begins is random there, and drawn
here.
"""

from __future__ import annotations

import random
from typing import Protocol

from analysis.predict.engines.tcp.control.congestion import GSO_BYTES, Reno
from analysis.predict.engines.tcp.control.delivery_rate import DeliveryRate, RateSample

_OPEN, _RECOVERY, _LOSS = 0, 3, 4
_STARTUP, _DRAIN, _PROBE_BW, _PROBE_RTT = range(4)
_BW_UNIT, _UNIT = 1 << 24, 1 << 8
_HIGH_GAIN, _DRAIN_GAIN = _UNIT * 2885 // 1000 + 1, _UNIT * 1000 // 2885
_WINDOW_GAIN = 2 * _UNIT
_CYCLE = (_UNIT * 5 // 4, _UNIT * 3 // 4, *(_UNIT,) * 6)
_CYCLE_DRAWN = 7
_BW_ROUNDS, _MIN_RTT_JIFFIES, _PROBE_RTT_JIFFIES = 10, 10_000, 200
_LEAST_WINDOW, _INITIAL_WINDOW = 4, 10
_FULL_GROWTH, _FULL_ROUNDS = _UNIT * 5 // 4, 3
_LT_ROUNDS, _LT_LOSS, _LT_RATIO, _LT_DIFF_BYTES, _LT_MOST_ROUNDS = 4, 50, _UNIT // 8, 500, 48
_EXTRA_ROUNDS, _EXTRA_RESET, _EXTRA_MOST_US = 5, 1 << 20, 100_000


class Paced(Protocol):
    """What BBR sees of a sender, and changes."""

    cwnd: int
    ssthresh: int
    mss: int
    delivered: int
    srtt_us: int
    min_rtt_us: int
    state: int
    lost: int
    pacing_rate: int
    paced_until_ns: int
    rate: DeliveryRate

    def in_flight(self) -> int:
        """Segments under way."""
        ...


class WindowedMax:
    """The largest value of the last so many rounds, from three samples (lib/win_minmax.c)."""

    def __init__(self) -> None:
        self._best = [(0, 0)] * 3

    @property
    def value(self) -> int:
        """The maximum."""
        return self._best[0][1]

    def add(self, window: int, time: int, value: int) -> None:
        """As of minmax_running_max."""
        best, new = self._best, (time, value)
        if value >= best[0][1] or time - best[2][0] > window:
            self._best = [new] * 3
            return
        if value >= best[1][1]:
            best[2] = best[1] = new
        elif value >= best[2][1]:
            best[2] = new
        self._age(window, new)

    def _age(self, window: int, new: tuple[int, int]) -> None:
        """As of minmax_subwin_update."""
        best = self._best
        age = new[0] - best[0][0]
        if age > window:
            best[0], best[1], best[2] = best[1], best[2], new
            if new[0] - best[0][0] > window:
                best[0], best[1], best[2] = best[1], best[2], new
        elif best[1][0] == best[0][0] and age > window // 4:
            best[2] = best[1] = new
        elif best[2][0] == best[1][0] and age > window // 2:
            best[2] = new


class Bbr(Reno):
    """BBR, version 1."""

    paces = True

    def __init__(self, window: Paced) -> None:
        self._sender = window
        self._random = random.Random(window.srtt_us)
        self._mode = _STARTUP
        self._bw = WindowedMax()
        self._rounds, self._round_ends_at, self._round_start = 0, window.delivered, False
        self._min_rtt_us, self._min_rtt_jiffies = window.min_rtt_us, 0
        self._probed_until, self._probe_round_done = 0, False
        self._cycle, self._cycle_us = 0, 0
        self._pacing_gain = self._window_gain = _HIGH_GAIN
        self._full, self._full_bw, self._full_rounds = False, 0, 0
        self._prior_cwnd, self._prior_state = 0, _OPEN
        self._conserves = self._restarts = False
        self._lt_sampling, self._lt_uses, self._lt_bw, self._lt_rounds = False, False, 0, 0
        self._lt_delivered = self._lt_lost = self._lt_ms = 0
        self._epoch_us = self._epoch_acked = 0
        self._extra, self._extra_place, self._extra_rounds = [0, 0], 0, 0
        rtt_us = max(window.srtt_us >> 3, 1)
        window.pacing_rate = self._pace(window.cwnd * _BW_UNIT // rtt_us, _HIGH_GAIN)

    # What the sender calls.

    def ssthresh(self) -> int:
        """As of bbr_ssthresh."""
        self._save_window()
        return self._sender.ssthresh

    def enters_loss(self, now: int) -> None:
        """As of bbr_set_state."""
        self._prior_state = _LOSS
        self._full_bw = 0
        self._round_start = True
        self._sample_long_term(RateSample(0, 0, 0, 0, -1, 0, 1, False))

    def tx_start(self, now: int) -> None:
        """As of bbr_cwnd_event."""
        if not self._sender.rate.app_limited:
            return
        self._restarts = True
        self._epoch_us, self._epoch_acked = now // 1000, 0
        if self._mode == _PROBE_BW:
            self._set_pace(self._bandwidth(), _UNIT)
        elif self._mode == _PROBE_RTT:
            self._end_probing_rtt(now)

    def main(self, sample: RateSample, now: int) -> None:
        """As of bbr_main: an acknowledgement was taken in."""
        self._update_bandwidth(sample)
        self._update_aggregation(sample)
        if self._mode == _PROBE_BW and self._phase_is_over(sample, now):
            self._next_phase()
        self._check_full(sample)
        self._check_drain(now)
        self._update_min_rtt(sample, now)
        self._update_gains()
        self._set_pace(self._bandwidth(), self._pacing_gain)
        self._set_window(sample)

    # The model of the path.

    def _bandwidth(self) -> int:
        return self._lt_bw if self._lt_uses else self._bw.value

    def _update_bandwidth(self, sample: RateSample) -> None:
        self._round_start = False
        if sample.delivered < 0 or sample.interval_us <= 0:
            return
        if sample.prior_delivered >= self._round_ends_at:
            self._round_ends_at = self._sender.delivered
            self._rounds += 1
            self._round_start = True
            self._conserves = False
        self._sample_long_term(sample)
        found = sample.delivered * _BW_UNIT // sample.interval_us
        if not sample.app_limited or found >= self._bw.value:
            self._bw.add(_BW_ROUNDS, self._rounds, found)

    def _update_aggregation(self, sample: RateSample) -> None:
        if sample.acked <= 0 or sample.delivered < 0 or sample.interval_us <= 0:
            return
        if self._round_start:
            self._extra_rounds = min(0x1F, self._extra_rounds + 1)
            if self._extra_rounds >= _EXTRA_ROUNDS:
                self._extra_rounds = 0
                self._extra_place ^= 1
                self._extra[self._extra_place] = 0
        delivered_us = self._sender.rate.delivered_us
        expected = self._bandwidth() * max(0, delivered_us - self._epoch_us) // _BW_UNIT
        acked = self._epoch_acked
        if acked <= expected or acked + sample.acked >= _EXTRA_RESET:
            self._epoch_acked, self._epoch_us, expected = 0, delivered_us, 0
        self._epoch_acked += sample.acked
        extra = min(self._epoch_acked - expected, self._sender.cwnd)
        self._extra[self._extra_place] = max(self._extra[self._extra_place], extra)

    def _check_full(self, sample: RateSample) -> None:
        if self._full or not self._round_start or sample.app_limited:
            return
        if self._bw.value >= self._full_bw * _FULL_GROWTH >> 8:
            self._full_bw, self._full_rounds = self._bw.value, 0
            return
        self._full_rounds += 1
        self._full = self._full_rounds >= _FULL_ROUNDS

    def _check_drain(self, now: int) -> None:
        if self._mode == _STARTUP and self._full:
            self._mode = _DRAIN
            self._sender.ssthresh = self._wanted(self._bw.value, _UNIT)
        if self._mode == _DRAIN:
            flying = self._in_network(self._sender.in_flight(), now)
            if flying <= self._wanted(self._bw.value, _UNIT):
                self._probe_bandwidth()

    def _update_min_rtt(self, sample: RateSample, now: int) -> None:
        jiffies = now // 1_000_000
        expired = jiffies > self._min_rtt_jiffies + _MIN_RTT_JIFFIES
        if sample.rtt_us >= 0 and (sample.rtt_us < self._min_rtt_us or expired):
            self._min_rtt_us, self._min_rtt_jiffies = sample.rtt_us, jiffies
        if expired and not self._restarts and self._mode != _PROBE_RTT:
            self._mode = _PROBE_RTT
            self._save_window()
            self._probed_until = 0
        if self._mode == _PROBE_RTT:
            self._stay_in_probe_rtt(jiffies, now)
        if sample.delivered > 0:
            self._restarts = False

    def _stay_in_probe_rtt(self, jiffies: int, now: int) -> None:
        sender = self._sender
        flying = sender.in_flight()
        sender.rate.app_limited = sender.delivered + flying or 1
        if not self._probed_until and flying <= _LEAST_WINDOW:
            self._probed_until = jiffies + _PROBE_RTT_JIFFIES
            self._probe_round_done = False
            self._round_ends_at = sender.delivered
        elif self._probed_until:
            self._probe_round_done |= self._round_start
            if self._probe_round_done:
                self._end_probing_rtt(now)

    def _end_probing_rtt(self, now: int) -> None:
        jiffies = now // 1_000_000
        if not self._probed_until or jiffies <= self._probed_until:
            return
        self._min_rtt_jiffies = jiffies
        self._sender.cwnd = max(self._sender.cwnd, self._prior_cwnd)
        if self._full:
            self._probe_bandwidth()
        else:
            self._mode = _STARTUP

    # The cycle of gains.

    def _probe_bandwidth(self) -> None:
        self._mode = _PROBE_BW
        self._cycle = len(_CYCLE) - 1 - self._random.randrange(_CYCLE_DRAWN)
        self._next_phase()

    def _next_phase(self) -> None:
        self._cycle = (self._cycle + 1) % len(_CYCLE)
        self._cycle_us = self._sender.rate.delivered_us

    def _phase_is_over(self, sample: RateSample, now: int) -> bool:
        full = self._sender.rate.delivered_us - self._cycle_us > self._min_rtt_us
        if self._pacing_gain == _UNIT:
            return full
        flying = self._in_network(sample.prior_in_flight, now)
        if self._pacing_gain > _UNIT:
            enough = flying >= self._wanted(self._bw.value, self._pacing_gain)
            return full and (sample.losses > 0 or enough)
        return full or flying <= self._wanted(self._bw.value, _UNIT)

    def _update_gains(self) -> None:
        if self._mode == _STARTUP:
            self._pacing_gain = self._window_gain = _HIGH_GAIN
        elif self._mode == _DRAIN:
            self._pacing_gain, self._window_gain = _DRAIN_GAIN, _HIGH_GAIN
        elif self._mode == _PROBE_BW:
            self._pacing_gain = _UNIT if self._lt_uses else _CYCLE[self._cycle]
            self._window_gain = _WINDOW_GAIN
        else:
            self._pacing_gain = self._window_gain = _UNIT

    # Pace and window.

    def _pace(self, bandwidth: int, gain: int) -> int:
        """Bytes per second, 1% below the bandwidth."""
        return (bandwidth * self._sender.mss * gain >> 8) * 990_000 >> 24

    def _set_pace(self, bandwidth: int, gain: int) -> None:
        rate = self._pace(bandwidth, gain)
        if self._full or rate > self._sender.pacing_rate:
            self._sender.pacing_rate = rate

    def _burst(self) -> int:
        """Segments that are sent together (bbr_tso_segs_goal)."""
        size = min(self._sender.pacing_rate >> 10, GSO_BYTES)
        least = 1 if self._sender.pacing_rate < 150_000 else 2
        return min(max(size // self._sender.mss, least), 0x7F)

    def _product(self, bandwidth: int, gain: int) -> int:
        """Of bandwidth and delay, in segments (bbr_bdp)."""
        return -(-(bandwidth * self._min_rtt_us * gain >> 8) // _BW_UNIT)

    def _budget(self, cwnd: int) -> int:
        """As of bbr_quantization_budget."""
        cwnd = (cwnd + 3 * self._burst() + 1) & ~1
        return cwnd + 2 if self._mode == _PROBE_BW and self._cycle == 0 else cwnd

    def _wanted(self, bandwidth: int, gain: int) -> int:
        return self._budget(self._product(bandwidth, gain))

    def _in_network(self, flying: int, now: int) -> int:
        """As of bbr_packets_in_net_at_edt."""
        ahead_us = max(0, self._sender.paced_until_ns - now) // 1000
        if self._pacing_gain > _UNIT:
            flying += self._burst()
        return max(0, flying - (self._bandwidth() * ahead_us >> 24))

    def _set_window(self, sample: RateSample) -> None:
        sender = self._sender
        cwnd = sender.cwnd
        if sample.acked:
            cwnd, conserves = self._recover_or_restore(sample)
            if not conserves:
                cwnd = self._towards_target(cwnd, sample.acked)
        sender.cwnd = min(cwnd, _LEAST_WINDOW) if self._mode == _PROBE_RTT else cwnd

    def _towards_target(self, cwnd: int, acked: int) -> int:
        target = self._product(self._bandwidth(), self._window_gain)
        if self._full:
            most = self._bandwidth() * _EXTRA_MOST_US // _BW_UNIT
            target += min(max(self._extra), most)
        target = self._budget(target)
        if self._full:
            cwnd = min(cwnd + acked, target)
        elif cwnd < target or self._sender.delivered < _INITIAL_WINDOW:
            cwnd += acked
        return max(cwnd, _LEAST_WINDOW)

    def _recover_or_restore(self, sample: RateSample) -> tuple[int, bool]:
        """As of bbr_set_cwnd_to_recover_or_restore: the window, and whether no more is sent than
        has left."""
        sender = self._sender
        before, state, cwnd = self._prior_state, sender.state, sender.cwnd
        if sample.losses > 0:
            cwnd = max(cwnd - sample.losses, 1)
        if state == _RECOVERY and before != _RECOVERY:
            self._conserves = True
            self._round_ends_at = sender.delivered
            cwnd = sender.in_flight() + sample.acked
        elif before >= _RECOVERY > state:
            cwnd = max(cwnd, self._prior_cwnd)
            self._conserves = False
        self._prior_state = state
        if self._conserves:
            return max(cwnd, sender.in_flight() + sample.acked), True
        return cwnd, False

    def _save_window(self) -> None:
        cwnd = self._sender.cwnd
        if self._prior_state < _RECOVERY and self._mode != _PROBE_RTT:
            self._prior_cwnd = cwnd
        else:
            self._prior_cwnd = max(self._prior_cwnd, cwnd)

    # Policers (bbr_lt_bw_sampling).

    def _sample_long_term(self, sample: RateSample) -> None:
        if self._lt_uses:
            if self._mode == _PROBE_BW and self._round_start:
                self._lt_rounds += 1
                if self._lt_rounds >= _LT_MOST_ROUNDS:
                    self._forget_long_term()
                    self._probe_bandwidth()
            return
        if not self._lt_sampling:
            if not sample.losses:
                return
            self._begin_long_term()
            self._lt_sampling = True
        if sample.app_limited:
            self._forget_long_term()
            return
        self._lt_rounds += self._round_start
        if self._lt_rounds < _LT_ROUNDS:
            return
        if self._lt_rounds > 4 * _LT_ROUNDS:
            self._forget_long_term()
            return
        lost = self._sender.lost - self._lt_lost
        delivered = self._sender.delivered - self._lt_delivered
        if not sample.losses or not delivered or lost << 8 < _LT_LOSS * delivered:
            return
        took_ms = self._sender.rate.delivered_us // 1000 - self._lt_ms
        if took_ms >= 1:
            self._end_long_term(delivered * _BW_UNIT // (took_ms * 1000))

    def _end_long_term(self, bandwidth: int) -> None:
        if self._lt_bw:
            diff = abs(bandwidth - self._lt_bw)
            near = diff * _UNIT <= _LT_RATIO * self._lt_bw
            if near or self._pace(diff, _UNIT) <= _LT_DIFF_BYTES:
                self._lt_bw = (bandwidth + self._lt_bw) >> 1
                self._lt_uses, self._pacing_gain, self._lt_rounds = True, _UNIT, 0
                return
        self._lt_bw = bandwidth
        self._begin_long_term()

    def _begin_long_term(self) -> None:
        self._lt_ms = self._sender.rate.delivered_us // 1000
        self._lt_delivered, self._lt_lost = self._sender.delivered, self._sender.lost
        self._lt_rounds = 0

    def _forget_long_term(self) -> None:
        self._lt_bw, self._lt_uses, self._lt_sampling = 0, False, False
        self._begin_long_term()
