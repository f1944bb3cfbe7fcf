"""What a TCP socket sends: its queue, its windows, and what waits in its host's port.

As tcp_write_xmit and what it calls do it (net/ipv4/tcp_output.c and tcp.c of Linux 6.12), with TCP
small queues and auto corking. TCP_NODELAY is set, as Gloo sets it, and each skb is a segment, as
ports of fabrics take no larger ones (`gso_max_segs` 1).
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from analysis.predict.engines.tcp.control.congestion import INFINITE_SSTHRESH, Reno
from analysis.predict.engines.tcp.control.delivery_rate import DeliveryRate, Sent
from analysis.predict.engines.tcp.network import PROCESSES, TASKLETS, Act
from analysis.predict.engines.tcp.packet import HELD, LOST, Packet, Receives, Sends

OPEN, DISORDER, CWR, RECOVERY, LOSS = range(5)
"""enum tcp_ca_state of include/uapi/linux/tcp.h."""

JIFFY_NS = 1_000_000

SKB_BYTES = 832
"""What an skb counts beyond its data in the virtual kernel: SKB_TRUESIZE of a small head without
tunnels (include/net/tcp.h: MAX_TCP_HEADER; net/core/skbuff.c: SKB_SMALL_HEAD_CACHE_SIZE)."""

_ACK_BYTES = 2
"""What an acknowledgement alone counts while it is in its port (skb_set_tcp_pure_ack)."""

_UNPACED = 10
"""Segments of a connection from which on it is paced (tcp_update_skb_after_send)."""

LIMIT_OUTPUT_BYTES = 1 << 20
"""net.ipv4.tcp_limit_output_bytes, Linux's default."""


class Events(Protocol):
    """The clock that packets and timers are events of."""

    def at(self, time_ns: int, act: Act, phase: int = PROCESSES) -> None:
        """Have something done then."""
        ...

    def within(self, from_ns: int, until_ns: int, act: Act) -> None:
        """Have something done at the end of a range, or earlier in it with others."""
        ...

    def without(self, act: Act) -> None:
        """Have something not done that was to be `within` a range."""
        ...

    def leaves(self, port: Sends, leaves_ns: int, packet: Packet) -> None:
        """A packet's last bit leaves its host then."""
        ...


class Skb:
    """Data in the queue that has not been sent."""

    __slots__ = ("end_seq", "push", "seq")

    def __init__(self, seq: int, end_seq: int, push: bool = False) -> None:
        self.seq = seq
        self.end_seq = end_seq
        self.push = push


class Segment:
    """A segment that is not acknowledged; `again` it is on its way once more."""

    __slots__ = (
        "again",
        "end_seq",
        "lost",
        "push",
        "retransmitted",
        "sacked",
        "sent",
        "sent_ns",
        "seq",
    )

    def __init__(self, seq: int, end_seq: int, sent_ns: int, push: bool) -> None:
        self.push = push
        self.seq = seq
        self.end_seq = end_seq
        self.sent_ns = sent_ns
        self.sacked = False
        self.lost = False
        self.again = False
        self.retransmitted = False
        self.sent: Sent | None = None


