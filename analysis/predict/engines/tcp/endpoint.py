"""A TCP socket with both its halves: the sender, and a receiver that decides when it acknowledges.

As tcp_rcv_established, tcp_data_queue and __tcp_ack_snd_check do it (net/ipv4/tcp_input.c of Linux
6.12), with an application that reads at once: delayed acknowledgements and quick ones, replies that
carry them ("ping-pong"), DCTCP's echo of marks (RFC 8257 section 3.2), selective acknowledgements.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from analysis.predict.engines.tcp.control.delivery_rate import RateSample
from analysis.predict.engines.tcp.network import TIMERS
from analysis.predict.engines.tcp.packet import (
    FIRST_SACK_BYTES,
    SACK_BYTES,
    Packet,
    Receives,
)
from analysis.predict.engines.tcp.timers import TimedTransmitter, expiry_ns
from analysis.predict.engines.tcp.transmitter import JIFFY_NS, SKB_BYTES

_ATO_MIN, _QUICK_ACKS = 40, 16
"""TCP_ATO_MIN in jiffies, TCP_MAX_QUICKACKS."""
_MSS_DEFAULT, _MIN_MSS, _TCP_HEADER_BYTES = 536, 88, 32
_TIMESTAMP_BYTES = 12
_DEFAULT_RATIO = 128
_DUPLICATES, _COMPRESSED, _COMPRESSED_NS = 3, 44, 1_000_000
_COMPRESSED_SLACK_NS = 100_000
"""net.ipv4.tcp_comp_sack_slack_ns."""
_MOST_BLOCKS, _KEPT_BLOCKS, _BLOCKS_EXPECTED = 3, 4, 2
_PAGE_BYTES = 4096
_GROWS_FROM_BYTES, _WINDOW_UNIT = 128, 256
"""Segments from this size on widen the window (tcp_event_data_recv); its unit for 16 MB buffers."""

Delivered = Callable[[int, int], None]


class Endpoint(TimedTransmitter):
    """An end of a connection. `delivered` is told how many bytes of the other end's stream have
    come in order, and when."""

    def __init__(self, receive_buffer_bytes: int, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._buffer_bytes = receive_buffer_bytes
        self._window_clamp = receive_buffer_bytes // 2 - self.mss
        self._ratio = _DEFAULT_RATIO
        """What of a packet's memory is data, in parts of 256 (tcp_win_from_space)."""
        self._held_bytes = 0
        unit = self.mss + _TIMESTAMP_BYTES
        self._edge = receive_buffer_bytes // 2 // unit * unit
        self._receive_window = min(self._edge, self._window_clamp)
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
        self._sacks: list[tuple[int, int]] = []
        self._duplicate: tuple[int, int] | None = None
        self._dup_acks = self._held_acks = 0
        self._held_for = -1
        self._waits_to_release = False
        self._receiver_rtt = 0
        self._last_echo_ms = -1

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
        self.control.pkts_acked(self.min_rtt_us, now)
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
        slow = packet.window != self.window_bytes or packet.ece or packet.cwr
        slow = slow or bool(self._ahead or packet.sack or packet.dsack)
        tells = slow or packet.ack != self.snd_una
        tells |= packet.end_seq - packet.seq + SKB_BYTES > -self.charged % _PAGE_BYTES
        if tells or not data:
            self.window_bytes = packet.window
            self.on_ack(packet, now)
            tells = True
        if packet.seq <= self._rcv_wup:
            self.echo_ms = packet.stamp_ms
        if data:
            self._measure_receiver(packet, now)
            self._held_bytes = packet.end_seq - packet.seq + SKB_BYTES
            if self._ahead:
                self._held_bytes += self._ahead_bytes()
            self._take(packet, now)
        if self.queue and tells:
            self.xmit(now)
        if not data:
            if slow and self._scheduled:
                self._answer(now)
            return
        if self._scheduled:
            self._answer(now)
        self._held_bytes = self._ahead_bytes() if self._ahead else 0
        if self._scheduled and self._reader_acknowledges():
            self._acknowledge(now)
        self.delivered_to(self.rcv_nxt, now)

    # Data.

    def _take(self, packet: Packet, now: int) -> None:
        """As of tcp_data_queue."""
        seq, end = packet.seq, packet.end_seq
        if end <= self.rcv_nxt:
            self._duplicate = (seq, end)
            self._count_options()
            self._hurry(_QUICK_ACKS)
            self._scheduled = True
            return
        if seq > self.rcv_nxt:
            self._see_ecn(packet, now)
            self._measure(packet)
            self._scheduled = True
            self._widen(self._ahead_bytes())
            self._keep(seq, end, now)
            return
        self.rcv_nxt = end
        self._received(packet, now)
        if self._ahead:
            while self._ahead and self._ahead[0][0] <= self.rcv_nxt:
                self.rcv_nxt = max(self.rcv_nxt, self._ahead.pop(0)[1])
            self._sacks = [each for each in self._sacks if each[0] > self.rcv_nxt]
            self._count_options()
            if not self._ahead:
                self._ack_now = True

    def _keep(self, seq: int, end: int, now: int) -> None:
        """What has come ahead of what is missing, as ranges in order."""
        self._tell_of(seq, end, now)
        self._count_options()
        merged: list[tuple[int, int]] = []
        for first, last in self._ahead:
            if last < seq or first > end:
                merged.append((first, last))
            else:
                seq, end = min(seq, first), max(end, last)
        merged.append((seq, end))
        merged.sort()
        self._ahead = merged

    def _tell_of(self, seq: int, end: int, now: int) -> None:
        """As of tcp_sack_new_ofo_skb: the range that has grown last comes first. What is held back
        is told before a third one begins to change."""
        sacks = self._sacks
        place = 0
        while place < len(sacks) and (sacks[place][1] < seq or end < sacks[place][0]):
            place += 1
        if place >= _BLOCKS_EXPECTED and self._held_acks:
            self._acknowledge(now)
        if place == len(sacks):
            del sacks[_KEPT_BLOCKS - 1 :]
            sacks.insert(0, (seq, end))
            return
        first, last = sacks.pop(place)
        first, last = min(first, seq), max(last, end)
        for each in sacks[:]:
            if each[0] <= last and first <= each[1]:
                first, last = min(first, each[0]), max(last, each[1])
                sacks.remove(each)
        sacks.insert(0, (first, last))

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
            self._widen(packet.end_seq - packet.seq + SKB_BYTES)

    def _ahead_bytes(self) -> int:
        """What packets that have come ahead take."""
        return sum((end - seq << 8) // self._ratio for seq, end in self._ahead)

    def _widen(self, held: int) -> None:
        """As of tcp_grow_window, for a socket that holds so many bytes of packets."""
        room = (self._buffer_bytes - held) * self._ratio >> 8
        room = min(room, self._window_clamp) - self._receive_window
        if room > 0:
            self._receive_window += min(room, 2 * self.mss)
            self._quick |= 1

    def window(self) -> int:
        """What is advertised, in the unit that the header has (__tcp_select_window): what there is
        room for beside what waits to be read, and never less than before."""
        room = (self._buffer_bytes - self._held_bytes) * self._ratio >> 8
        window = max(min(room, self._receive_window), self._edge - self.rcv_nxt)
        window = -(-window // _WINDOW_UNIT) * _WINDOW_UNIT
        self._edge = self.rcv_nxt + window
        return window

    def _measure(self, packet: Packet) -> None:
        """As of tcp_measure_rcv_mss: what the sender's full segments are taken to be."""
        length = packet.end_seq - packet.seq
        before, self._last_segment = self._last_segment, 0
        if length >= self._rcv_mss:
            if length > self._rcv_mss:
                ratio = (length << 8) // (length + SKB_BYTES)
                self._ratio = ratio
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
        if self._held_acks >= _COMPRESSED or self._dup_acks < _DUPLICATES:
            self._dup_acks += self._held_acks < _COMPRESSED
            self._acknowledge(now)
            return
        self._held_acks += 1
        if not self._waits_to_release:
            wait_ns = min(_COMPRESSED_NS, self._held_rtt() * (1000 >> 3) // 20)
            until_ns = now + wait_ns + _COMPRESSED_SLACK_NS
            self._waits_to_release = True
            self.events.within(now + wait_ns, until_ns, self._release_acks)

    def _held_rtt(self) -> int:
        """What both ends know of the round trip, the least, eightfold; the receiver measures in
        milliseconds, and nothing until one has passed in a round trip."""
        return min(self._receiver_rtt, self.srtt_us)

    def _release_acks(self, now: int) -> None:
        self._waits_to_release = False
        if self._held_acks:
            self._acknowledge(now)

    def _measure_receiver(self, packet: Packet, now: int) -> None:
        """As of tcp_rcv_rtt_measure_ts."""
        if packet.echo_ms == self._last_echo_ms:
            return
        self._last_echo_ms = packet.echo_ms
        passed = now // JIFFY_NS - packet.echo_ms
        if passed > 0 and packet.end_seq - packet.seq >= self._rcv_mss:
            sample = passed * 8000
            if self._receiver_rtt:
                sample = self._receiver_rtt + passed * 1000 - (self._receiver_rtt >> 3)
            self._receiver_rtt = sample

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
            self.events.at(expires, self._ack_timeout, TIMERS)

    def _ack_timeout(self, now: int) -> None:
        self._ack_timer_set_for = 0
        if not self._ack_timer_ns:
            return
        if now < self._ack_timer_ns:
            self._ack_timer_set_for = self._ack_timer_ns
            self.events.at(self._ack_timer_ns, self._ack_timeout, TIMERS)
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
        if self.option_bytes:
            self.tell_ranges(packet)
        self._into_port(packet, now)

    def tell_ranges(self, packet: Packet) -> None:
        """Have a packet tell what has come ahead of what is missing, or what has come twice."""
        packet.dsack = self._duplicate is not None
        self._duplicate = None
        packet.sack = tuple(self._sacks[: _MOST_BLOCKS - packet.dsack])
        packet.length += self.option_bytes
        self._count_options()

    def _count_options(self) -> None:
        blocks = min(len(self._sacks) + (self._duplicate is not None), _MOST_BLOCKS)
        self.option_bytes = FIRST_SACK_BYTES + SACK_BYTES * (blocks - 1) if blocks else 0

    def acknowledgement(self) -> int:
        """As of tcp_event_ack_sent: what is pending is done with."""
        if self._quick and self._scheduled:
            self._quick -= 1
            if not self._quick:
                self._ato = _ATO_MIN
        self._scheduled = self._pushed = self._pushed_again = self._ack_now = False
        self._ack_timer_ns = 0
        if self._held_acks:
            self._held_acks = 0
            if self._waits_to_release:
                self.events.without(self._release_acks)
                self._waits_to_release = False
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
