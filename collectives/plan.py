"""A collective cut into chunks, each with its program, and the turns that they take.

Chunks are cut from every shard alike, so that each chunk is a small collective of the same kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from collectives.algorithms.base import Algorithm, DoesNotFit
from collectives.algorithms.hierarchical import Hierarchical
from collectives.in_network.node import Aggregator, Hold
from collectives.kinds import Kind, Shape
from collectives.program import Message, Program
from collectives.start_order import CollectiveOrder
from collectives.themis import ORDERED, DimensionLoads
from collectives.turns import Job, Turn, WithinDimension, play
from collectives.verify import staging_blocks


class DimensionOrder(StrEnum):
    """How chunks go through the dimensions of a hierarchical algorithm."""

    FIXED = "fixed"
    THEMIS = "themis"


@dataclass(frozen=True, slots=True)
class Schedule:
    """How the chunks of a collective are cut and run.

    - `chunks`: how many; a chunk has at least `smallest_chunk_bytes` (all data of a rank counted);
    - `in_flight`: chunks under way at once, of all collectives together; 0: all;
    - `order`, `priority`: whose chunks start first, where `in_flight` has them wait;
    - `dimension_order`, `dimension_rates`: the order of dimensions, and their rates in any unit
      (empty: all alike), which Themis balances;
    - `active_per_dimension`: chunks that use a dimension at once; 0: any number, whoever comes;
    - `within_dimension`: which of those that wait for a dimension goes next;
    - `endpoint_delay_ns`: what a rank takes to inject each message.
    """

    chunks: int = 1
    smallest_chunk_bytes: int = 1
    in_flight: int = 0
    dimension_order: DimensionOrder = DimensionOrder.FIXED
    dimension_rates: tuple[int, ...] = ()
    active_per_dimension: int = 0
    within_dimension: WithinDimension = WithinDimension.FIFO
    endpoint_delay_ns: int = 0
    order: CollectiveOrder = CollectiveOrder.FIFO
    priority: int = 0

    def __post_init__(self) -> None:
        for key, least in (("chunks", 1), ("in_flight", 0), ("active_per_dimension", 0)):
            value = getattr(self, key)
            if value < least:
                raise DoesNotFit(key, str(value), f"{least} and more")
        if any(rate < 1 for rate in self.dimension_rates):
            found = str(list(self.dimension_rates))
            raise DoesNotFit("dimension_rates", found, "rates of 1 and more")
        if self.order is CollectiveOrder.FIFO:
            if self.priority:
                found = f"{self.priority} with order: fifo"
                raise DoesNotFit("priority", found, "order: priority or order: lifo")
        elif not self.in_flight:
            found = f"{self.order} without in_flight"
            raise DoesNotFit("order", found, "in_flight of 1 and more, for chunks to wait")
        elif self.active_per_dimension:
            # Turns are those of one collective: two that have slots for half of their chunks each
            # could wait for the turns of the others for ever.
            found = f"{self.order} with active_per_dimension"
            raise DoesNotFit("order", found, "order: fifo where chunks take turns")


@dataclass(frozen=True, slots=True)
class Chunk:
    """Elements `first` to `first + count` of every shard (of the buffer, for kinds that do not
    split), and what is done with them. `hold` is what it has to itself at switches."""

    index: int
    first: int
    count: int
    program: Program
    hold: Hold | None = None

    @property
    def elements(self) -> int:
        """The chunk's elements as the kind counts them."""
        return self.count * (self.program.ranks if self.program.kind.traits.splits else 1)


@dataclass(frozen=True, slots=True)
class CollectivePlan:
    """A collective that is ready to run. `in_flight` is 0 where all chunks are. `turns` has, by
    dimension, the order in which the phases of chunks use it; empty where whoever comes goes.
    `aggregators` are the switches that take part, after the ranks, in so many `trees`, which chunks
    take in turn. `slot_stride` is how many slots each chunk has, where the plan is a part of
    another one (0: as many as it needs)."""

    shape: Shape
    chunks: tuple[Chunk, ...]
    in_flight: int
    turns: dict[int, tuple[Turn, ...]]
    active_per_dimension: int
    endpoint_delay_ns: int = 0
    order: CollectiveOrder = CollectiveOrder.FIFO
    priority: int = 0
    aggregators: tuple[Aggregator, ...] = ()
    trees: int = 1
    slot_stride: int = 0

    def participants(self, ranks: Sequence[int]) -> tuple[int, ...]:
        """The numbers of all participants, of which the ranks have these."""
        return (*ranks, *(switch.number for switch in self.aggregators))

    def part(self, number: int, parts: int) -> CollectivePlan:
        """The chunks that are one of so many trees' turn, with slots and bounds of their own."""
        if parts == 1:
            return self
        return replace(
            self,
            chunks=self.chunks[number::parts],
            in_flight=self.in_flight // parts,
            slot_stride=slots_per_chunk(self),
        )

    def beside(self, others: int) -> CollectivePlan:
        """The plan among the ranks of several jobs, which are so many more: switches are numbered
        after the ranks of all."""
        moved = tuple(replace(each, number=each.number + others) for each in self.aggregators)
        return replace(self, aggregators=moved)


