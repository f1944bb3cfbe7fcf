"""Ports that can be paused: priority flow control over a switch's memory (IEEE 802.1Qbb).

As `emulator/kernel/gwport_lossless.c` has it: bytes that came in by a port and wait anywhere in the
switch are counted; above XOFF the port sends its neighbour a pause frame, below XON one that takes
it back. A pause frame waits for the frame in transmission alone, and takes its way like any other.
When a packet leaves is not known before it does.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Protocol

from analysis.predict.engines.tcp.network import PROCESSES, Act
from analysis.predict.engines.tcp.packet import HELD, LOST, Packet
from analysis.predict.engines.tcp.ports import Port

_PAUSE_BYTES = 60
"""A pause frame as Linux counts it (ETH_ZLEN)."""


class Clock(Protocol):
    """The events that a port makes."""

    def at(self, time_ns: int, act: Act, phase: int = PROCESSES) -> None:
        """Have something done then."""
        ...

    def leaves(self, port: Port, leaves_ns: int, packet: Packet) -> None:
        """A packet's last bit leaves the port then."""
        ...

    def arm(self, port: Port) -> None:
        """Set a port's timer."""
        ...


@dataclass(slots=True)
class SwitchMemory:
    """What waits in a switch."""

    waiting_bytes: int = 0


@dataclass(frozen=True, slots=True)
class PauseLimits:
    """When a port pauses its neighbour; None of a host, whose port never does."""

    xoff_bytes: int
    xon_bytes: int
    headroom_bytes: int


class PausablePort(Port):
    """A FIFO that stops while it is paused."""

    serves = True

    __slots__ = (
        "_clock",
        "_ingress_bytes",
        "_limits",
        "_memory",
        "_pauses",
        "_queue",
        "_serves_at",
        "_xoff_sent",
        "paused",
        "reverse",
    )

    def __init__(
        self,
        rate_bps: int,
        delay_ns: int,
        buffer_bytes: int,
        mark_above: int | None,
        limits: PauseLimits | None,
        memory: SwitchMemory,
        clock: Clock,
    ) -> None:
        super().__init__(rate_bps, delay_ns, buffer_bytes, mark_above)
        self._limits = limits
        self._memory = memory
        self._clock = clock
        self._queue: deque[tuple[Packet, PausablePort | None]] = deque()
        self._pauses: deque[Packet] = deque()
        self._ingress_bytes = 0
        self._xoff_sent = False
        self._serves_at = -1
        self.paused = False
        self.reverse: PausablePort | None = None
        """The port at the other end of the link."""

    def send(self, packet: Packet, now: int) -> int:
        """Queue a packet: `LOST`, or `HELD` as it is not known when it leaves."""
        came = packet.route[packet.hop - 2] if packet.hop > 1 else None
        ingress = came.reverse if isinstance(came, PausablePort) else None
        length = packet.length
        counts = ingress is not None and ingress._limits is not None
        if counts and ingress is not None and ingress._limits is not None:
            limits = ingress._limits
            if ingress._ingress_bytes + length > limits.xoff_bytes + limits.headroom_bytes:
                self.drops += 1
                return LOST
        if self._memory.waiting_bytes + length > self.buffer_bytes:
            self.drops += 1
            return LOST
        if self.mark_above is not None and self.backlog > self.mark_above:
            self.mark(packet)
        if not self._queue and not self._pauses:
            self.rest(now)
        self._queue.append((packet, ingress))
        self.backlog += length
        self._memory.waiting_bytes += length
        if counts and ingress is not None:
            ingress._charge(length, now)
        self.serve(now)
        return HELD

    def _charge(self, length: int, now: int) -> None:
        assert self._limits is not None
        self._ingress_bytes += length
        if not self._xoff_sent and self._ingress_bytes > self._limits.xoff_bytes:
            self._xoff_sent = True
            self._tell_neighbour(True, now)

    def _uncharge(self, length: int, now: int) -> None:
        if self._limits is None:
            return
        self._ingress_bytes -= length
        if self._xoff_sent and self._ingress_bytes < self._limits.xon_bytes:
            self._xoff_sent = False
            self._tell_neighbour(False, now)

    def _tell_neighbour(self, stop: bool, now: int) -> None:
        assert self.reverse is not None
        frame = Packet((self,), _Pause(self.reverse, stop), 0, 0, 0, 0)
        frame.length, frame.hop = _PAUSE_BYTES, 1
        if not self._pauses and (self.paused or not self._queue):
            self.rest(now)
        self._pauses.append(frame)
        self.serve(now)

    def serve(self, now: int) -> None:
        """Send what is to be sent, or come back when the line is free."""
        while self._pauses or (self._queue and not self.paused):
            ready = self.free_ns + 1 if self.free_frac else self.free_ns
            if ready > now:
                if self._serves_at != ready:
                    self._serves_at = ready
                    if not self.ticks or self.ticks[-1] < ready:
                        self.ticks.append(ready)
                    self._clock.arm(self)
                return
            if ready < now:
                self.free_ns, self.free_frac = now, 0
            if self._pauses:
                self._transmit(self._pauses.popleft())
                continue
            packet, ingress = self._queue.popleft()
            self.backlog -= packet.length
            self._memory.waiting_bytes -= packet.length
            self._transmit(packet)
            if ingress is not None:
                ingress._uncharge(packet.length, now)

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

    def pause(self, stop: bool, now: int) -> None:
        """The neighbour says so."""
        self.paused = stop
        self.serve(now)


class _Pause:
    """Where a pause frame arrives."""

    def __init__(self, port: PausablePort, stop: bool) -> None:
        self._port = port
        self._stop = stop

    def receive(self, packet: Packet, now: int) -> None:
        """The port obeys."""
        self._port.pause(self._stop, now)
