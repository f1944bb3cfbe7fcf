"""ASTRA-sim's system layer on one rank: queues per dimension, and streams waiting in them."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable
from math import ceil

from analysis.astra.errors import AstraRefused
from analysis.astra.events import EventQueue, LocalEvents
from analysis.astra.files.system import SystemConfig
from analysis.astra.network.mailbox import MessageTransport
from analysis.astra.network.memory_bus import Bus, FixedDelay, SharedBus
from analysis.astra.system.exchange import DirectExchange, HalvingDoublingExchange, RingExchange
from analysis.astra.system.phase import AstraCollective, DimensionPhase
from analysis.astra.system.planner import Planner
from analysis.astra.system.stream import ChunkStream, DataSet, PhaseAlgorithm
from analysis.astra.system.tree import TreeAllReduce
from analysis.chakra.group_file import CommunicatorGroup

# Tags of send and receive nodes lie below this, those of collectives above (system/Sys.hh).
TAG_RANGE = 500_000_000

_ALGORITHMS: dict[str, Callable[[ChunkStream, DimensionPhase], PhaseAlgorithm]] = {
    "ring": RingExchange,
    "direct": DirectExchange,
    "halvingDoubling": HalvingDoublingExchange,
    "doubleBinaryTree": TreeAllReduce,
}


class _Queue:
    """One queue of one dimension: how many streams run, and those that wait.

    Waiting streams are kept lowest priority first and, within one, latest first, so that the
    next to run is the last.
    """

    __slots__ = ("_priorities", "_waiting", "running")

    def __init__(self) -> None:
        self.running = 0
        self._waiting: list[ChunkStream] = []
        self._priorities: list[int] = []

    def add(self, stream: ChunkStream) -> None:
        """Behind every waiting stream of at least its priority."""
        position = bisect_left(self._priorities, stream.priority)
        self._priorities.insert(position, stream.priority)
        self._waiting.insert(position, stream)

    def admit(self, limit: int) -> None:
        """Start waiting streams while fewer than `limit` run."""
        while self._waiting and self.running < limit:
            self._priorities.pop()
            self._waiting.pop().start()
            self.running += 1


class System:
    """One rank's system layer (system/Sys.cc with its SchedulerUnit)."""

    def __init__(
        self,
        rank: int,
        config: SystemConfig,
        planner: Planner,
        events: EventQueue,
        network: MessageTransport,
        queues_per_dimension: int = 1,
    ) -> None:
        self.rank = rank
        self.config = config
        self.events = events
        self.network = network
        self.local = LocalEvents(events)
        self.bus: Bus
        if config.shared_bus is None:
            self.bus = FixedDelay(self.local, config.endpoint_delay_ns)
        else:
            self.bus = SharedBus(self.local, config.shared_bus)
        self._plan = planner.for_rank(rank, queues_per_dimension)
        self._limit = ceil(config.active_chunks_per_dimension / queues_per_dimension)
        self._queues: defaultdict[int, _Queue] = defaultdict(_Queue)
        self._streams_made = 0
        self._group_streams_made: dict[int, int] = {}
        self._priority = 0

    def collective(
        self,
        collective: AstraCollective,
        size_bytes: int,
        involved: tuple[bool, ...] | None,
        group: CommunicatorGroup | None,
        explicit_priority: int,
        on_done: Callable[[], None],
    ) -> None:
        """Start a collective of which this rank holds `size_bytes`; `on_done()` when it is over.

        `involved` says per dimension whether it takes part (None: all). With a group, only the
        group's ranks take part and `involved` has no say, as in the original.
        Raises AstraRefused where the original stops.
        """
        chunk_bytes, chunks = self._split(collective, size_bytes)
        priority = self._next_priority(explicit_priority)
        dataset = DataSet(chunks, on_done)
        for _ in range(chunks):
            phases = self._plan.phases(collective, chunk_bytes, involved, group)
            if not phases:
                # No dimension takes part: the original never completes such a collective.
                return
            stream = ChunkStream(self, dataset, self._next_tag(group), phases, priority)
            self._enter(stream)

    def algorithm(self, stream: ChunkStream, phase: DimensionPhase) -> PhaseAlgorithm:
        """As Host.algorithm."""
        return _ALGORITHMS[phase.implementation.algorithm](stream, phase)

    def reduction_ns(self, size_bytes: int) -> int:
        """As Host.reduction_ns."""
        return self.config.reduction_ns(size_bytes)

    def phase_done(self, stream: ChunkStream) -> None:
        """A stream has left its dimension: on to the next, and the queue admits another."""
        left = self._queues[stream.queue]
        if stream.phases:
            self._enter(stream, left)
        else:
            # Whoever waits for the collective acts before the queue moves on.
            stream.dataset.stream_done()
            left.running -= 1
            left.admit(self._limit)

    def _enter(self, stream: ChunkStream, left: _Queue | None = None) -> None:
        stream.next_phase()
        queue = self._queues[stream.queue]
        queue.add(stream)
        if left is not None:
            left.running -= 1
            left.admit(self._limit)
        queue.admit(self._limit)

    def _split(self, collective: AstraCollective, size_bytes: int) -> tuple[int, int]:
        """(bytes of a chunk, number of chunks), after Sys::determine_chunk_size."""
        splits = self.config.preferred_dataset_splits
        chunk_bytes = size_bytes // splits
        if collective is not AstraCollective.ALL_GATHER and self._plan.npus > chunk_bytes:
            chunk_bytes = self._plan.npus
            size_bytes = splits * chunk_bytes
        if chunk_bytes == 0:
            raise AstraRefused(
                f"{collective.value} of {size_bytes} bytes in {splits} splits: "
                "ASTRA-sim never ends on chunks without bytes"
            )
        return chunk_bytes, -(-size_bytes // chunk_bytes)

    def _next_priority(self, explicit_priority: int) -> int:
        policy = self.config.scheduling_policy
        if policy == "EXPLICIT":
            return explicit_priority
        priority = self._priority
        self._priority += 1 if policy == "LIFO" else -1
        return priority

    def _next_tag(self, group: CommunicatorGroup | None) -> int:
        number = self._streams_made
        self._streams_made += 1
        if group is not None:
            number = self._group_streams_made.get(group.id, group.id * 1_000_000)
            self._group_streams_made[group.id] = number + 1
        return number % TAG_RANGE + TAG_RANGE
