"""Ports whose discipline chooses when a transmission starts: CoDel, its flows, virtual output
queues.

As `emulator/kernel/gwport_codel.c`, `gwport_voq.c` and `gwport_queue.c` have them: what waits
stands in flows that deficit round robin serves (Shreedhar and Varghese 1996; new flows first,
RFC 8290 section 4.2), and CoDel drops or marks at the head (RFC 8289 section 5).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field

from analysis.predict.engines.tcp.network import TIMERS
from analysis.predict.engines.tcp.packet import HELD, LOST, Packet
from analysis.predict.engines.tcp.pausable import Clock
from analysis.predict.engines.tcp.ports import Port


@dataclass(frozen=True, slots=True)
class CodelSetting:
    """CoDel's parameters; `ce_threshold_ns` None marks nothing by time alone."""

    target_ns: int
    interval_ns: int
    ce_threshold_ns: int | None
    ecn: bool
    mtu_bytes: int
    """What may wait without being too much: a frame."""


@dataclass(slots=True)
class Flow:
    """Packets that are served in their order, and CoDel's state of them."""

    packets: deque[tuple[Packet, int]] = field(default_factory=deque)
    size_bytes: int = 0
    deficit: int = 0
    active: bool = False
    first_above_ns: int = 0
    drop_next_ns: int = 0
    count: int = 0
    last_count: int = 0
    dropping: bool = False


class ServedPort(Port):
    """A port that takes its next packet when the line is free. `flow_of` tells the flows apart."""

    serves = True

    __slots__ = ("_clock", "_flows", "_new", "_old", "_quantum", "_serves_at")

    def __init__(
        self,
        rate_bps: int,
        delay_ns: int,
        buffer_bytes: int,
        mark_above: int | None,
        quantum_bytes: int,
        clock: Clock,
    ) -> None:
        super().__init__(rate_bps, delay_ns, buffer_bytes, mark_above)
        self._clock = clock
        self._quantum = quantum_bytes
        self._flows: dict[Hashable, Flow] = {}
        self._new: deque[Flow] = deque()
        self._old: deque[Flow] = deque()
        self._serves_at = -1

    def flow_of(self, packet: Packet) -> Hashable:
        """What a packet waits with: all with all."""
        return 0

    def makes_room(self, flow: Flow, packet: Packet, now: int) -> bool:
        """Whether a packet may wait."""
        return self.backlog + packet.length <= self.buffer_bytes

    def take(self, flow: Flow, now: int) -> Packet | None:
        """A flow's next packet, None where it has none left."""
        found = self.pop(flow)
        return None if found is None else found[0]

    def starts(self) -> deque[Flow]:
        """Where a flow that begins waits for its turn."""
        return self._old

    def send(self, packet: Packet, now: int) -> int:
        """Queue a packet: `LOST`, or `HELD` as it is not known when it leaves."""
        key = self.flow_of(packet)
        flow = self._flows.get(key)
        if flow is None:
            flow = self._flows[key] = Flow()
        if not self.makes_room(flow, packet, now):
            self.drops += 1
            return LOST
        if self.mark_above is not None and flow.size_bytes > self.mark_above:
            self.mark(packet)
        if not self.backlog:
            self.rest(now)
        flow.packets.append((packet, now))
        flow.size_bytes += packet.length
        self.backlog += packet.length
        if not flow.active:
            flow.active, flow.deficit = True, self._quantum
            self.starts().append(flow)
        self.serve(now)
        return HELD

    def pop(self, flow: Flow) -> tuple[Packet, int] | None:
        """A flow's first packet, and when it came."""
        if not flow.packets:
            return None
        packet, came = flow.packets.popleft()
        flow.size_bytes -= packet.length
        self.backlog -= packet.length
        return packet, came

    def serve(self, now: int) -> None:
        """Send what is to be sent, or come back when the line is free."""
        while self.backlog:
            ready = self.free_ns + 1 if self.free_frac else self.free_ns
            if ready > now:
                if self._serves_at != ready:
                    self._serves_at = ready
                    self._clock.at(ready, self.serve, TIMERS)
                return
            if ready < now:
                self.free_ns, self.free_frac = now, 0
            packet = self._next(now)
            if packet is not None:
                self._transmit(packet)

    def _next(self, now: int) -> Packet | None:
        """As of gw_round_robin."""
        while self._new or self._old:
            is_new = bool(self._new)
            turns = self._new if is_new else self._old
            flow = turns[0]
            if flow.deficit <= 0:
                flow.deficit += self._quantum
                self._old.append(turns.popleft())
                continue
            packet = self.take(flow, now)
            if packet is not None:
                flow.deficit -= packet.length
                return packet
            turns.popleft()
            if is_new and self._old:
                self._old.append(flow)
            else:
                flow.active = False
        return None

    def _transmit(self, packet: Packet) -> None:
        spent, frac = self._costs.get(packet.length) or self._cost(packet.length)
        self.free_ns += spent
        self.free_frac += frac
        if self.free_frac >= self.rate_bps:
            self.free_frac -= self.rate_bps
            self.free_ns += 1
        leaves = self.free_ns + 1 if self.free_frac else self.free_ns
        if packet.sender is not None and packet.hop == 1:
            packet.sender.leaves_port(leaves, packet.end_seq - packet.seq)
        self._clock.leaves(self, leaves, packet)


