"""One rank for all: exact short cuts for workloads whose ranks move in lockstep.

When every rank runs the same collectives, one chunk at a time, by ring or direct over a network
that looks the same from every rank, then whatever rank 0 does at some nanosecond every rank does:
a message that rank 0 sends to rank k has a twin that rank -k sends to rank 0. It is enough to
simulate rank 0 with those twins, O(n) events instead of O(n^2).

The method rests on two facts:
- no two messages from different sources meet on a link other than as their twins meet on every
  other rank's link, which holds for Switch and FullyConnected, and for neighbours on a Ring;
- within a nanosecond the order of events on one rank has no say in the outcome. Messages received
  are only counted, and packets leave in the order in which they entered. The one exception, the
  turning point of a direct all-reduce, is watched for (`Transport.order_matters`), and the full
  simulation is run instead when it occurs.
The order in which ranks act within a nanosecond, which is the order of the closing lines, is
always a rotation r, r+1, ..., r-1; `LockstepEvents.first` follows r.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any

from analysis.astra.events import Callback, EventQueue
from analysis.astra.files.network import NetworkConfig
from analysis.astra.network.aware import AwareNetwork, OneWayLink
from analysis.astra.network.mailbox import Mailbox, MessageInFlight, Way
from analysis.astra.network.unaware import UnawareNetwork
from analysis.astra.simulation import Simulation
from analysis.chakra.schema import CollectiveType, NodeType

_NAMES = {
    CollectiveType.ALL_REDUCE: "all-reduce",
    CollectiveType.ALL_GATHER: "all-gather",
    CollectiveType.REDUCE_SCATTER: "reduce-scatter",
    CollectiveType.ALL_TO_ALL: "all-to-all",
}


class OrderMattersError(Exception):
    """The outcome hangs on the order within a nanosecond: lockstep cannot tell."""


def can_run_in_lockstep(simulation: Simulation) -> bool:
    """Whether rank 0 may stand for all ranks."""
    if (
        len(simulation.network.dimensions) != 1
        or simulation.queues_per_dimension != 1
        or simulation.rendezvous
        or simulation.system.active_chunks_per_dimension != 1
        or simulation.system.replay_only
        or simulation.system.shared_bus is not None
    ):
        return False
    first = simulation.tasks[0]
    if any(tasks is not first and tasks != first for tasks in simulation.tasks):
        return False
    ring_only = simulation.network.dimensions[0].topology == "Ring"
    for task in first:
        name = _NAMES.get(task.collective) if task.collective is not None else None
        if task.type is not NodeType.COMM_COLL or name is None or task.group:
            return False
        for implementation in simulation.system.implementations.get(name, ()):
            if implementation.algorithm == "ring":
                continue
            if implementation.algorithm != "direct" or implementation.window is not None:
                return False
            if ring_only:
                return False
    return True


class LockstepEvents(EventQueue):
    """The clock of rank 0; every event is one of a wave over all ranks, which starts at `first`."""

    __slots__ = ("_waves", "first")

    def __init__(self) -> None:
        super().__init__()
        self.first = 0
        self._waves: dict[int, list[tuple[Callback, Any, int]]] = {}

    def at(self, time_ns: int, callback: Callback, argument: Any) -> None:
        """As EventQueue.at; the event's wave starts where the present one does."""
        waves = self._waves.get(time_ns)
        if waves is None:
            self._waves[time_ns] = [(callback, argument, self.first)]
            heappush(self._times, time_ns)
        else:
            waves.append((callback, argument, self.first))

    def run(self) -> None:
        """Process events until none is left."""
        while self._times:
            self.now = now = heappop(self._times)
            for callback, argument, first in self._waves[now]:
                self.first = first
                callback(argument)
            del self._waves[now]


class _MirroredMessages(Mailbox):
    """Rank 0's sends, as the twins that rank 0 receives."""

    events: LockstepEvents
    npus: int

    def send(self, way: Way, on_sent: Callback | None = None, argument: Any = None) -> None:
        """As Mailbox.send, of the message that rank -destination sends to rank 0."""
        _, destination, tag, size_bytes = way
        super().send((-destination % self.npus, 0, tag, size_bytes), on_sent, argument)

    def order_matters(self) -> None:
        """Raises OrderMattersError."""
        raise OrderMattersError

    def _transmit(
        self, message: MessageInFlight, source: int, destination: int, size_bytes: int
    ) -> None:
        message.shift = -source % self.npus
        super()._transmit(message, source, destination, size_bytes)

    def _deliver(self, message: MessageInFlight) -> None:
        # Sent in the order of the senders, so received in that of their peers.
        self.events.first = (self.events.first + message.shift) % self.npus
        super()._deliver(message)


class LockstepUnaware(_MirroredMessages, UnawareNetwork):
    """The congestion-unaware backend for rank 0 and its twins."""

    def __init__(self, events: LockstepEvents, config: NetworkConfig) -> None:
        super().__init__(events, config)
        self.events = events
        self.npus = config.npus


class LockstepAware(_MirroredMessages, AwareNetwork):
    """The congestion-aware backend for rank 0 and its twins: its own links are everybody's."""

    def __init__(self, events: LockstepEvents, config: NetworkConfig) -> None:
        super().__init__(events, config)
        self.events = events
        self.npus = config.npus
        self._up = OneWayLink()
        self._down = OneWayLink()
        self._down_shift = 0

    def _find_route(self, source: int, destination: int) -> tuple[OneWayLink, ...]:
        if self._dimension.topology == "Switch":
            return (self._up, self._down)
        # FullyConnected, or neighbours on a Ring: a link for each peer.
        return super()._find_route(source, destination)

    def _start(self, link: OneWayLink, message: MessageInFlight) -> None:
        if link is self._down:
            self._down_shift = message.shift
        super()._start(link, message)

    def _release(self, link: OneWayLink) -> None:
        if link is self._down and link.waiting:
            # The wave goes over the receivers; the next message's goes over its senders.
            shift = self._down_shift - link.waiting[0].shift
            self.events.first = (self.events.first + shift) % self.npus
        super()._release(link)


LOCKSTEP_BACKENDS = {"unaware": LockstepUnaware, "aware": LockstepAware}
