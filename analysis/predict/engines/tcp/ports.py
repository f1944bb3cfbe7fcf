"""Directed links with the queues of their ports, in integer nanoseconds.

As `emulator/kernel` has them: a frame takes `max(length, 60) + 24` bytes of the line, fractions of
a nanosecond are carried, a packet leaves the backlog when its transmission starts, and an arriving
packet is compared with the backlog that it finds. A FIFO's times are known when a packet comes, so
that a port needs no event of its own.
"""

from __future__ import annotations

import heapq
from collections import deque

from analysis.predict.engines.tcp.packet import LOST, Packet

SECOND_NS = 1_000_000_000
OVERHEAD_BYTES, _LEAST_BYTES = 24, 60


class Port:
    """A FIFO that drops what exceeds its buffer, and marks packets that find more than
    `mark_above` bytes waiting."""

    serves = False

    __slots__ = (
        "_costs",
        "_plain",
        "armed_as",
        "armed_ns",
        "backlog",
        "buffer_bytes",
        "delay_ns",
        "drops",
        "flying",
        "free_frac",
        "free_ns",
        "mark_above",
        "marks",
        "rate_bps",
        "ticks",
        "waiting",
    )

    def __init__(
        self, rate_bps: int, delay_ns: int, buffer_bytes: int, mark_above: int | None = None
    ) -> None:
        self.rate_bps = rate_bps
        self.delay_ns = delay_ns
        self.buffer_bytes = buffer_bytes
        self.mark_above = mark_above
        self.free_ns = 0
        self.free_frac = 0
        self.backlog = 0
        self.waiting: deque[tuple[int, int]] = deque()
        self._costs: dict[int, tuple[int, int]] = {}
        self._plain = type(self) is Port
        self.flying: deque[tuple[int, Packet]] = deque()
        self.ticks: deque[int] = deque()
        self.armed_ns, self.armed_as = 1 << 62, 0
        self.marks = 0
        self.drops = 0

    def send(self, packet: Packet, now: int) -> int:
        """Queue a packet: the nanosecond in which its last bit leaves, or `LOST`."""
        length = packet.length
        free, frac = self.free_ns, self.free_frac
        ready = free + 1 if frac else free
        if ready <= now:
            free, frac = now, 0
            if self.waiting:
                self.waiting.clear()
                self.backlog = 0
        else:
            waiting = self.waiting
            backlog = self.backlog
            while waiting and waiting[0][0] <= now:
                backlog -= waiting.popleft()[1]
            self.backlog = backlog
            if not self._plain:
                if not self.admits(packet, now):
                    self.drops += 1
                    return LOST
                if free > now or waiting:
                    self._joined(ready, length)
            else:  # as `admits` and `_joined`, in place: this is done for each packet and hop
                if backlog + length > self.buffer_bytes:
                    self.drops += 1
                    return LOST
                if self.mark_above is not None and backlog > self.mark_above:
                    self.mark(packet)
                if free > now or waiting:
                    waiting.append((ready, length))
                    self.backlog = backlog + length
        found = self._costs.get(length)
        if found is None:
            found = self._cost(length)
        free += found[0]
        frac += found[1]
        if frac >= self.rate_bps:
            frac -= self.rate_bps
            free += 1
        self.free_ns = free
        self.free_frac = frac
        return free + 1 if frac else free

    def rest(self, now: int) -> None:
        """As of gw_transmitter_idle: a line that is free by now starts anew."""
        if (self.free_ns + 1 if self.free_frac else self.free_ns) <= now:
            self.free_ns, self.free_frac = now, 0

    def serve(self, now: int) -> None:
        """What waits goes in its time, without being told."""

    def admits(self, packet: Packet, now: int) -> bool:
        """Whether there is room for a packet that has to wait; it is marked where it is to be."""
        if self.backlog + packet.length > self.buffer_bytes:
            return False
        if self.mark_above is not None and self.backlog > self.mark_above:
            self.mark(packet)
        return True

    def mark(self, packet: Packet) -> None:
        """Set congestion experienced on a packet that can have it."""
        if packet.ect and not packet.ce:
            packet.ce = True
            self.marks += 1

    def _joined(self, start_ns: int, length: int) -> None:
        self.waiting.append((start_ns, length))
        self.backlog += length

    def _cost(self, length: int) -> tuple[int, int]:
        """Nanoseconds on the line, and what is left over in parts of the rate."""
        wire = max(length, _LEAST_BYTES) + OVERHEAD_BYTES
        self._costs[length] = found = divmod(wire * 8 * SECOND_NS, self.rate_bps)
        return found


class SharedMemory:
    """What waits in a switch whose ports share one memory."""

    __slots__ = ("_waiting", "bytes")

    def __init__(self) -> None:
        self.bytes = 0
        self._waiting: list[tuple[int, int]] = []

    def joined(self, start_ns: int, length: int) -> None:
        """A packet waits until its transmission starts."""
        self.bytes += length
        heapq.heappush(self._waiting, (start_ns, length))

    def at(self, now: int) -> int:
        """Bytes that wait now."""
        while self._waiting and self._waiting[0][0] <= now:
            self.bytes -= heapq.heappop(self._waiting)[1]
        return self.bytes


class SharedPort(Port):
    """A queue may have `alpha` times what is free of the switch's memory (Choudhury and Hahne
    1998)."""

    __slots__ = ("_alpha_q16", "_memory")

    def __init__(
        self,
        rate_bps: int,
        delay_ns: int,
        buffer_bytes: int,
        mark_above: int | None,
        alpha: float,
        memory: SharedMemory,
    ) -> None:
        super().__init__(rate_bps, delay_ns, buffer_bytes, mark_above)
        self._alpha_q16 = round(alpha * 65536)
        self._memory = memory

    def admits(self, packet: Packet, now: int) -> bool:
        """As of `Port.admits`."""
        room = max(0, self.buffer_bytes - self._memory.at(now))
        length = packet.length
        if length > room or self.backlog + length > room * self._alpha_q16 >> 16:
            return False
        if self.mark_above is not None and self.backlog > self.mark_above:
            self.mark(packet)
        return True

    def _joined(self, start_ns: int, length: int) -> None:
        super()._joined(start_ns, length)
        self._memory.joined(start_ns, length)
        self.ticks.append(start_ns)