class VoqPort(ServedPort):
    """A queue for each port that packets came in by, each with a buffer of its own."""

    __slots__ = ()

    def flow_of(self, packet: Packet) -> Hashable:
        """The link that a packet came by."""
        return id(packet.route[packet.hop - 2]) if packet.hop > 1 else 0

    def makes_room(self, flow: Flow, packet: Packet, now: int) -> bool:
        """As of gw_voq_admit."""
        return flow.size_bytes + packet.length <= self.buffer_bytes


class CodelPort(ServedPort):
    """CoDel over one queue."""

    __slots__ = ("_setting",)

    def __init__(
        self,
        rate_bps: int,
        delay_ns: int,
        buffer_bytes: int,
        quantum_bytes: int,
        setting: CodelSetting,
        clock: Clock,
    ) -> None:
        super().__init__(rate_bps, delay_ns, buffer_bytes, None, quantum_bytes, clock)
        self._setting = setting

    def take(self, flow: Flow, now: int) -> Packet | None:
        """As of gw_codel_dequeue."""
        found, too_long = self._codel_pop(flow, now)
        if not too_long:
            flow.dropping = False
        elif not flow.dropping:
            found = self._begin_dropping(flow, found, now)
        else:
            found = self._go_on_dropping(flow, found, now)
        if found is None:
            return None
        packet, came = found
        threshold = self._setting.ce_threshold_ns
        if threshold is not None and now - came > threshold:
            self.mark(packet)
        return packet

    def _codel_pop(self, flow: Flow, now: int) -> tuple[tuple[Packet, int] | None, bool]:
        found = self.pop(flow)
        setting = self._setting
        if (
            found is None
            or now - found[1] < setting.target_ns
            or flow.size_bytes <= setting.mtu_bytes
        ):
            flow.first_above_ns = 0
            return found, False
        if not flow.first_above_ns:
            flow.first_above_ns = now + setting.interval_ns
            return found, False
        return found, now >= flow.first_above_ns

    def _begin_dropping(
        self, flow: Flow, found: tuple[Packet, int] | None, now: int
    ) -> tuple[Packet, int] | None:
        delta = flow.count - flow.last_count
        soon = now < flow.drop_next_ns + 16 * self._setting.interval_ns
        flow.dropping = True
        flow.count = flow.last_count = delta if delta > 1 and soon else 1
        if not self._marks(found):
            self._drop(found, now)
            found, _ = self._codel_pop(flow, now)
        flow.drop_next_ns = self._after(now, flow.count)
        return found

    def _go_on_dropping(
        self, flow: Flow, found: tuple[Packet, int] | None, now: int
    ) -> tuple[Packet, int] | None:
        while flow.dropping and now >= flow.drop_next_ns:
            flow.count += 1
            following = self._after(flow.drop_next_ns, flow.count)
            if self._marks(found):
                flow.drop_next_ns = following
                break
            self._drop(found, now)
            found, too_long = self._codel_pop(flow, now)
            if too_long:
                flow.drop_next_ns = following
            else:
                flow.dropping = False
        return found

    def _drop(self, found: tuple[Packet, int] | None, now: int) -> None:
        self.drops += 1
        if found is not None and found[0].hop == 1 and found[0].sender is not None:
            found[0].sender.leaves_port(now, found[0].end_seq - found[0].seq)

    def _marks(self, found: tuple[Packet, int] | None) -> bool:
        """Whether a packet could be marked instead of dropped."""
        if not self._setting.ecn or found is None or not found[0].ect:
            return False
        self.mark(found[0])
        return True

    def _after(self, time_ns: int, count: int) -> int:
        """RFC 8289's control law: an interval over the root of the count."""
        interval_ns = self._setting.interval_ns
        return time_ns + math.isqrt(interval_ns * interval_ns // count)


class FqCodelPort(CodelPort):
    """CoDel of each flow. Every connection's direction is a flow: that two of them share a hash is
    not followed."""

    __slots__ = ()

    def flow_of(self, packet: Packet) -> Hashable:
        """The end that a packet goes to."""
        return id(packet.target)

    def starts(self) -> deque[Flow]:
        """New flows go before old ones."""
        return self._new

    def makes_room(self, flow: Flow, packet: Packet, now: int) -> bool:
        """As of gw_fq_codel_admit: the longest flow loses its first packet."""
        while self.backlog and self.backlog + packet.length > self.buffer_bytes:
            longest = max([*self._new, *self._old], key=lambda each: each.size_bytes)
            self.pop(longest)
            self.drops += 1
        return self.backlog + packet.length <= self.buffer_bytes
