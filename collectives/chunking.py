"""How a collective is cut into chunks, each with its program, and the turns that they take.

Chunks are cut from every shard alike, so that each chunk is a small collective of the same kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from collectives.algorithms.base import Algorithm, DoesNotFit
from collectives.algorithms.hierarchical import Hierarchical
from collectives.kinds import Kind, Shape
from collectives.program import Program
from collectives.schedule.program import ProgramSchedule
from collectives.schedule.schedule import Chunk
from collectives.start_order import CollectiveOrder
from collectives.themis import ORDERED, DimensionLoads
from collectives.turns import Job, Turn, WithinDimension, play


class DimensionOrder(StrEnum):
    """How chunks go through the dimensions of a hierarchical algorithm."""

    FIXED = "fixed"
    THEMIS = "themis"


@dataclass(frozen=True, slots=True)
class Chunking:
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


def cut(shape: Shape, algorithm: Algorithm, chunking: Chunking | None = None) -> ProgramSchedule:
    """Cut a collective into chunks and write their programs. Raises DoesNotFit."""
    chunking = chunking or Chunking()
    elements = shape.size_bytes // shape.element_bytes
    per_shard = elements // shape.ranks if shape.kind.traits.splits else elements
    grain = algorithm.equal_pieces
    if per_shard % grain:
        step = grain * shape.element_bytes * (elements // max(1, per_shard))
        raise DoesNotFit(
            "size", str(shape.size_bytes), f"multiples of {step} with {algorithm.name}"
        )
    per_shard //= grain
    most = shape.size_bytes // max(1, chunking.smallest_chunk_bytes)
    wanted = max(chunking.chunks, algorithm.least_chunks)
    if algorithm.largest_chunk_bytes is not None:
        wanted = max(wanted, -(-shape.size_bytes // algorithm.largest_chunk_bytes))
    count = max(1, min(wanted, per_shard, most))
    bounds = [per_shard * i // count * grain for i in range(count + 1)]
    orders = _orders(shape, algorithm, chunking, count)
    programs: dict[Algorithm, Program] = {}
    chunks = []
    for index, chosen in enumerate(orders):
        first, end = bounds[index], bounds[index + 1]
        size_bytes = shape.size_bytes * (end - first) // max(1, per_shard * grain)
        chosen = chosen.of_chunk(index).sized(replace(shape, size_bytes=size_bytes))
        if chosen not in programs:
            programs[chosen] = chosen.program(shape.kind, shape.ranks, shape.root)
        chunks.append(Chunk(index, first, end - first, programs[chosen], chosen.hold))
    turns = _turns(shape, chunks, chunking)
    if algorithm.most_in_flight is not None:
        # Slots of switches are taken in the order of posting, whatever else is in flight.
        chunking = replace(
            chunking, in_flight=algorithm.most_in_flight, order=CollectiveOrder.FIFO, priority=0
        )
    return ProgramSchedule(
        shape,
        tuple(chunks),
        chunking.in_flight,
        turns,
        chunking.active_per_dimension,
        chunking.endpoint_delay_ns,
        chunking.order,
        chunking.priority,
        algorithm.aggregators,
        algorithm.least_chunks,
    )


def _orders(
    shape: Shape, algorithm: Algorithm, chunking: Chunking, count: int
) -> Sequence[Algorithm]:
    """The algorithm of each chunk, with its order of dimensions."""
    rates = chunking.dimension_rates
    if rates and isinstance(algorithm, Hierarchical) and len(rates) != len(algorithm.dimensions):
        found = f"{len(rates)} rates"
        raise DoesNotFit(
            "dimension_rates", found, f"one for each of {len(algorithm.dimensions)} dimensions"
        )
    if chunking.dimension_order is DimensionOrder.FIXED or shape.kind not in ORDERED:
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
    shape: Shape, chunks: Sequence[Chunk], chunking: Chunking
) -> dict[int, tuple[Turn, ...]]:
    if not chunking.active_per_dimension:
        return {}
    jobs: dict[int, list[Job]] = {}
    programs: dict[int, list[Job]] = {}
    for chunk in chunks:
        key = id(chunk.program)
        if key not in programs:
            programs[key] = list(_jobs(chunk, shape.element_bytes, chunking.dimension_rates))
        jobs[chunk.index] = programs[key]
    return play(
        jobs,
        chunking.in_flight or len(chunks),
        chunking.active_per_dimension,
        chunking.within_dimension,
    ).turns


def _jobs(chunk: Chunk, element_bytes: int, rates: Sequence[int]) -> list[Job]:
    """The work of each phase of a chunk on its dimension: the bytes of the rank that sends most."""
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
