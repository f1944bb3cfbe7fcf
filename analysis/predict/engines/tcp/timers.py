"""The timers of a TCP sender: what is lost at the end, and what its port has no room for.

As net/ipv4/tcp_timer.c and tcp_output.c of Linux 6.12 have them: tail loss probes and RACK's timer
(RFC 8985), the retransmission timer (RFC 6298), the wait for a port. One is set at a time.
"""

from __future__ import annotations

from typing import Any

from analysis.predict.engines.tcp.network import TIMERS
from analysis.predict.engines.tcp.recovery import RecoveringTransmitter
from analysis.predict.engines.tcp.transmitter import (
    CWR,
    DISORDER,
    JIFFY_NS,
    LOSS,
    OPEN,
    RECOVERY,
)

_NO_TIMER, _RTO, _PROBE, _REORDER, _ROOM = range(5)
_LEAST_RTO_JIFFIES, _NO_ROOM_JIFFIES = 200, 500
"""TCP_RTO_MIN and TCP_RESOURCE_PROBE_INTERVAL."""

_TIMEOUT_MIN_US = 2000
_MAX_RTO_JIFFIES = 120_000


class TimedTransmitter(RecoveringTransmitter):
    """A transmitter that does not wait for ever."""

    def __init__(self, min_rto_us: int, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._min_rto_us = min_rto_us
        self._mdev_us = self.srtt_us >> 2
        self._rttvar_us = max(self._mdev_us, min_rto_us)
        self._mdev_max_us = self._rttvar_us
        self._rtt_seq = 0
        self._rto_jiffies = 0
        self._set_rto()
        self._timer = _NO_TIMER
        self._timer_ns = self._timer_set_for = 0

    def measured(self, rtt_us: int) -> None:
        """A round trip."""
        self._estimate(rtt_us)
        self._set_rto()

    def _estimate(self, rtt_us: int) -> None:
        """As of tcp_rtt_estimator; srtt is kept eightfold, mdev fourfold."""
        error = rtt_us - (self.srtt_us >> 3)
        self.srtt_us = max(1, self.srtt_us + error)
        if error < 0:
            error = -error - (self._mdev_us >> 2)
            if error > 0:
                error >>= 3
        else:
            error -= self._mdev_us >> 2
        self._mdev_us += error
        if self._mdev_us > self._mdev_max_us:
            self._mdev_max_us = self._mdev_us
            self._rttvar_us = max(self._rttvar_us, self._mdev_max_us)
        if self.snd_una > self._rtt_seq:
            if self._mdev_max_us < self._rttvar_us:
                self._rttvar_us -= (self._rttvar_us - self._mdev_max_us) >> 2
            self._rtt_seq = self.snd_nxt
            self._mdev_max_us = self._min_rto_us

    def _set_rto(self) -> None:
        self._rto_jiffies = _jiffies_of((self.srtt_us >> 3) + self._rttvar_us)

    def arm_after_sending(self, was_idle: bool, probe: bool, now: int) -> None:
        """As of tcp_event_new_data_sent and the end of tcp_write_xmit."""
        if was_idle or self._timer == _PROBE:
            self._rearm(now)
        if probe:
            self._schedule_probe(now, advancing=False)

    def acknowledged(self, now: int) -> None:
        """As of tcp_set_xmit_timer."""
        if not self._schedule_probe(now, advancing=True):
            self._rearm(now)

    def _schedule_probe(self, now: int, advancing: bool) -> bool:
        """As of tcp_schedule_loss_probe."""
        if not self.packets_out or self.state not in (OPEN, CWR):
            return False
        more_us = self._min_rto_us if self.packets_out == 1 else _TIMEOUT_MIN_US
        timeout = _jiffies_of((self.srtt_us >> 2) + more_us)
        left_us = self._rto_jiffies * 1000 if advancing else self._until_rto_us(now)
        if left_us > 0:
            timeout = min(timeout, _jiffies_of(left_us))
        self._arm(_PROBE, timeout, now)
        return True

    def _until_rto_us(self, now: int) -> int:
        sent_us = self.unacked[0].sent_ns // 1000
        return sent_us + self._rto_jiffies * 1000 - now // 1000

    def _rearm(self, now: int) -> None:
        """As of tcp_rearm_rto."""
        if not self.packets_out:
            self._timer = _NO_TIMER
            return
        timeout = self._rto_jiffies
        if self._timer in (_PROBE, _REORDER):
            timeout = _jiffies_of(max(self._until_rto_us(now), 1))
        self._arm(_RTO, timeout, now)

    def _arm(self, timer: int, jiffies: int, now: int) -> None:
        self._timer = timer
        self._timer_ns = expiry_ns(now, max(jiffies, 1))
        if not self._timer_set_for or self._timer_ns < self._timer_set_for:
            self._timer_set_for = self._timer_ns
            self.events.at(self._timer_ns, self._on_timer, TIMERS)

    def _on_timer(self, now: int) -> None:
        if now != self._timer_set_for:
            return
        self._timer_set_for = 0
        if self._timer == _NO_TIMER:
            return
        if now < self._timer_ns:
            self._timer_set_for = self._timer_ns
            self.events.at(self._timer_ns, self._on_timer, TIMERS)
            return
        timer = self._timer
        if timer in (_RTO, _ROOM):
            self._timer = _NO_TIMER
        if timer == _ROOM:
            self._try_for_room(now)
        elif not self.packets_out:
            self._timer = _NO_TIMER
        elif timer == _PROBE:
            self._send_probe(now)
        elif timer == _REORDER:
            self._reorder_timeout(now)
        else:
            self._timeout(now)

    def wait_for_room(self, now: int) -> None:
        """As of tcp_check_probe_timer."""
        if self._timer == _NO_TIMER:
            self._arm(_ROOM, max(self._rto_jiffies, _LEAST_RTO_JIFFIES), now)

    def _try_for_room(self, now: int) -> None:
        """As of tcp_probe_timer and tcp_write_wakeup: one segment, which asks for an answer."""
        if self.packets_out or not self.queue:
            return
        skb = self.queue[0]
        if skb.seq >= self.snd_una + self.window_bytes:
            return
        skb.push = True
        if self._transmit(skb, now):
            self._rearm(now)
        else:
            self._arm(_ROOM, _NO_ROOM_JIFFIES, now)

    def _send_probe(self, now: int) -> None:
        """As of tcp_send_loss_probe."""
        if not self._probe_seq:
            self._probe_again = sent = False
            if self.queue and self.queue[0].end_seq <= self.snd_una + self.window_bytes:
                before = self.packets_out
                self.xmit(now, 2)
                sent = self.packets_out > before
            else:
                sent = self._probe_again = self._send_again(self.unacked[-1], now, True)
            if sent:
                self._probe_seq = self.snd_nxt
                self._timer = _NO_TIMER
        self._rearm(now)

    def _reorder_timeout(self, now: int) -> None:
        """As of tcp_rack_reo_timeout."""
        before, lost = self.in_flight(), self.lost
        self._mark_losses(now)
        if self.in_flight() != before:
            if self.state != RECOVERY:
                self._enter_recovery(False)
                if not self.paces:
                    self._reduce(1, self.lost - lost, False)
            self.retransmit_lost(now)
        if self._timer != _RTO:
            self._rearm(now)

    def _timeout(self, now: int) -> None:
        """As of tcp_retransmit_timer and tcp_enter_loss."""
        fresh = self.state < RECOVERY
        now_us = now // 1000
        for segment in self.unacked:
            recent = self._rack_rtt_us > now_us - segment.sent_ns // 1000
            if not segment.sacked and (segment is self.unacked[0] or not recent):
                self._lose(segment)
        if (
            self.state <= DISORDER
            or self._high_seq <= self.snd_una
            or (self.state == LOSS and not self._retransmits)
        ):
            self._prior_ssthresh = self._current_ssthresh()
            self._prior_cwnd = self.cwnd
            self.ssthresh = self.control.ssthresh()
            self.control.meets_loss()
        self.cwnd = self.in_flight() + 1
        self.cwnd_cnt = 0
        self.control.enters_loss(now)
        self.state = LOSS
        self._high_seq = self.snd_nxt
        self._probe_seq = 0
        self.sends_cwr = self.ecn
        self._frto = fresh or self._retransmits > 0
        self._retransmits += 1
        if not self._send_again(self.unacked[0], now):
            self._arm(_RTO, _NO_ROOM_JIFFIES, now)
            return
        self._rto_jiffies = min(2 * self._rto_jiffies, _MAX_RTO_JIFFIES)
        self._arm(_RTO, self._rto_jiffies, now)

    def head_sent_again(self, now: int) -> None:
        """As of the end of tcp_xmit_retransmit_queue."""
        if self._timer != _REORDER:
            self._arm(_RTO, self._rto_jiffies, now)

    def reorder_within(self, timeout_us: int, now: int) -> None:
        """As of tcp_rack_mark_lost."""
        jiffies = _jiffies_of(timeout_us + _TIMEOUT_MIN_US)
        self._arm(_REORDER, min(jiffies, self._rto_jiffies), now)


def _jiffies_of(microseconds: int) -> int:
    return -(-microseconds // 1000)


_JIFFIES_AT_START = 10_500 - 300_000
"""The kernel counts from -300 seconds on (INITIAL_JIFFIES), and ranks in the virtual kernel set out
10.5 seconds after that."""


def expiry_ns(now: int, jiffies: int) -> int:
    """When a timer of so many jiffies fires: later by up to a step of the wheel's level that holds
    it, of 1, 8 or 64 jiffies (kernel/time/timer.c: calc_index)."""
    expires = now // JIFFY_NS + jiffies + _JIFFIES_AT_START
    level = 0 if jiffies < 63 else 1 if jiffies < 504 else 2
    shift = 3 * level
    return ((expires + (1 << shift) >> shift << shift) - _JIFFIES_AT_START) * JIFFY_NS
