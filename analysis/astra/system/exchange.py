"""Collective algorithms that exchange packets along a ring: ring, direct, halving-doubling.

All three share ASTRA-sim's packet life (astraccl/native_collectives/collective_algorithm):
a packet enters, crosses the memory bus, is sent, and the message received in its place makes
the next packet. Received packets of a reducing phase are reduced on the way across the bus.
"""

from __future__ import annotations

from collections import deque
from math import log2
from typing import Any

from analysis.astra.network.memory_bus import Crossing
from analysis.astra.system.phase import AstraCollective, DimensionPhase
from analysis.astra.system.stream import ChunkStream


class RingExchange:
    """Ring: one packet under way per rank, always to the next neighbour."""

    def __init__(self, stream: ChunkStream, phase: DimensionPhase) -> None:
        assert phase.ring is not None
        self.stream = stream
        self.system = system = stream.system
        self.network = system.network
        self.rank = system.rank
        self.tag = stream.tag
        self.ring = ring = phase.ring
        self.step = phase.step
        self.bus = system.bus
        self.collective = phase.collective
        self.packets: deque[tuple[int, int, int]] = deque()
        # Packets that have crossed the bus and may take a message with them.
        self.free = 0
        # Packets come in rounds: `parallel` unreduced ones, then `reduced_per_round` others.
        self.parallel = 1
        self.plain_left = 0
        self.reduced_left = 0
        self.odd_round = False
        self._configure(phase, len(ring))

    def _configure(self, phase: DimensionPhase, members: int) -> None:
        self.reduced_per_round = members - 1
        self.sends_left = _ring_sends(phase.collective, members)
        gathers = phase.collective is AstraCollective.ALL_GATHER
        self.size_bytes = phase.size_bytes if gathers else phase.size_bytes // members
        self.receiver = self.ring.after(self.rank, self.step)
        self.sender = self.ring.after(self.rank, -self.step)

    def start(self) -> None:
        """The stream is admitted to its queue."""
        for _ in range(self.parallel):
            self._insert()

    def received(self, _: Any) -> None:
        """A message has arrived."""
        self._insert()

    def crossed_bus(self, _: Any) -> None:
        """A packet has crossed the memory bus (and been reduced, if it had to be)."""
        self.free += 1
        self._send()
        self._finish_if_done()

    def _finish_if_done(self) -> None:
        if self.sends_left == 0 and self.free == self.parallel:
            self.system.phase_done(self.stream)

    def _insert(self) -> None:
        if self.plain_left == 0 and self.reduced_left == 0:
            self.plain_left = self.parallel
            self.reduced_left = self.reduced_per_round
            self.odd_round = not self.odd_round
        self.packets.append((self.receiver, self.sender, self.size_bytes))
        if self.plain_left > 0:
            self.plain_left -= 1
            self._cross_bus(to_memory=True, reduce=False, send_back=False)
        else:
            reduce = self.collective is AstraCollective.REDUCE_SCATTER or (
                self.collective is AstraCollective.ALL_REDUCE and self.odd_round
            )
            send_back = self.reduced_left > self.parallel
            self.reduced_left -= 1
            self._cross_bus(to_memory=False, reduce=reduce, send_back=send_back)
        self._advance()

    def _cross_bus(self, *, to_memory: bool, reduce: bool, send_back: bool) -> None:
        callback = self._reduce if reduce else self.stream.crossed_bus
        crossing = Crossing(to_memory, self.ring.local, self.size_bytes, reduce, send_back)
        self.bus.cross(crossing, callback, self.size_bytes)

    def _reduce(self, size_bytes: int) -> None:
        self.system.local.after(self.system.reduction_ns(size_bytes), self.stream.crossed_bus, None)

    def _advance(self) -> None:
        """Whom the next packet is for."""

    def _send(self) -> bool:
        """Send the next packet and post the receive for its answer, if there is one to send."""
        if not self.packets or self.sends_left == 0 or self.free == 0:
            return False
        receiver, sender, size_bytes = self.packets.popleft()
        self.network.send((self.rank, receiver, self.tag, size_bytes))
        self.network.receive((sender, self.rank, self.tag, size_bytes), self.stream.received)
        self.sends_left -= 1
        self.free -= 1
        return True


