"""What acknowledgements do to a TCP sender: windows, losses, retransmissions.

As tcp_ack and what it calls do it (net/ipv4/tcp_input.c and tcp_recovery.c of Linux 6.12):
proportional rate reduction (RFC 6937), RACK (RFC 8985), F-RTO (RFC 5682). A reduction is undone
where a timer was wrong, and not for what comes twice: paths do not reorder.
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

_NOTHING, _LOST, _NEW = range(3)
_REORDERING = 3


class RecoveringTransmitter(Transmitter):
    """A transmitter that takes acknowledgements in."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._retransmits = 0
        self._high_seq = 0
        self._prior_cwnd = self._prr_delivered = 0
        self._prior_ssthresh = 0
        self._first_sacked_ns = self._last_sacked_ns = 0
        self._original_acked = self._reorder_armed = False
        self._frto = False
        self._rack_ns = self._rack_seq = self._rack_rtt_us = 0
        self._rack_advanced = False
        self._probe_seq, self._probe_again = 0, False
        self.retransmitted = 0

    # What timers add.

    def measured(self, rtt_us: int) -> None:
        """A round trip."""
        raise NotImplementedError

    def acknowledged(self, now: int) -> None:
        """Something was: timers begin anew."""
        raise NotImplementedError

    def head_sent_again(self, now: int) -> None:
        """What is waited for first was."""
        raise NotImplementedError

    def reorder_within(self, timeout_us: int, now: int) -> None:
        """Something counts as lost unless it is acknowledged by then."""
        raise NotImplementedError

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
        self._first_sacked_ns = self._last_sacked_ns = 0
        sacked_now = self._take_sacks(packet, now) if packet.sack else False
        if not self.packets_out:
            self.control.in_ack_event()
            if self._probe_seq:
                self._end_probe(packet, advanced, sacked_now)
            return
        acked, rtt_us, ca_rtt_us = self._clean(packet.ece, now) if advanced else (0, -1, -1)
        sets_timer = acked > 0
        if sacked_now and self._first_sacked_ns:
            ca_rtt_us = now // 1000 - self._last_sacked_ns // 1000
            sack_rtt_us = now // 1000 - self._first_sacked_ns // 1000
            rtt_us = rtt_us if rtt_us >= 0 else sack_rtt_us
            head = self.unacked[0].sent_ns if self.unacked else now
            sets_timer |= sack_rtt_us > now // 1000 - head // 1000
        if rtt_us >= 0:
            self.min_rtt_us = min(self.min_rtt_us, max(ca_rtt_us, 1))
            self.measured(rtt_us)
        self.control.pkts_acked(ca_rtt_us, now)
        self.control.in_ack_event()
        if self._probe_seq:
            self._end_probe(packet, advanced, sacked_now)
        again = _NOTHING
        suspicious = not (packet.end_seq > packet.seq or acked or advanced)
        if suspicious or packet.ece or sacked_now or packet.dsack or self.state != OPEN:
            self._reorder_armed = False
            again = self._alert(packet, advanced, sacked_now, suspicious, now)
            sets_timer &= not self._reorder_armed
        if sets_timer:
            self.acknowledged(now)
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
        if again != _NOTHING:
            self._recover(again, now)

    def _recover(self, again: int, now: int) -> None:
        """As of tcp_xmit_recovery."""
        if again == _NEW:
            self.xmit(now)
            if self.snd_nxt > self._high_seq:
                return
            self._frto = False
        self.retransmit_lost(now)

    def _clean(self, ece: bool, now: int) -> tuple[int, int, int]:
        """Take what is acknowledged off the queue (tcp_clean_rtx_queue): segments, and the round
        trips of the first and the last one, -1 where none tells."""
        unacked, una = self.unacked, self.snd_una
        acked, first, last, resent = 0, -1, 0, False
        oldest_ns = unacked[0].sent_ns if unacked else 0
        self._original_acked = False
        while unacked and unacked[0].end_seq <= una:
            segment = unacked.popleft()
            acked += 1
            if segment.retransmitted:
                self.retrans_out -= segment.again
                resent = True
            elif not segment.sacked:
                last = segment.sent_ns
                first = first if first >= 0 else last
                if segment.end_seq <= self._high_seq:
                    self._original_acked = True
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
        if first >= 0 and not resent:
            return acked, now // 1000 - first // 1000, now // 1000 - last // 1000
        if not acked or self._first_sacked_ns:
            return acked, -1, -1
        # The timestamp that comes back tells, in milliseconds, and at least one (tcp_rtt_tsopt_us).
        rtt_us = 1000 * max(1, now // JIFFY_NS - oldest_ns // JIFFY_NS)
        return acked, rtt_us, rtt_us

    def _take_sacks(self, packet: Packet, now: int) -> bool:
        """As of tcp_sacktag_write_queue: whether something is new."""
        found = False
        for segment in self.unacked:
            if segment.sacked or segment.end_seq <= packet.ack:
                continue
            if not any(a <= segment.seq and segment.end_seq <= b for a, b in packet.sack):
                continue
            found = segment.sacked = True
            if not segment.retransmitted:
                self._first_sacked_ns = self._first_sacked_ns or segment.sent_ns
                self._last_sacked_ns = segment.sent_ns
            self.retrans_out -= segment.again
            segment.again = False
            self.lost_out -= segment.lost
            segment.lost = False
            self.sacked_out += 1
            self.delivered += 1
            if packet.ece:
                self.delivered_ce += 1
            self._rack(segment, now)
            if self.paces:
                self.rate.took(segment)
        return found

    def _alert(
        self, packet: Packet, advanced: bool, sacked: bool, suspicious: bool, now: int
    ) -> int:
        """As of tcp_fastretrans_alert; what is to be sent then."""
        if packet.ece:
            self._prior_ssthresh = 0
        beyond = self.state == CWR and self.snd_una > self._high_seq
        if beyond or (self.state == RECOVERY and self.snd_una >= self._high_seq):
            self._end_reduction()
            self.state = OPEN
        if self.state == RECOVERY:
            self._find_losses(now)
            return _LOST
        again = _NOTHING
        if self.state == LOSS:
            again = self._process_loss(advanced, sacked, suspicious)
            under_way = self.retrans_out
            self._find_losses(now)
            if self.state == LOSS and self.retrans_out >= under_way:
                return again
        self._find_losses(now)
        if not self.lost_out:
            self._try_to_open(packet.ece)
            return again
        self._enter_recovery(packet.ece)
        return _LOST

    def _try_to_open(self, ece: bool) -> None:
        if ece:
            self.begin_cwr()
        if self.state != CWR:
            self._keep_open()

    def _keep_open(self) -> None:
        """As of tcp_try_keep_open."""
        again = self.retrans_out or (self.unacked and self.unacked[0].retransmitted)
        state = DISORDER if self.sacked_out or self.lost_out or again else OPEN
        if self.state != state:
            self.state = state
            self._high_seq = self.snd_nxt

    def begin_cwr(self) -> None:
        """As of tcp_enter_cwr."""
        self._prior_ssthresh = 0
        if self.state < CWR:
            self._begin_reduction()
            self.state = CWR

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

    def _enter_recovery(self, ece: bool) -> None:
        self._prior_ssthresh = 0
        if self.state not in (CWR, RECOVERY):
            if not ece:
                self._prior_ssthresh = self._current_ssthresh()
            self._begin_reduction()
        self._high_seq = self.snd_nxt
        self.control.enters_recovery()
        self.state = RECOVERY

    def _current_ssthresh(self) -> int:
        """As of tcp_current_ssthresh."""
        if self.state in (CWR, RECOVERY):
            return self.ssthresh
        return max(self.ssthresh, (self.cwnd >> 1) + (self.cwnd >> 2))

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
            self._reorder_armed = True
            self.reorder_within(timeout_us, now)

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
        """As of tcp_mark_skb_lost."""
        if segment.lost:
            if not segment.again:
                return
            segment.again = False
            self.retrans_out -= 1
        else:
            segment.lost = True
            self.lost_out += 1
        self.lost += 1

    def retransmit_lost(self, now: int) -> None:
        """As of tcp_xmit_retransmit_queue."""
        if self.retrans_out >= self.lost_out:
            return
        head = self.unacked[0] if self.unacked else None
        rearm = False
        segments = list(self.unacked) if self.option_bytes else self.unacked
        for place, segment in enumerate(segments):
            if self.paces and self.is_paced(now):
                break
            if self.in_flight() >= self.cwnd or self.retrans_out >= self.lost_out:
                break
            if not segment.lost or segment.again or segment.sacked:
                continue
            if self.holds_enough(segment.end_seq - segment.seq, now, 1):
                break
            rest = self._split(segment) if self.option_bytes else None
            if rest is not None:
                segments.insert(place + 1, rest)
            if not self._send_again(segment, now):
                break
            if self.state in (CWR, RECOVERY):
                self.prr_out += 1
            rearm |= segment is head
        if rearm:
            self.head_sent_again(now)

    def _send_again(self, segment: Segment, now: int, is_probe: bool = False) -> bool:
        """As of tcp_retransmit_skb; whether the port had room. A probe does not count as what was
        sent again."""
        if self.option_bytes:
            self._split(segment)
        ack, ece = self.acknowledgement(), self.echoes()
        packet = Packet(self.route, self.peer, segment.seq, segment.end_seq, ack, self.window())
        packet.ece, packet.push = ece, segment.push
        packet.ect = self.ecn and self.control.needs_ecn
        if self.option_bytes:
            self.tell_ranges(packet)
        if not self.in_flight():
            self.control.tx_start(now)
        self.last_sent_jiffies = now // JIFFY_NS
        self.data_sent(now)
        segment.retransmitted = True
        self.retransmitted += 1
        if not self._into_port(packet, now):
            return False
        if not segment.again and not is_probe:
            segment.again = True
            self.retrans_out += 1
        segment.sent_ns = now
        if self.paces:
            self.pace(segment, now)
        return True

    def _split(self, segment: Segment) -> Segment | None:
        """As of tcp_fragment: what does not fit beside the options of the header, and waits."""
        size = self.mss - self.option_bytes
        if segment.end_seq - segment.seq <= size:
            return None
        rest = Segment(segment.seq + size, segment.end_seq, segment.sent_ns, segment.push)
        rest.lost, rest.retransmitted = segment.lost, segment.retransmitted
        segment.end_seq, segment.push = rest.seq, False
        self.unacked.insert(self.unacked.index(segment) + 1, rest)
        self.packets_out += 1
        self.lost_out += rest.lost
        self.charged += SKB_BYTES
        return rest

    def _process_loss(self, advanced: bool, sacked: bool, suspicious: bool) -> int:
        """As of tcp_process_loss; what is to be sent then."""
        recovered = self.snd_una >= self._high_seq
        if self._frto:
            if advanced and self._original_acked:
                self._undo()
                return _NOTHING
            if self.snd_nxt > self._high_seq:
                if sacked or suspicious:
                    self._frto = False
            elif advanced and not recovered:
                self._high_seq = self.snd_nxt
                if self.queue and self.snd_una + self.window_bytes > self.snd_nxt:
                    return _NEW
                self._frto = False
        if recovered:
            self.state = OPEN
            return _NOTHING
        return _LOST

    def _undo(self) -> None:
        """The timer was wrong, as what it took to be lost has come (tcp_try_undo_loss)."""
        for segment in self.unacked:
            segment.lost = False
        self.lost_out = 0
        if self._prior_ssthresh:
            self.cwnd = max(self.cwnd, self._prior_cwnd)
            if self._prior_ssthresh > self.ssthresh:
                self.ssthresh = self._prior_ssthresh
                self.sends_cwr = False
        self._rack_advanced = True
        self._retransmits = 0
        self.state = OPEN

    def _end_probe(self, packet: Packet, advanced: bool, sacked: bool) -> None:
        """As of tcp_process_tlp_ack."""
        if packet.ack < self._probe_seq:
            return
        if not self._probe_again or packet.dsack:
            self._probe_seq = 0
        elif packet.ack > self._probe_seq:
            self._begin_reduction()
            self.state = CWR
            self._end_reduction()
            self._keep_open()
        elif not advanced and not sacked:
            self._probe_seq = 0
