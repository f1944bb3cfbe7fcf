"""Linux's congestion control: Reno, CUBIC with HyStart, and DCTCP, as of Linux 6.12.

Windows are in segments, times in microseconds or in jiffies of a millisecond, as in the kernel.
Sources: net/ipv4/tcp_cong.c, tcp_cubic.c and tcp_dctcp.c; Ha, Rhee and Xu, CUBIC (2008) and Ha and
Rhee, HyStart (2008); Alizadeh et al., DCTCP (SIGCOMM 2010), RFC 8257.
"""

from __future__ import annotations

from typing import Protocol

from analysis.predict.engines.tcp.control.delivery_rate import RateSample

INFINITE_SSTHRESH = 0x7FFFFFFF

GSO_BYTES = 65_216
"""What a connection gives its port at once, at most: 64 KiB without the largest header
(sk_setup_caps in net/core/sock.c)."""


class Window(Protocol):
    """What congestion control sees of a sender, and changes."""

    cwnd: int
    ssthresh: int
    cwnd_cnt: int
    snd_una: int
    snd_nxt: int
    delivered: int
    delivered_ce: int
    pacing_rate: int
    last_sent_jiffies: int

    def is_cwnd_limited(self) -> bool:
        """Whether the window is what holds the sender back."""
        ...


def slow_start(window: Window, acked: int) -> int:
    """The window grows by what is acknowledged, up to ssthresh; what is left of that."""
    cwnd = min(window.cwnd + acked, window.ssthresh)
    acked -= cwnd - window.cwnd
    window.cwnd = cwnd
    return acked


def additive_increase(window: Window, per: int, acked: int) -> None:
    """A segment more for each `per` acknowledged ones."""
    if window.cwnd_cnt >= per:
        window.cwnd_cnt = 0
        window.cwnd += 1
    window.cwnd_cnt += acked
    if window.cwnd_cnt >= per:
        more = window.cwnd_cnt // per
        window.cwnd_cnt -= more * per
        window.cwnd += more


class Reno:
    """Slow start, then a segment a round trip; half the window after a loss."""

    needs_ecn = False
    paces = False
    """Whether `main` sets window and pace, from samples of the rate of delivery."""

    def __init__(self, window: Window) -> None:
        self.window = window

    def ssthresh(self) -> int:
        """Where the window goes when congestion is met."""
        return max(self.window.cwnd >> 1, 2)

    def cong_avoid(self, acked: int, now: int) -> None:
        """So many segments are acknowledged."""
        window = self.window
        if not window.is_cwnd_limited():
            return
        if window.cwnd < window.ssthresh:
            acked = slow_start(window, acked)
            if not acked:
                return
        additive_increase(window, window.cwnd, acked)

    def pkts_acked(self, rtt_us: int, now: int) -> None:
        """A round trip is measured; -1 without a sample."""

    def in_ack_event(self) -> None:
        """An acknowledgement was taken in."""

    def tx_start(self, now: int) -> None:
        """Something is sent when nothing was under way."""

    def main(self, sample: RateSample, now: int) -> None:
        """An acknowledgement was taken in, and this is what it tells."""

    def enters_recovery(self) -> None:
        """A loss was detected by acknowledgements."""

    def meets_loss(self) -> None:
        """A timer found a loss, which the window is to fall for."""

    def enters_loss(self, now: int) -> None:
        """A timer found a loss."""


_BICTCP_HZ, _HZ = 10, 1000
_BETA, _BETA_SCALE = 717, 1024
_CUBE_RTT_SCALE = 41 * 10
_FRIENDLY_SCALE = 8 * (_BETA_SCALE + _BETA) // 3 // (_BETA_SCALE - _BETA)
_CUBE_FACTOR = (1 << (10 + 3 * _BICTCP_HZ)) // (41 * 10)
_LOW_WINDOW, _ACK_DELTA_US, _LEAST_SAMPLES = 16, 2000, 8
_LEAST_DELAY_US, _MOST_DELAY_US = 4000, 16000


