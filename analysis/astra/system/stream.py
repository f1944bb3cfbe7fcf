"""One chunk of a collective on its way through its phases."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from analysis.astra.events import EventQueue, LocalEvents
from analysis.astra.network.mailbox import MessageTransport
from analysis.astra.network.memory_bus import Bus
from analysis.astra.system.phase import DimensionPhase


class PhaseAlgorithm(Protocol):
    """A collective algorithm's state on one rank, for one phase."""

    def start(self) -> None: ...

    def received(self, _: Any) -> None: ...

    def crossed_bus(self, _: Any) -> None: ...


class Host(Protocol):
    """The part of a rank that a stream's algorithm needs."""

    rank: int
    bus: Bus
    events: EventQueue
    local: LocalEvents
    network: MessageTransport

    def algorithm(self, stream: ChunkStream, phase: DimensionPhase) -> PhaseAlgorithm:
        """The algorithm that carries out the phase."""
        ...

    def reduction_ns(self, size_bytes: int) -> int:
        """The time to reduce so many bytes."""
        ...

    def phase_done(self, stream: ChunkStream) -> None:
        """The stream's algorithm is through."""
        ...


class DataSet:
    """A collective on one rank: done when all of its streams are."""

    __slots__ = ("_left", "_on_done")

    def __init__(self, streams: int, on_done: Callable[[], None]) -> None:
        self._left = streams
        self._on_done = on_done

    def stream_done(self) -> None:
        """Another stream has gone through all of its phases."""
        self._left -= 1
        if self._left == 0:
            self._on_done()


class ChunkStream:
    """A chunk: its remaining phases and the algorithm of the present one."""

    __slots__ = ("crossed_bus", "dataset", "phases", "priority", "queue", "received", "start",
                 "system", "tag")  # fmt: skip

    def __init__(
        self,
        system: Host,
        dataset: DataSet,
        tag: int,
        phases: Iterable[DimensionPhase],
        priority: int,
    ) -> None:
        self.system = system
        self.dataset = dataset
        self.tag = tag
        self.phases = deque(phases)
        self.priority = priority
        self.queue = -1

    def next_phase(self) -> None:
        """Take up the next phase; events of the stream go to its algorithm from now on."""
        phase = self.phases.popleft()
        self.queue = phase.queue
        algorithm = self.system.algorithm(self, phase)
        self.start = algorithm.start
        self.received = algorithm.received
        self.crossed_bus = algorithm.crossed_bus