@dataclass(frozen=True, slots=True)
class PlanMessage:
    """A message of a plan: its ends, its bytes, and its slot, which is unique in the plan."""

    source: int
    destination: int
    size_bytes: int
    slot: int
    chunk: int
    phase: int


def slots_per_chunk(found: CollectivePlan) -> int:
    """How many slots each chunk has: as many as the program with most messages."""
    if found.slot_stride:
        return found.slot_stride
    programs = {id(chunk.program): chunk.program for chunk in found.chunks}
    return max(len(program.messages()) for program in programs.values())


def plan_messages(found: CollectivePlan) -> Iterator[PlanMessage]:
    """All messages but empty ones, which are not sent. The slot of message m of chunk c is
    c * slots_per_chunk + m."""
    stride = slots_per_chunk(found)
    element_bytes = found.shape.element_bytes
    messages: dict[int, tuple[Message, ...]] = {}
    for chunk in found.chunks:
        key = id(chunk.program)
        if key not in messages:
            messages[key] = chunk.program.messages()
        for message in messages[key]:
            elements = chunk.program.elements_of(message.blocks, chunk.elements)
            if elements:
                yield PlanMessage(
                    message.source,
                    message.destination,
                    elements * element_bytes,
                    chunk.index * stride + message.number,
                    chunk.index,
                    message.phase,
                )