class DirectExchange(RingExchange):
    """Direct: up to `window` packets under way (all peers when unlimited), each to another peer."""

    def _configure(self, phase: DimensionPhase, members: int) -> None:
        super()._configure(phase, members)
        peers = members - 1
        window = phase.implementation.window
        self.parallel = peers if window is None else min(window, peers)
        self.reduced_per_round = self.parallel * (peers if self.ring.local else 1)
        if phase.collective is AstraCollective.ALL_TO_ALL:
            self.sends_left = peers
        self.peers = peers
        self.position = self.ring.positions[self.rank]
        self.distance = 1
        self.received_count = 0
        # The nanoseconds in which the first half was complete, and a packet last waited for that.
        self.half_done_ns = -1
        self.waited_ns = -1

    def received(self, _: Any) -> None:
        self.received_count += 1
        if self.received_count == self.peers:
            self.half_done_ns = self.system.events.now
        self._insert()

    def crossed_bus(self, _: Any) -> None:
        self.free += 1
        if self.collective is AstraCollective.ALL_REDUCE and self.sends_left <= self.peers:
            # The second half of an all-reduce starts when every shard of the first is in.
            if self.received_count < self.peers:
                self.waited_ns = self.system.events.now
                return
            if self.half_done_ns in (self.waited_ns, self.system.events.now):
                self.network.order_matters()
            for _ in range(self.parallel):
                if not self._send():
                    break
        else:
            self._send()
        self._finish_if_done()

    def _advance(self) -> None:
        # Round the ring, leaving out this rank itself.
        self.distance = self.distance % self.peers + 1
        steps = self.step * self.distance
        members = self.ring.members
        self.receiver = members[(self.position + steps) % len(members)]
        self.sender = members[(self.position - steps) % len(members)]


class HalvingDoublingExchange(RingExchange):
    """Halving-doubling: one partner at a time, at distances 1, 2, 4, ... with halving sizes
    (reduce-scatter), the reverse (all-gather), or one after the other (all-reduce).

    The original truncates its logarithms and sizes at every step; so does this.
    """

    def _configure(self, phase: DimensionPhase, members: int) -> None:
        rounds = log2(members)
        self.members = members
        self.position = self.ring.positions[self.rank]
        self.reduced_per_round = int(rounds - 1)
        if phase.collective is AstraCollective.ALL_REDUCE:
            self.sends_left = int(2 * rounds)
        else:
            self.sends_left = int(rounds)
        self.doubling = phase.collective is AstraCollective.ALL_GATHER
        if self.doubling:
            self.size_bytes = phase.size_bytes
            self.distance = members // 2
        else:
            self.size_bytes = phase.size_bytes // 2
            self.distance = 1
        self.receiver = self.sender = self.rank
        self._find_partner()

    def _advance(self) -> None:
        self._scale()
        if self.distance == self.members and self.collective is AstraCollective.ALL_REDUCE:
            self.doubling = True
            self._scale()
        self._find_partner()

    def _scale(self) -> None:
        if self.doubling:
            self.distance //= 2
            self.size_bytes *= 2
        else:
            self.distance *= 2
            self.size_bytes //= 2

    def _find_partner(self) -> None:
        self.receiver = self.rank
        if self.distance > 0:
            step = -1 if self.position // self.distance % 2 else 1
            self.receiver = self.sender = self.ring.after(self.rank, step * self.distance)


def _ring_sends(collective: AstraCollective, members: int) -> int:
    if collective is AstraCollective.ALL_REDUCE:
        return 2 * (members - 1)
    if collective is AstraCollective.ALL_TO_ALL:
        return (members - 1) * members // 2
    return members - 1