_ROOTS = bytes.fromhex(
    "00363636767676767b81868a8f93979c9da1a4a8aaadb0b3b5b9bbbec0c2c5c7"
    "c8caccced1d3d5d7d9dbdddee0e1e3e5e7e8eaecedeff0f2f4f5f6f8fafbfcfe"
)


def cubic_root(value: int) -> int:
    """The cubic root as the kernel has it: from a table, with one step of Newton's method."""
    bits = value.bit_length()
    if bits < 7:
        return _ROOTS[value] + 35 >> 6
    bits = (bits * 84 >> 8) - 1
    root = (_ROOTS[value >> 3 * bits] + 10 << bits) >> 6
    root = 2 * root + value // (root * (root - 1))
    return root * 341 >> 10


class Cubic(Reno):
    """CUBIC with fast convergence, its TCP-friendly region, and HyStart's two tests."""

    def __init__(self, window: Window) -> None:
        super().__init__(window)
        self._delay_min = 0
        self._reset()
        self._round_start = self._last_ack = 0
        self._end_seq = 0
        self._curr_rtt, self._samples = 1 << 31, 0

    def _reset(self) -> None:
        self._epoch_start = self._last_max = self._last_cwnd = self._last_time = 0
        self._cnt = self._origin = self._k = self._ack_cnt = self._tcp_cwnd = 0
        self._delay_min = 0
        self._found = False

    def ssthresh(self) -> int:
        """As of cubictcp_recalc_ssthresh."""
        cwnd = self.window.cwnd
        self._epoch_start = 0
        if cwnd < self._last_max:
            self._last_max = cwnd * (_BETA_SCALE + _BETA) // (2 * _BETA_SCALE)
        else:
            self._last_max = cwnd
        return max(cwnd * _BETA // _BETA_SCALE, 2)

    def cong_avoid(self, acked: int, now: int) -> None:
        """As of cubictcp_cong_avoid."""
        window = self.window
        if not window.is_cwnd_limited():
            return
        if window.cwnd < window.ssthresh:
            acked = slow_start(window, acked)
            if not acked:
                return
        self._update(window.cwnd, acked, now // 1_000_000)
        additive_increase(window, self._cnt, acked)

    def _update(self, cwnd: int, acked: int, jiffies: int) -> None:
        """As of bictcp_update."""
        self._ack_cnt += acked
        if self._last_cwnd == cwnd and jiffies - self._last_time <= _HZ // 32:
            return
        if not (self._epoch_start and jiffies == self._last_time):
            self._last_cwnd, self._last_time = cwnd, jiffies
            if self._epoch_start == 0:
                self._epoch_start = jiffies
                self._ack_cnt, self._tcp_cwnd = acked, cwnd
                if self._last_max <= cwnd:
                    self._k, self._origin = 0, cwnd
                else:
                    self._k = cubic_root(_CUBE_FACTOR * (self._last_max - cwnd))
                    self._origin = self._last_max
            self._cnt = self._curve(cwnd, jiffies)
        self._befriend(cwnd)
        self._cnt = max(self._cnt, 2)

    def _curve(self, cwnd: int, jiffies: int) -> int:
        t = jiffies - self._epoch_start + -(-self._delay_min // 1000)
        t = (t << _BICTCP_HZ) // _HZ
        offset = abs(t - self._k)
        delta = (_CUBE_RTT_SCALE * offset**3) >> (10 + 3 * _BICTCP_HZ)
        target = self._origin - delta if t < self._k else self._origin + delta
        count = cwnd // (target - cwnd) if target > cwnd else 100 * cwnd
        return 20 if self._last_max == 0 and count > 20 else count

    def _befriend(self, cwnd: int) -> None:
        delta = (cwnd * _FRIENDLY_SCALE) >> 3
        if self._ack_cnt > delta:
            more = (self._ack_cnt - 1) // delta
            self._ack_cnt -= more * delta
            self._tcp_cwnd += more
        if self._tcp_cwnd > cwnd:
            self._cnt = min(self._cnt, cwnd // (self._tcp_cwnd - cwnd))

    def pkts_acked(self, rtt_us: int, now: int) -> None:
        """As of cubictcp_acked."""
        if rtt_us < 0:
            return
        jiffies = now // 1_000_000
        if self._epoch_start and jiffies - self._epoch_start < _HZ:
            return
        delay = max(rtt_us, 1)
        if self._delay_min == 0 or self._delay_min > delay:
            self._delay_min = delay
        if not self._found and self.window.cwnd < self.window.ssthresh:
            self._hystart(delay, now // 1000)

    def _hystart(self, delay: int, now_us: int) -> None:
        window = self.window
        if window.snd_una > self._end_seq:
            self._begin_round(now_us)
        if window.cwnd < _LOW_WINDOW:
            return
        if now_us - self._last_ack <= _ACK_DELTA_US:
            self._last_ack = now_us
            if now_us - self._round_start > (self._delay_min + self._ack_delay()) >> 1:
                self._found = True
                window.ssthresh = window.cwnd
        self._curr_rtt = min(self._curr_rtt, delay)
        if self._samples < _LEAST_SAMPLES:
            self._samples += 1
            return
        longest = min(max(self._delay_min >> 3, _LEAST_DELAY_US), _MOST_DELAY_US)
        if self._curr_rtt > self._delay_min + longest:
            self._found = True
            window.ssthresh = window.cwnd

    def _ack_delay(self) -> int:
        rate = self.window.pacing_rate
        return min(1000, GSO_BYTES * 4 * 1_000_000 // rate) if rate else 0

    def _begin_round(self, now_us: int) -> None:
        self._round_start = self._last_ack = now_us
        self._end_seq = self.window.snd_nxt
        self._curr_rtt, self._samples = 1 << 31, 0

    def tx_start(self, now: int) -> None:
        """The curve does not go on while nothing is sent."""
        jiffies = now // 1_000_000
        delta = jiffies - self.window.last_sent_jiffies
        if self._epoch_start and delta > 0:
            self._epoch_start = min(self._epoch_start + delta, jiffies)

    def enters_loss(self, now: int) -> None:
        """As of cubictcp_state."""
        self._reset()
        self._begin_round(now // 1000)


_MOST_ALPHA, _G_SHIFT = 1024, 4


class Dctcp(Reno):
    """DCTCP: the window falls by alpha / 2, the marked share's average over round trips."""

    needs_ecn = True

    def __init__(self, window: Window) -> None:
        super().__init__(window)
        self.alpha = _MOST_ALPHA
        self._next_seq = 0
        self._old_delivered = self._old_delivered_ce = 0

    def ssthresh(self) -> int:
        """As of dctcp_ssthresh."""
        cwnd = self.window.cwnd
        return max(cwnd - ((cwnd * self.alpha) >> 11), 2)

    def in_ack_event(self) -> None:
        """As of dctcp_update_alpha, once a round trip."""
        window = self.window
        if window.snd_una < self._next_seq:
            return
        delivered = window.delivered - self._old_delivered
        marked = window.delivered_ce - self._old_delivered_ce
        alpha = self.alpha
        less = alpha >> _G_SHIFT
        alpha -= min(alpha, less) if less else alpha
        if marked:
            more = (marked << (10 - _G_SHIFT)) // max(1, delivered)
            alpha = min(alpha + more, _MOST_ALPHA)
        self.alpha = alpha
        self._next_seq = window.snd_nxt
        self._old_delivered, self._old_delivered_ce = window.delivered, window.delivered_ce

    def enters_recovery(self) -> None:
        """As of dctcp_react_to_loss."""
        self.window.ssthresh = max(self.window.cwnd >> 1, 2)

    def meets_loss(self) -> None:
        """As of dctcp_react_to_loss."""
        self.enters_recovery()
