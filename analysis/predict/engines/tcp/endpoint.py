"""A TCP socket with both its halves: the sender, and a receiver that decides when it acknowledges.

As tcp_rcv_established, tcp_data_queue and __tcp_ack_snd_check do it (net/ipv4/tcp_input.c of Linux
6.12), with an application that reads at once: delayed acknowledgements and quick ones, replies that
carry them ("ping-pong"), DCTCP's echo of marks (RFC 8257 section 3.2), selective acknowledgements.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from analysis.predict.engines.tcp.delivery_rate import RateSample
from analysis.predict.engines.tcp.packet import (
    FIRST_SACK_BYTES,
    SACK_BYTES,
    Packet,
    Receives,
)
from analysis.predict.engines.tcp.recovery import RecoveringTransmitter, expiry_ns
from analysis.predict.engines.tcp.transmitter import JIFFY_NS, SKB_BYTES

_ATO_MIN, _QUICK_ACKS = 40, 16
"""TCP_ATO_MIN in jiffies, TCP_MAX_QUICKACKS."""
_MSS_DEFAULT, _MIN_MSS, _TCP_HEADER_BYTES = 536, 88, 32
_DUPLICATES, _COMPRESSED, _COMPRESSED_NS = 3, 44, 1_000_000
_COMPRESSED_SLACK_NS = 100_000
"""net.ipv4.tcp_comp_sack_slack_ns."""
_MOST_BLOCKS = 3
_PAGE_BYTES = 4096
_GROWS_FROM_BYTES, _WINDOW_UNIT = 128, 256
"""Segments from this size on widen the window (tcp_event_data_recv); its unit for 16 MB buffers."""

Delivered = Callable[[int, int], None]


class Endpoint(RecoveringTransmitter):
    """An end of a connection. `delivered` is told how many bytes of the other end's stream have
    come in order, and when."""

    def __init__(self, receive_buffer_bytes: int, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._buffer_bytes = receive_buffer_bytes
        self._window_clamp = receive_buffer_bytes // 2
        self._receive_window = self._window_clamp // self.mss * self.mss
        self.delivered_to: Delivered = _nobody
        self.rcv_nxt = self._rcv_wup = 0
        self._rcv_mss = _MSS_DEFAULT
        self._last_segment = 0
        self._scheduled = self._pushed = self._pushed_again = self._ack_now = False
        self._quick = 0
        self._ato = 0
        self._last_received = 0
        self._pingpong = 0
        self._ack_timer_ns = self._ack_timer_set_for = 0
        self._demands_cwr = self._ce = self._seen_ecn = False
        self._prior_rcv_nxt = 0
        self._ahead: list[tuple[int, int]] = []
        self._latest: tuple[int, int] | None = None
        self._duplicate: tuple[int, int] | None = None
        self._dup_acks = self._held_acks = 0
        self._held_for = -1

    def connect(self, other: Endpoint) -> None:
        """Both ends know each other."""
        peer: Receives = other
        self.peer, other.peer = peer, self
        self.window_bytes, other.window_bytes = other.window(), self.window()

    def greet(self, other: Endpoint, size: int, now: int) -> None:
        """What a connection carries when it is made: a few bytes from here to the other end, which
        acknowledges them at once."""
        self.write_seq = self.snd_una = self.snd_nxt = size
        self.delivered = self.max_packets_out = 1
        self.control.in_ack_event()
        if self.paces:
            self._data_segments = 1
            rtt_us = self.min_rtt_us
            self.control.main(RateSample(1, rtt_us, 0, 1, rtt_us, 1, 0, True), now)
        other.rcv_nxt = other._rcv_wup = other._prior_rcv_nxt = size
        other._ato, other._quick = _ATO_MIN, _QUICK_ACKS - 1
        other._last_received = now // JIFFY_NS

    def receive(self, packet: Packet, now: int) -> None:
        """A packet has arrived: take in what it acknowledges, then its data, then answer."""
        data = packet.end_seq > packet.seq
        if packet.cwr:
            self._demands_cwr = False
            self._ack_now |= data
        # As the kernel's fast path has it, data that tells nothing new has nothing sent. It needs
        # memory that the socket has already: what is left of its last page (sk_forward_alloc).
        tells = packet.ack != self.snd_una or packet.window != self.window_bytes
        tells |= packet.end_seq - packet.seq + SKB_BYTES > -self.charged % _PAGE_BYTES
        if tells or not data or packet.ece or packet.sack:
            self.window_bytes = packet.window
            self.on_ack(packet, now)
            tells = True
        if data:
            self._take(packet, now)
        if self.queue and (tells or packet.cwr):
            self.xmit(now)
        if not data:
            return
        if self._scheduled:
            self._answer(now)
        if self._scheduled and self._reader_acknowledges():
            self._acknowledge(now)
        self.delivered_to(self.rcv_nxt, now)

    # Data.

    def _take(self, packet: Packet, now: int) -> None:
        """As of tcp_data_queue."""
        seq, end = packet.seq, packet.end_seq
        if end <= self.rcv_nxt:
            self._duplicate = (seq, end)
            self._hurry(_QUICK_ACKS)
            self._scheduled = True
            return
        if seq > self.rcv_nxt:
            self._see_ecn(packet, now)
            self._scheduled = True
            self._keep(seq, end)
            return
        self.rcv_nxt = end
        self._received(packet, now)
        if self._ahead:
            while self._ahead and self._ahead[0][0] <= self.rcv_nxt:
                self.rcv_nxt = max(self.rcv_nxt, self._ahead.pop(0)[1])
            self._latest = None
            if not self._ahead:
                self._ack_now = True

    def _keep(self, seq: int, end: int) -> None:
        """What has come ahead of what is missing, as ranges in order."""
        merged: list[tuple[int, int]] = []
        for first, last in self._ahead:
            if last < seq or first > end:
                merged.append((first, last))
            else:
                seq, end = min(seq, first), max(end, last)
        merged.append((seq, end))
        merged.sort()
        self._ahead, self._latest = merged, (seq, end)

    def _received(self, packet: Packet, now: int) -> None:
        """As of tcp_event_data_recv."""
        self._scheduled = True
        self._measure(packet)
        jiffies = now // JIFFY_NS
        if not self._ato:
            self._quick = max(self._quick, _QUICK_ACKS)
            self._ato = _ATO_MIN
        else:
            gap = jiffies - self._last_received
            if gap <= _ATO_MIN // 2:
                self._ato = (self._ato >> 1) + _ATO_MIN // 2
            elif gap < self._ato:
                self._ato = min((self._ato >> 1) + gap, self._rto_jiffies)
            elif gap > self._rto_jiffies:
                self._quick = max(self._quick, _QUICK_ACKS)
        self._last_received = jiffies
        self._see_ecn(packet, now)
        if packet.end_seq - packet.seq >= _GROWS_FROM_BYTES:
            room = self._window_clamp - self._receive_window
            if room > 0:
                self._receive_window += min(room, 2 * self.mss)
                self._quick |= 1

    def window(self) -> int:
        """What is advertised, in the unit that the header has."""
        return -(-self._receive_window // _WINDOW_UNIT) * _WINDOW_UNIT

    def _measure(self, packet: Packet) -> None:
        """As of tcp_measure_rcv_mss: what the sender's full segments are taken to be."""
        length = packet.end_seq - packet.seq
        before, self._last_segment = self._last_segment, 0
        if length >= self._rcv_mss:
            if length > self._rcv_mss:
                ratio = (length << 8) // (length + SKB_BYTES)
                self._window_clamp = self._buffer_bytes * ratio >> 8
            self._rcv_mss = min(length, self.mss)
            self._pushed |= packet.push
            return
        whole = length + _TCP_HEADER_BYTES
        if whole >= _MSS_DEFAULT + 20 or (whole >= _MIN_MSS + 20 and not packet.push):
            self._last_segment = length
            if length == before:
                self._rcv_mss = length
                return
        self._pushed_again |= self._pushed
        self._pushed = True

    def _see_ecn(self, packet: Packet, now: int) -> None:
        """As of __tcp_ecn_check_ce, and dctcp_ece_ack_update where DCTCP runs."""
        if not self.ecn:
            return
        if not packet.ect:
            if self._seen_ecn:
                self._hurry(2)
            return
        self._seen_ecn = True
        if self.control.needs_ecn:
            if packet.ce != self._ce:
                if self._ack_timer_ns:
                    self._demands_cwr = self._ce
                    self._send_ack(self._prior_rcv_nxt, now)
                self._ack_now = True
            self._prior_rcv_nxt = self.rcv_nxt
            self._ce = self._demands_cwr = packet.ce
        elif packet.ce and not self._demands_cwr:
            self._hurry(2)
            self._demands_cwr = True

    def _hurry(self, quick: int) -> None:
        """As of tcp_enter_quickack_mode."""
        self._quick = max(self._quick, quick)
        self._pingpong = 0
        self._ato = _ATO_MIN

    # Acknowledgements.

    def _answer(self, now: int) -> None:
        """As of __tcp_ack_snd_check."""
        if (
            self.rcv_nxt - self._rcv_wup > self._rcv_mss
            or (self._quick and not self._pingpong)
            or self._ack_now
        ):
            self._acknowledge(now)
        elif self._ahead:
            self._answer_ahead(now)
        else:
            self._delay(now)

    def _answer_ahead(self, now: int) -> None:
        """Duplicate acknowledgements: the first ones at once, further ones together."""
        if self._held_for != self.rcv_nxt:
            self._held_for, self._dup_acks = self.rcv_nxt, 0
        if self._dup_acks < _DUPLICATES or self._held_acks >= _COMPRESSED:
            self._dup_acks += 1
            self._acknowledge(now)
            return
        self._held_acks += 1
        if self._held_acks == 1:
            wait_ns = min(_COMPRESSED_NS, self.srtt_us * (1000 >> 3) // 20)
            self.events.within(now + wait_ns, now + wait_ns + _COMPRESSED_SLACK_NS, self._release)

    def _release(self, now: int) -> None:
        if self._held_acks:
            self._acknowledge(now)

    def _reader_acknowledges(self) -> bool:
        """As of __tcp_cleanup_rbuf, for a reader that leaves nothing behind."""
        if self._ahead:
            return False
        if self.rcv_nxt - self._rcv_wup > self._rcv_mss or self._pushed_again:
            return True
        return self._pushed and not self._pingpong

    def _delay(self, now: int) -> None:
        """As of tcp_send_delayed_ack."""
        ato = min(self._ato, _ATO_MIN)
        expires = expiry_ns(now, ato)
        if self._ack_timer_ns:
            if self._ack_timer_ns // JIFFY_NS <= now // JIFFY_NS + (ato >> 2):
                self._acknowledge(now)
                return
            expires = min(expires, self._ack_timer_ns)
        self._ack_timer_ns = expires
        if not self._ack_timer_set_for:
            self._ack_timer_set_for = expires
            self.events.at(expires, self._ack_timeout)

    def _ack_timeout(self, now: int) -> None:
        self._ack_timer_set_for = 0
        if not self._ack_timer_ns:
            return
        if now < self._ack_timer_ns:
            self._ack_timer_set_for = self._ack_timer_ns
            self.events.at(self._ack_timer_ns, self._ack_timeout)
            return
        if self._pingpong:
            self._pingpong = 0
            self._ato = _ATO_MIN
        else:
            self._ato = min(self._ato << 1, self._rto_jiffies)
        if self._scheduled:
            self._acknowledge(now)
        self._ack_timer_ns = 0

    def _acknowledge(self, now: int) -> None:
        self._send_ack(self.acknowledgement(), now)

    def _send_ack(self, ack: int, now: int) -> None:
        seq = self.snd_nxt
        packet = Packet(self.route, self.peer, seq, seq, ack, self.window())
        packet.ece = self.echoes()
        packet.ect = self.ecn and self.control.needs_ecn
        blocks = self._blocks()
        if self._duplicate is not None:
            packet.dsack = True
            self._duplicate = None
        if blocks or packet.dsack:
            packet.sack = blocks
            packet.length += FIRST_SACK_BYTES - SACK_BYTES
            packet.length += SACK_BYTES * (len(blocks) + packet.dsack)
        self._into_port(packet, now)

    def _blocks(self) -> tuple[tuple[int, int], ...]:
        """The latest range first (RFC 2018)."""
        if not self._ahead:
            return ()
        rest = [block for block in reversed(self._ahead) if block != self._latest]
        latest = [self._latest] if self._latest is not None else []
        return tuple((latest + rest)[:_MOST_BLOCKS])

    def acknowledgement(self) -> int:
        """As of tcp_event_ack_sent: what is pending is done with."""
        if self._quick and self._scheduled:
            self._quick -= 1
            if not self._quick:
                self._ato = _ATO_MIN
        self._scheduled = self._pushed = self._pushed_again = self._ack_now = False
        self._ack_timer_ns = 0
        self._held_acks = 0
        self._rcv_wup = self.rcv_nxt
        return self.rcv_nxt

    def echoes(self) -> bool:
        """Whether marks are told to the sender."""
        return self._demands_cwr

    def data_sent(self, now: int) -> None:
        """As of tcp_event_data_sent: a reply soon after data makes a conversation."""
        if now // JIFFY_NS - self._last_received < self._ato:
            self._pingpong = min(self._pingpong + 1, 255)


def _nobody(received: int, now: int) -> None:
    """Data that nobody waits for."""