def working_bytes(found: CollectivePlan) -> int:
    """Memory that a rank needs beside source and target: scratch, staging, and the chunks of shards
    copied together, of all chunks under way."""
    counts = []
    known: dict[int, int] = {}
    for chunk in found.chunks:
        program = chunk.program
        key = id(program)
        if key not in known:
            staged = staging_blocks(program)
            copied = 0
            if program.kind.traits.splits and len(found.chunks) > 1:
                copied = program.input_blocks + program.output_blocks
            known[key] = program.scratch_blocks + staged + copied
        shard = program.shard_elements(chunk.elements)
        counts.append(known[key] * -(-shard // program.pieces))
    under_way = sorted(counts)[-(found.in_flight or len(counts)) :]
    return sum(under_way) * found.shape.element_bytes


def threads_of(found: CollectivePlan) -> int:
    """Threads of a rank: one for each sequence of the chunks under way."""
    under_way = min(found.in_flight or len(found.chunks), len(found.chunks))
    programs = {id(chunk.program): chunk.program for chunk in found.chunks}
    return under_way * max(
        len(sequences) for one in programs.values() for sequences in one.participants
    )


def plan(shape: Shape, algorithm: Algorithm, schedule: Schedule | None = None) -> CollectivePlan:
    """Cut a collective into chunks and write their programs. Raises DoesNotFit."""
    schedule = schedule or Schedule()
    elements = shape.size_bytes // shape.element_bytes
    per_shard = elements // shape.ranks if shape.kind.traits.splits else elements
    grain = algorithm.equal_pieces
    if per_shard % grain:
        step = grain * shape.element_bytes * (elements // max(1, per_shard))
        raise DoesNotFit(
            "size", str(shape.size_bytes), f"multiples of {step} with {algorithm.name}"
        )
    per_shard //= grain
    most = shape.size_bytes // max(1, schedule.smallest_chunk_bytes)
    wanted = max(schedule.chunks, algorithm.least_chunks)
    if algorithm.largest_chunk_bytes is not None:
        wanted = max(wanted, -(-shape.size_bytes // algorithm.largest_chunk_bytes))
    count = max(1, min(wanted, per_shard, most))
    bounds = [per_shard * i // count * grain for i in range(count + 1)]
    orders = _orders(shape, algorithm, schedule, count)
    programs: dict[Algorithm, Program] = {}
    chunks = []
    for index, chosen in enumerate(orders):
        first, end = bounds[index], bounds[index + 1]
        size_bytes = shape.size_bytes * (end - first) // max(1, per_shard * grain)
        chosen = chosen.of_chunk(index).sized(replace(shape, size_bytes=size_bytes))
        if chosen not in programs:
            programs[chosen] = chosen.program(shape.kind, shape.ranks, shape.root)
        chunks.append(Chunk(index, first, end - first, programs[chosen], chosen.hold))
    turns = _turns(shape, chunks, schedule)
    if algorithm.most_in_flight is not None:
        # Slots of switches are taken in the order of posting, whatever else is in flight.
        schedule = replace(
            schedule, in_flight=algorithm.most_in_flight, order=CollectiveOrder.FIFO, priority=0
        )
    return CollectivePlan(
        shape,
        tuple(chunks),
        schedule.in_flight,
        turns,
        schedule.active_per_dimension,
        schedule.endpoint_delay_ns,
        schedule.order,
        schedule.priority,
        algorithm.aggregators,
        algorithm.least_chunks,
    )


def _orders(
    shape: Shape, algorithm: Algorithm, schedule: Schedule, count: int
) -> Sequence[Algorithm]:
    """The algorithm of each chunk, with its order of dimensions."""
    rates = schedule.dimension_rates
    if rates and isinstance(algorithm, Hierarchical) and len(rates) != len(algorithm.dimensions):
        found = f"{len(rates)} rates"
        raise DoesNotFit(
            "dimension_rates", found, f"one for each of {len(algorithm.dimensions)} dimensions"
        )
    if schedule.dimension_order is DimensionOrder.FIXED or shape.kind not in ORDERED:
        return [algorithm] * count
    if not isinstance(algorithm, Hierarchical) or algorithm.full_size:
        allowed = "themis with algorithm: hierarchical that is not full_size"
        raise DoesNotFit("dimension_order", f"themis with {algorithm.name}", allowed)
    sizes = algorithm.dimensions
    algorithm.check(shape.ranks)
    loads = DimensionLoads(sizes, rates or (1,) * len(sizes))
    unused = [d for d, size in enumerate(sizes) if size < 2]
    before = shape.ranks if shape.kind is Kind.ALL_GATHER else 1
    found_orders: list[Algorithm] = []
    for _ in range(count):
        order = loads.next_chunk(shape.kind, max(1, shape.size_bytes // count // before))
        # An all-gather goes back along the order of the algorithm.
        along = tuple(reversed(order)) if shape.kind is Kind.ALL_GATHER else order
        found_orders.append(replace(algorithm, order=(*along, *unused)))
    return found_orders


def _turns(
    shape: Shape, chunks: Sequence[Chunk], schedule: Schedule
) -> dict[int, tuple[Turn, ...]]:
    if not schedule.active_per_dimension:
        return {}
    jobs: dict[int, list[Job]] = {}
    programs: dict[int, list[Job]] = {}
    for chunk in chunks:
        key = id(chunk.program)
        if key not in programs:
            programs[key] = list(_jobs(chunk, shape.element_bytes, schedule.dimension_rates))
        jobs[chunk.index] = programs[key]
    return play(
        jobs,
        schedule.in_flight or len(chunks),
        schedule.active_per_dimension,
        schedule.within_dimension,
    ).turns


def _jobs(chunk: Chunk, element_bytes: int, rates: Sequence[int]) -> list[Job]:
    """What each phase of a chunk moves on its dimension: the bytes of the rank that sends most."""
    program = chunk.program
    sent: dict[tuple[int, int], int] = {}
    for message in program.messages():
        key = message.phase, message.source
        size_bytes = program.elements_of(message.blocks, chunk.elements) * element_bytes
        sent[key] = sent.get(key, 0) + size_bytes
    found = []
    for number, phase in enumerate(program.phases):
        if phase.dimension is None:
            continue
        size_bytes = max((size for (at, _), size in sent.items() if at == number), default=0)
        rate = rates[phase.dimension] if rates else 1
        shrinks = phase.kind in (Kind.REDUCE_SCATTER, Kind.ALL_GATHER)
        found.append(Job(number, phase.dimension, size_bytes, rate, shrinks))
    return found
