"""What acknowledgements and timers do to a TCP sender: windows, losses, retransmissions.

As tcp_ack and what it calls do it (net/ipv4/tcp_input.c, tcp_recovery.c and tcp_timer.c of Linux
6.12): proportional rate reduction (RFC 6937), RACK and tail loss probes (RFC 8985), the timer
(RFC 6298), F-RTO's first step. Undoing a reduction is not followed: paths do not reorder.
"""

from __future__ import annotations

from typing import Any

from analysis.predict.engines.tcp.packet import Packet
from analysis.predict.engines.tcp.transmitter import (
    CWR,
    DISORDER,
    JIFFY_NS,
    LOSS,
    OPEN,
    RECOVERY,
    SKB_BYTES,
    Segment,
    Transmitter,
)

_NO_TIMER, _RTO, _PROBE, _REORDER = range(4)
_REORDERING = 3
_TIMEOUT_MIN_US = 2000
_MAX_RTO_JIFFIES = 120_000


class RecoveringTransmitter(Transmitter):
    """A transmitter that takes acknowledgements in."""

    def __init__(self, min_rto_us: int, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._min_rto_us = min_rto_us
        self._mdev_us = self.srtt_us >> 2
        self._rttvar_us = max(self._mdev_us, min_rto_us)
        self._mdev_max_us = self._rttvar_us
        self._rtt_seq = 0
        self._rto_jiffies = 0
        self._set_rto()
        self._retransmits = 0
        self._high_seq = 0
        self._prior_cwnd = self._prr_delivered = 0
        self._marked_cwnd = False
        self._frto = False
        self._rack_ns = self._rack_seq = self._rack_rtt_us = 0
        self._rack_advanced = False
        self._highest_sacked = 0
        self._probe_seq, self._probe_again = 0, False
        self._timer = _NO_TIMER
        self._timer_ns = self._timer_set_for = 0
        self.retransmitted = 0

    # Acknowledgements.

    def on_ack(self, packet: Packet, now: int) -> None:
        """As of tcp_ack."""
        ack = packet.ack
        prior_una = self.snd_una
        if ack < prior_una:
            return
        advanced = ack > prior_una
        if advanced:
            self._retransmits = 0
            self.snd_una = ack
        prior_delivered, prior_lost = self.delivered, self.lost
        prior_in_flight = self.in_flight() if self.paces else 0
        sacked_now = self._take_sacks(packet, now) if packet.sack else False
        if not self.packets_out:
            self.control.in_ack_event()
            return
        acked, rtt_us, ca_rtt_us = self._clean(packet.ece, now) if advanced else (0, -1, -1)
        if rtt_us >= 0:
            self.min_rtt_us = min(self.min_rtt_us, max(ca_rtt_us, 1))
            self._estimate(rtt_us)
            self._set_rto()
        if acked:
            self.control.pkts_acked(ca_rtt_us, now)
        self.control.in_ack_event()
        if self._probe_seq:
            self._end_probe(packet, advanced, sacked_now)
        carries_data = packet.end_seq > packet.seq
        again = False
        suspicious = not (carries_data or acked or advanced)
        if suspicious or packet.ece or sacked_now or packet.dsack or self.state != OPEN:
            again = self._alert(packet.ece, advanced, sacked_now, suspicious, now)
        if acked:
            self._set_timer(now)
        delivered = self.delivered - prior_delivered
        lost = self.lost - prior_lost
        if self.paces:
            sample = self.rate.sample(
                self.delivered, delivered, lost, prior_in_flight, ca_rtt_us, self.min_rtt_us, now
            )
            self.control.main(sample, now)
        else:
            if self.state in (CWR, RECOVERY):
                self._reduce(delivered, lost, advanced)
            elif acked:
                self.control.cong_avoid(delivered, now)
            self.update_pacing_rate()
        if again:
            self.retransmit_lost(now)

    def _clean(self, ece: bool, now: int) -> tuple[int, int, int]:
        """Take what is acknowledged off the queue (tcp_clean_rtx_queue): segments, and the round
        trips of the first and the last one, -1 where none tells."""
        unacked, una = self.unacked, self.snd_una
        acked, first, last, resent = 0, 0, 0, False
        while unacked and unacked[0].end_seq <= una:
            segment = unacked.popleft()
            acked += 1
            if segment.retransmitted:
                self.retrans_out -= segment.again
                resent = True
            elif not segment.sacked:
                last = segment.sent_ns
                first = first or last
            if segment.sacked:
                self.sacked_out -= 1
            else:
                self.delivered += 1
                if ece:
                    self.delivered_ce += 1
                self._rack(segment, now)
            if self.paces:
                self.rate.took(segment)
            self.lost_out -= segment.lost
            self.packets_out -= 1
            self.charged -= segment.end_seq - segment.seq + SKB_BYTES
        if not first or resent:
            return acked, -1, -1
        return acked, now // 1000 - first // 1000, now // 1000 - last // 1000

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

    def _take_sacks(self, packet: Packet, now: int) -> bool:
        """As of tcp_sacktag_write_queue: whether something is new."""
        found = False
        for segment in self.unacked:
            if segment.sacked or segment.end_seq <= packet.ack:
                continue
            if not any(a <= segment.seq and segment.end_seq <= b for a, b in packet.sack):
                continue
            found = segment.sacked = True
            self.retrans_out -= segment.again
            segment.again = False
            self.lost_out -= segment.lost
            segment.lost = False
            self.sacked_out += 1
            self.delivered += 1
            if packet.ece:
                self.delivered_ce += 1
            self._highest_sacked = max(self._highest_sacked, segment.end_seq)
            self._rack(segment, now)
            if self.paces:
                self.rate.took(segment)
        return found

    def _alert(self, ece: bool, advanced: bool, sacked: bool, suspicious: bool, now: int) -> bool:
        """As of tcp_fastretrans_alert; whether what is lost is to be sent again."""
        beyond = self.state == CWR and self.snd_una > self._high_seq
        if beyond or (self.state == RECOVERY and self.snd_una >= self._high_seq):
            self._end_reduction()
            self.state = OPEN
        if self.state == LOSS:
            if self._process_loss(advanced, sacked, suspicious, now):
                return False
            self._find_losses(now)
            return self.state == LOSS or self.lost_out > 0
        self._find_losses(now)
        if self.state != RECOVERY:
            if not self.lost_out:
                self._try_to_open(ece)
                return False
            self._enter_recovery()
        return True

    def _try_to_open(self, ece: bool) -> None:
        if ece and self.state < CWR:
            self._begin_reduction()
            self.state = CWR
        if self.state != CWR:
            self.state = DISORDER if self.sacked_out or self.retrans_out else OPEN
            self._high_seq = self.snd_nxt

    def _begin_reduction(self) -> None:
        """As of tcp_init_cwnd_reduction."""
        self._high_seq = self.snd_nxt
        self._probe_seq = 0
        self.cwnd_cnt = 0
        self._prior_cwnd = self.cwnd
        self._prr_delivered = self.prr_out = 0
        self.ssthresh = self.control.ssthresh()
        self.sends_cwr = self.ecn

    def _reduce(self, delivered: int, lost: int, advanced: bool) -> None:
        """As of tcp_cwnd_reduction."""
        if delivered <= 0:
            return
        self._prr_delivered += delivered
        flying = self.in_flight()
        delta = self.ssthresh - flying
        if delta < 0:
            more = self.ssthresh * self._prr_delivered + self._prior_cwnd - 1
            count = more // self._prior_cwnd - self.prr_out
        else:
            count = max(self._prr_delivered - self.prr_out, delivered)
            if advanced and not lost:
                count += 1
            count = min(delta, count)
        self.cwnd = flying + max(count, 0 if self.prr_out else 1)

    def _end_reduction(self) -> None:
        if not self.paces:
            self.cwnd = self.ssthresh

    def _enter_recovery(self) -> None:
        if self.state != CWR:
            self._begin_reduction()
        self._high_seq = self.snd_nxt
        self.control.enters_recovery()
        self.state = RECOVERY

    # Losses.

    def _rack(self, segment: Segment, now: int) -> None:
        """As of tcp_rack_advance."""
        rtt_us = now // 1000 - segment.sent_ns // 1000
        if segment.retransmitted and rtt_us < self.min_rtt_us:
            return
        self._rack_advanced = True
        self._rack_rtt_us = rtt_us
        sent = segment.sent_ns // 1000
        if (sent, segment.end_seq) > (self._rack_ns, self._rack_seq):
            self._rack_ns, self._rack_seq = sent, segment.end_seq

    def _find_losses(self, now: int) -> None:
        """As of tcp_rack_mark_lost."""
        if not self._rack_advanced:
            return
        self._rack_advanced = False
        timeout_us = self._mark_losses(now)
        if timeout_us:
            self._arm(_REORDER, _jiffies_of(timeout_us + _TIMEOUT_MIN_US), now)

    def _mark_losses(self, now: int) -> int:
        """As of tcp_rack_detect_loss: microseconds until a segment counts as lost, 0 for none."""
        if self.state >= RECOVERY or self.sacked_out >= _REORDERING:
            window = 0
        else:
            window = min(self.min_rtt_us >> 2, self.srtt_us >> 3)
        timeout = 0
        now_us = now // 1000
        for segment in self.unacked:
            if segment.sacked or (segment.lost and not segment.again):
                continue
            sent_us = segment.sent_ns // 1000
            if (sent_us, segment.end_seq) >= (self._rack_ns, self._rack_seq):
                if segment.retransmitted:
                    continue
                break
            left = self._rack_rtt_us + window - (now_us - sent_us)
            if left <= 0:
                self._lose(segment)
            else:
                timeout = max(timeout, left)
        return timeout

    def _lose(self, segment: Segment) -> None:
        if segment.again:
            segment.again = False
            self.retrans_out -= 1
        if not segment.lost:
            segment.lost = True
            self.lost_out += 1
        self.lost += 1

    def retransmit_lost(self, now: int) -> None:
        """As of tcp_xmit_retransmit_queue."""
        if self.retrans_out >= self.lost_out:
            return
        head = self.unacked[0] if self.unacked else None
        for segment in self.unacked:
            if self.paces and self.is_paced(now):
                break
            if self.in_flight() >= self.cwnd or self.retrans_out >= self.lost_out:
                break
            if not segment.lost or segment.again or segment.sacked:
                continue
            self._send_again(segment, now)
            if self.state in (CWR, RECOVERY):
                self.prr_out += 1
            if segment is head and self._timer != _REORDER:
                self._arm(_RTO, self._rto_jiffies, now)

    def _send_again(self, segment: Segment, now: int) -> None:
        ack, ece = self.acknowledgement(), self.echoes()
        packet = Packet(self.route, self.peer, segment.seq, segment.end_seq, ack, self.window())
        packet.ece, packet.push = ece, segment.push
        packet.ect = self.ecn and self.control.needs_ecn
        segment.retransmitted = True
        if not segment.again:
            segment.again = True
            self.retrans_out += 1
        segment.sent_ns = now
        if self.paces:
            self.pace(segment, now)
        self.retransmitted += 1
        self.data_sent(now)
        self._into_port(packet, now)

    def _process_loss(self, advanced: bool, sacked: bool, suspicious: bool, now: int) -> bool:
        """As of tcp_process_loss; whether new data is tried first (F-RTO)."""
        if self.snd_una >= self._high_seq:
            self.state = OPEN
            return True
        if self._frto:
            if self.snd_nxt > self._high_seq:
                if sacked or suspicious:
                    self._frto = False
            elif advanced:
                self._high_seq = self.snd_nxt
                if self.queue:
                    self.xmit(now)
                    if self.snd_nxt > self._high_seq:
                        return True
                self._frto = False
        return False

    # Timers.

    def arm_after_sending(self, was_idle: bool, probe: bool, now: int) -> None:
        """As of tcp_event_new_data_sent and the end of tcp_write_xmit."""
        if was_idle or self._timer == _PROBE:
            self._rearm(now)
        if probe:
            self._schedule_probe(now, advancing=False)

    def _set_timer(self, now: int) -> None:
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
            self.events.at(self._timer_ns, self._on_timer)

    def _on_timer(self, now: int) -> None:
        if now != self._timer_set_for:
            return
        self._timer_set_for = 0
        if self._timer == _NO_TIMER or not self.packets_out:
            return
        if now < self._timer_ns:
            self._timer_set_for = self._timer_ns
            self.events.at(self._timer_ns, self._on_timer)
            return
        timer, self._timer = self._timer, _NO_TIMER
        if timer == _PROBE:
            self._send_probe(now)
        elif timer == _REORDER:
            self._reorder_timeout(now)
        else:
            self._timeout(now)

    def _send_probe(self, now: int) -> None:
        """As of tcp_send_loss_probe."""
        if not self._probe_seq:
            self._probe_again = False
            before = self.packets_out
            if self.queue:
                self.xmit(now, 2)
            if self.packets_out == before and not self.queue:
                self._send_again(self.unacked[-1], now)
                self._probe_again = True
                before -= 1
            if self.packets_out > before:
                self._probe_seq = self.snd_nxt
                self._timer = _NO_TIMER
        self._rearm(now)

    def _end_probe(self, packet: Packet, advanced: bool, sacked: bool) -> None:
        """As of tcp_process_tlp_ack."""
        if packet.ack < self._probe_seq:
            return
        if not self._probe_again or packet.dsack:
            self._probe_seq = 0
        elif packet.ack > self._probe_seq:
            self._begin_reduction()
            self._end_reduction()
            self.state = DISORDER if self.sacked_out else OPEN
        elif not advanced and not sacked:
            self._probe_seq = 0

    def _reorder_timeout(self, now: int) -> None:
        """As of tcp_rack_reo_timeout."""
        before, lost = self.in_flight(), self.lost
        self._mark_losses(now)
        if self.in_flight() != before:
            if self.state != RECOVERY:
                self._enter_recovery()
                if not self.paces:
                    self._reduce(1, self.lost - lost, False)
            self.retransmit_lost(now)
        if self._timer != _RTO:
            self._rearm(now)

    def _timeout(self, now: int) -> None:
        """As of tcp_retransmit_timer and tcp_enter_loss."""
        fresh = self.state < RECOVERY
        for segment in self.unacked:
            if not segment.sacked:
                self._lose(segment)
        if (
            self.state <= DISORDER
            or self._high_seq <= self.snd_una
            or (self.state == LOSS and not self._retransmits)
        ):
            self._prior_cwnd = self.cwnd
            self.ssthresh = self.control.ssthresh()
        self.control.enters_loss(now)
        self.cwnd = self.in_flight() + 1
        self.cwnd_cnt = 0
        self.state = LOSS
        self._high_seq = self.snd_nxt
        self._probe_seq = 0
        self.sends_cwr = self.ecn
        self._frto = fresh or self._retransmits > 0
        self._send_again(self.unacked[0], now)
        self._retransmits += 1
        self._rto_jiffies = min(2 * self._rto_jiffies, _MAX_RTO_JIFFIES)
        self._arm(_RTO, self._rto_jiffies, now)


def _jiffies_of(microseconds: int) -> int:
    return -(-microseconds // 1000)


def expiry_ns(now: int, jiffies: int) -> int:
    """When a timer of so many jiffies fires: later by up to a step of the wheel's level that holds
    it, of 1, 8 or 64 jiffies (kernel/time/timer.c: calc_index)."""
    expires = now // JIFFY_NS + jiffies
    level = 0 if jiffies < 63 else 1 if jiffies < 504 else 2
    shift = 3 * level
    return (expires + (1 << shift) >> shift << shift) * JIFFY_NS