class Transmitter:
    """The sending half of a socket. Windows are in segments, sequence numbers start at 0."""

    def __init__(
        self,
        events: Events,
        mss: int,
        initial_window: int,
        control: type[Reno],
        ecn: bool,
        rtt_us: int,
    ) -> None:
        self.events = events
        self.mss = mss
        self.cwnd, self.cwnd_cnt = initial_window, 0
        self.ssthresh = INFINITE_SSTHRESH
        self.ecn = ecn
        self.window_bytes = 0
        self.route: tuple[Sends, ...] = ()
        self.peer: Receives
        self.queue: deque[Skb] = deque()
        self.unacked: deque[Segment] = deque()
        self.write_seq = self.snd_una = self.snd_nxt = 0
        self.packets_out = self.sacked_out = self.lost_out = self.retrans_out = 0
        self.max_packets_out, self.cwnd_usage_seq = 0, 0
        self.cwnd_limited = False
        self.delivered = self.delivered_ce = 0
        self.srtt_us = max(1, rtt_us << 3)
        self.min_rtt_us = rtt_us
        self.pacing_rate = 1
        self.last_sent_jiffies = 0
        self.sends_cwr = False
        self.state = OPEN
        self.prr_out = 0
        self.echo_ms = 0
        self.option_bytes = 0
        """What selective acknowledgements take of each header."""
        self._was_cut = False
        self.in_port: deque[tuple[int, int]] = deque()
        self._acks_in_port: deque[int] = deque()
        self.wmem = 1
        self.charged = 0
        """Bytes of the queue and of what is not acknowledged, with what skbs count beyond data."""
        self.throttled = self._waits_for_port = self._tries_again = False
        self.lost = 0
        self.rate = DeliveryRate()
        self.paced_until_ns = 0
        self._pace_timer_set = False
        self._data_segments = 0
        self.paces = control.paces
        if not self.paces:
            self.update_pacing_rate()
        self.control = control(self)

    # What the receiving half adds.

    def acknowledgement(self) -> int:
        """What is acknowledged with what is sent now, which counts as having said so."""
        raise NotImplementedError

    def echoes(self) -> bool:
        """Whether what is sent now says that marks have come."""
        raise NotImplementedError

    def window(self) -> int:
        """What is advertised with what is sent now."""
        raise NotImplementedError

    def tell_ranges(self, packet: Packet) -> None:
        """Have a packet tell what has come ahead of what is missing."""
        raise NotImplementedError

    def data_sent(self, now: int) -> None:
        """Data goes out."""
        raise NotImplementedError

    def arm_after_sending(self, was_idle: bool, probe: bool, now: int) -> None:
        """Set the timer of what was sent."""
        raise NotImplementedError

    def begin_cwr(self) -> None:
        """The window falls, unless it does already (tcp_enter_cwr)."""
        raise NotImplementedError

    def wait_for_room(self, now: int) -> None:
        """Nothing is under way, and the port had no room for what is to be sent: try later."""
        raise NotImplementedError

    def retransmit_lost(self, now: int) -> None:
        """Send again what is lost, as far as the window allows."""
        raise NotImplementedError

    def write(self, size: int, now: int) -> None:
        """The application hands over `size` bytes at once (tcp_sendmsg_locked)."""
        queue, mss = self.queue, self.mss
        left = size
        self._tries_again = False
        if self.paces:
            self._check_app_limited(now)
        while left:
            tail = queue[-1] if queue else None
            if tail is None or tail.end_seq - tail.seq >= mss:
                tail = Skb(self.write_seq, self.write_seq)
                queue.append(tail)
                self.charged += SKB_BYTES
            tail.push = False
            part = min(left, mss - (tail.end_seq - tail.seq))
            tail.end_seq += part
            self.write_seq += part
            self.charged += part
            left -= part
            if left and tail is queue[0]:
                self.xmit(now, 1)
        if not queue:
            return
        tail = queue[-1]
        tail.push = True
        length = tail.end_seq - tail.seq
        if length < mss and self.unacked and self._waits(now) > length + SKB_BYTES:
            self._throttle()
            if not self._tries_again:
                return
        self.xmit(now)

    def in_flight(self) -> int:
        """Segments under way."""
        return self.packets_out - self.sacked_out - self.lost_out + self.retrans_out

    def is_cwnd_limited(self) -> bool:
        """As of tcp_is_cwnd_limited."""
        if self.cwnd_limited:
            return True
        return self.cwnd < self.ssthresh and self.cwnd < 2 * self.max_packets_out

    def update_pacing_rate(self) -> None:
        """Bytes per second, which bound what waits in the port and HyStart's patience."""
        rate = self.mss * 80_000 * (200 if self.cwnd < self.ssthresh // 2 else 120)
        self.pacing_rate = rate * max(self.cwnd, self.packets_out) // self.srtt_us

    def xmit(self, now: int, push_one: int = 0) -> None:
        """Send what the windows and the port allow (tcp_write_xmit): all, with `push_one` 1 a
        segment at most, with 2 one at least."""
        queue = self.queue
        sent = 0
        was_idle = not self.packets_out
        while queue:
            if self.paces and self.is_paced(now):
                break
            if self.option_bytes or self._was_cut:
                self._cut(self.mss - self.option_bytes)
            skb = queue[0]
            flying = self.packets_out - self.sacked_out - self.lost_out + self.retrans_out
            if flying >= self.cwnd and push_one != 2:
                break
            if skb.end_seq > self.snd_una + self.window_bytes:
                break
            if self.holds_enough(skb.end_seq - skb.seq, now):
                break
            if not self._transmit(skb, now):
                break
            sent += 1
            if push_one:
                break
        limited = self.in_flight() >= self.cwnd
        if sent or limited:
            self._validate(limited)
        if sent:
            if self.state in (CWR, RECOVERY):
                self.prr_out += sent
            self.arm_after_sending(was_idle, push_one != 2, now)
        elif queue and not self.packets_out and push_one != 1:
            self.wait_for_room(now)

    def _cut(self, size: int) -> None:
        """Have the first skb be a segment beside what else its header has to carry: it is cut, or
        takes from the next one what it lacks (tcp_mss_split_point, tcp_grow_skb)."""
        queue, skb = self.queue, self.queue[0]
        lacks = size - (skb.end_seq - skb.seq)
        if lacks < 0:
            queue.appendleft(Skb(skb.seq, skb.seq + size))
            skb.seq += size
            self.charged += SKB_BYTES
            self._was_cut = True
        while lacks > 0 and len(queue) > 1:
            following = queue[1]
            taken = min(lacks, following.end_seq - following.seq)
            lacks -= taken
            skb.end_seq += taken
            following.seq += taken
            if following.seq == following.end_seq:
                skb.push = following.push
                del queue[1]
                self.charged -= SKB_BYTES
        if len(queue) == 1 and not self.option_bytes:
            self._was_cut = False

    def _waits(self, now: int) -> int:
        """Bytes of this socket in its host's port, as sk_wmem_alloc counts them."""
        in_port, acks = self.in_port, self._acks_in_port
        while in_port and in_port[0][0] <= now:
            self.wmem -= in_port.popleft()[1]
        while acks and acks[0] <= now:
            acks.popleft()
            self.wmem -= _ACK_BYTES
        return self.wmem

    def holds_enough(self, length: int, now: int, factor: int = 0) -> bool:
        """As of tcp_small_queue_check; the end of a transmission goes on then."""
        limit = max(2 * (length + SKB_BYTES), self.pacing_rate >> 10)
        limit = limit if self.paces else min(limit, LIMIT_OUTPUT_BYTES)
        if self._waits(now) <= limit << factor:
            return False
        if len(self.unacked) <= 1:
            return False
        self._throttle()
        return True

    def _throttle(self) -> None:
        if self.throttled:
            return
        self.throttled = True
        if self.in_port:
            self.events.at(self.in_port[0][0], self._has_left, TASKLETS)
        else:
            self._waits_for_port = True

    def _has_left(self, now: int) -> None:
        """A packet has left the port while the socket waited for that, if it still does: what the
        port has no room for ends the wait too, and sending is tried again at once (tcp_wfree)."""
        if not self.throttled:
            return
        self.throttled = False
        self._go_on(now)

    def _go_on(self, now: int) -> None:
        """As of tcp_tsq_write."""
        if self.lost_out > self.retrans_out and self.cwnd > self.in_flight():
            self.retransmit_lost(now)
        self.xmit(now)

    def _transmit(self, skb: Skb, now: int) -> bool:
        """Give the first skb to the port; it stays in the queue where there is no room."""
        ack, ece = self.acknowledgement(), self.echoes()
        if not self.in_flight():
            self.control.tx_start(now)
        self.last_sent_jiffies = now // JIFFY_NS
        self.data_sent(now)
        packet = Packet(self.route, self.peer, skb.seq, skb.end_seq, ack, self.window())
        packet.ect, packet.ece, packet.push = self.ecn, ece, skb.push
        packet.cwr, self.sends_cwr = self.sends_cwr, False
        if self.option_bytes:
            self.tell_ranges(packet)
        if not self._into_port(packet, now):
            return False
        self.queue.popleft()
        segment = Segment(skb.seq, skb.end_seq, now, skb.push)
        self.unacked.append(segment)
        if self.paces:
            self.pace(segment, now)
        self.packets_out += 1
        self.snd_nxt = skb.end_seq
        return True

    def _into_port(self, packet: Packet, now: int) -> bool:
        """A packet goes into the host's port, and counts for its socket until it has left. False
        where the port has no room: the window falls then, as of tcp_enter_cwr."""
        packet.hop = 1
        packet.sender = self
        packet.stamp_ms, packet.echo_ms = now // JIFFY_NS, self.echo_ms
        port = self.route[0]
        counts = packet.end_seq - packet.seq
        counts = counts + SKB_BYTES if counts else _ACK_BYTES
        self.wmem += counts
        leaves = port.send(packet, now)
        if leaves == LOST:
            self.wmem -= counts
            self.begin_cwr()
            if counts != _ACK_BYTES and self.throttled:
                self.throttled, self._tries_again = False, True
            return False
        if leaves != HELD:
            if counts == _ACK_BYTES:
                self._acks_in_port.append(leaves)
            else:
                self.in_port.append((leaves, counts))
            self.events.leaves(port, leaves, packet)
        return True

    def leaves_port(self, leaves_ns: int, size_bytes: int) -> None:
        """When a packet that its port held leaves."""
        if not size_bytes:
            self._acks_in_port.append(leaves_ns)
            return
        self.in_port.append((leaves_ns, size_bytes + SKB_BYTES))
        if self._waits_for_port:
            self._waits_for_port = False
            self.events.at(leaves_ns, self._has_left, TASKLETS)

    # Pacing (tcp_pacing_check, tcp_update_skb_after_send), where congestion control wants it.

    def _check_app_limited(self, now: int) -> None:
        """As of tcp_rate_check_app_limited."""
        if (
            self.write_seq - self.snd_nxt < self.mss
            and self._waits(now) - 1 <= SKB_BYTES
            and self.in_flight() < self.cwnd
            and self.lost_out <= self.retrans_out
        ):
            self.rate.app_limited = self.delivered + self.in_flight() or 1

    def is_paced(self, now: int) -> bool:
        """Whether the next segment's time has not come; sending goes on then."""
        if self.paced_until_ns <= now:
            return False
        if not self._pace_timer_set:
            self._pace_timer_set = True
            self.events.at(self.paced_until_ns, self._pace_is_over, TASKLETS)
        return True

    def _pace_is_over(self, now: int) -> None:
        self._pace_timer_set = False
        self._go_on(now)

    def pace(self, segment: Segment, now: int) -> None:
        """A segment was given to the port, and the next one has to wait. The first ones do not."""
        before, begins = self.paced_until_ns, max(self.paced_until_ns, now)
        segment.sent_ns = self.paced_until_ns = begins
        self._data_segments += 1
        if self._data_segments >= _UNPACED:
            takes = (segment.end_seq - segment.seq) * 1_000_000_000 // self.pacing_rate
            self.paced_until_ns = begins + takes - min(takes // 2, begins - before)
        self.rate.sent(segment, self.packets_out, self.delivered)

    def _validate(self, limited: bool) -> None:
        """As of tcp_cwnd_validate."""
        if (
            self.snd_una >= self.cwnd_usage_seq
            or limited
            or (not self.cwnd_limited and self.packets_out > self.max_packets_out)
        ):
            self.cwnd_limited = limited
            self.max_packets_out = self.packets_out
            self.cwnd_usage_seq = self.snd_nxt
