"""Chunks, the order of dimensions, and turns."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives.algorithms import algorithm
from collectives.algorithms.base import DoesNotFit
from collectives.algorithms.hierarchical import Hierarchical
from collectives.chunking import Chunking, DimensionOrder, cut
from collectives.kinds import Kind, Shape
from collectives.start_order import CollectiveOrder
from collectives.themis import DimensionLoads
from collectives.turns import Job, Turn, WithinDimension, play
from collectives.verify import verify


def load_ratio(sizes: Sequence[int], rates: Sequence[int], chunks: int = 64) -> float:
    """Largest load of the fixed order over Themis' largest."""
    fixed = DimensionLoads(tuple(sizes), tuple(rates))
    themis = DimensionLoads(tuple(sizes), tuple(rates))
    for _ in range(chunks):
        themis.next_chunk(Kind.ALL_REDUCE, 1 << 20)
        fixed.add(Kind.ALL_REDUCE, 1 << 20, fixed.fixed_order(Kind.ALL_REDUCE))
    return float(max(fixed.loads) / max(themis.loads))


@pytest.mark.parametrize(
    ("sizes", "rates", "ratio"),
    [
        ((8, 8, 8), (1, 1, 1), 2.58),
        ((4, 4, 4), (1, 1, 1), 2.26),
        ((2, 2, 2), (1, 1, 1), 1.71),
        ((8, 8), (1, 1), 1.78),
        ((8, 16), (1, 1), 1.74),
        ((4, 4), (1, 1), 1.60),
        ((4, 2), (1, 1), 1.71),
        ((4, 4), (4, 1), 1.00),
        ((8, 16), (12, 1), 1.00),
    ],
)
def test_themis_balances_as_the_algorithm_computes(
    sizes: tuple[int, ...], rates: tuple[int, ...], ratio: float
) -> None:
    assert round(load_ratio(sizes, rates), 2) == ratio


def test_themis_alternates_between_two_equal_dimensions() -> None:
    loads = DimensionLoads((4, 4), (1, 1))
    orders = [loads.next_chunk(Kind.ALL_REDUCE, 1 << 20) for _ in range(64)]
    assert orders == [(0, 1), (1, 0)] * 32


def test_themis_keeps_the_fixed_order_where_that_balances() -> None:
    loads = DimensionLoads((4, 4), (4, 1))
    assert {loads.next_chunk(Kind.ALL_REDUCE, 1 << 20) for _ in range(64)} == {(0, 1)}


@given(
    st.lists(st.integers(1, 8), min_size=1, max_size=4).filter(lambda s: max(s) > 1),
    st.sampled_from([Kind.ALL_REDUCE, Kind.REDUCE_SCATTER, Kind.ALL_GATHER]),
    st.integers(1, 64),
)
def test_themis_is_never_worse_than_a_chunk_beyond_the_fixed_order(
    sizes: list[int], kind: Kind, chunks: int
) -> None:
    rates = (1,) * len(sizes)
    themis, fixed = DimensionLoads(tuple(sizes), rates), DimensionLoads(tuple(sizes), rates)
    for _ in range(chunks):
        order = themis.next_chunk(kind, 1 << 20)
        assert sorted(order) == sorted(fixed.fixed_order(kind))
        fixed.add(kind, 1 << 20, fixed.fixed_order(kind))
    one = DimensionLoads(tuple(sizes), rates)
    one.add(kind, 1 << 20, one.fixed_order(kind))
    assert max(themis.loads) <= max(fixed.loads) + max(one.loads)


def test_loads_are_the_bytes_that_programs_send() -> None:
    """The load of a dimension is half of what an all-reduce's program sends along it."""
    ranks, size_bytes = 24, 24 * 4 * 64
    for order in ((0, 1, 2), (2, 0, 1)):
        chosen = algorithm("hierarchical", dimensions=[2, 3, 4], order=list(order))
        program = chosen.program(Kind.ALL_REDUCE, ranks)
        loads = DimensionLoads((2, 3, 4), (1, 1, 1))
        loads.add(Kind.ALL_REDUCE, size_bytes, order)
        sent = [0, 0, 0]
        for message in program.messages():
            dimension = program.phases[message.phase].dimension
            if message.source == 5 and dimension is not None:
                sent[dimension] += program.elements_of(message.blocks, size_bytes // 4) * 4
        assert [Fraction(size, 2) for size in sent] == loads.loads


@settings(deadline=None)
@given(st.integers(2, 9), st.integers(1, 500), st.integers(1, 40), st.sampled_from(Kind))
def test_chunks_cover_every_shard_once(ranks: int, elements: int, chunks: int, kind: Kind) -> None:
    chosen = algorithm("direct")
    if kind not in chosen.kinds:
        return
    split = ranks if kind.traits.splits else 1
    shape = Shape(kind, elements * split * 4, ranks, 4)
    found = cut(shape, chosen, Chunking(chunks=chunks)).chunks
    assert found[0].first == 0
    assert found[-1].first + found[-1].count == elements
    assert all(a.first + a.count == b.first for a, b in pairwise(found))
    assert len(found) == min(chunks, elements)
    assert all(chunk.count for chunk in found)
    assert sum(chunk.elements for chunk in found) == elements * split


def test_chunks_are_not_cut_smaller_than_allowed() -> None:
    shape = Shape(Kind.ALL_REDUCE, 8192, 4, 4)
    schedule = Chunking(chunks=128, smallest_chunk_bytes=1024)
    assert len(cut(shape, algorithm("ring"), schedule).chunks) == 8


def test_glooring_takes_its_segments_from_the_size() -> None:
    small = cut(Shape(Kind.ALL_REDUCE, 8_000_000, 8, 4), algorithm("gloo-ring"))
    large = cut(Shape(Kind.ALL_REDUCE, 64 << 20, 8, 4), algorithm("gloo-ring"))
    assert (small.chunks[0].program.pieces, large.chunks[0].program.pieces) == (16, 64)


def hierarchical(*sizes: int) -> Hierarchical:
    return Hierarchical(dimensions=sizes)


def test_themis_gives_chunks_different_programs_all_of_them_right() -> None:
    schedule = Chunking(chunks=16, dimension_order=DimensionOrder.THEMIS)
    for kind in (Kind.ALL_REDUCE, Kind.REDUCE_SCATTER, Kind.ALL_GATHER):
        found = cut(Shape(kind, 16 * 16 * 64 * 4, 16, 4), hierarchical(4, 4), schedule)
        programs = {id(chunk.program): chunk.program for chunk in found.chunks}
        assert len(programs) == 2
        for program in programs.values():
            verify(program)


def played(within: WithinDimension, order: DimensionOrder, sizes: Sequence[int]) -> Fraction:
    """How long an all-reduce of 64 chunks takes, one chunk per dimension at a time."""
    loads = DimensionLoads(tuple(sizes), (1,) * len(sizes))
    jobs = {}
    for chunk in range(64):
        along = tuple(range(len(sizes)))
        if order is DimensionOrder.THEMIS:
            along = loads.next_chunk(Kind.ALL_REDUCE, 1 << 20)
        size, there = 1 << 20, []
        for dimension in along:
            there.append((dimension, size * (sizes[dimension] - 1) // sizes[dimension]))
            size //= sizes[dimension]
        phases = [*there, *reversed(there)]
        jobs[chunk] = [Job(i, d, n, 1, True) for i, (d, n) in enumerate(phases)]
    return play(jobs, 64, 1, within).duration


@pytest.mark.parametrize("sizes", [(4, 4), (4, 4, 4), (8, 8), (2, 2, 2)])
def test_fixed_is_slower_than_themis_and_fifo_no_faster_than_smallest_first(
    sizes: tuple[int, ...],
) -> None:
    fixed = played(WithinDimension.FIFO, DimensionOrder.FIXED, sizes)
    themis = played(WithinDimension.FIFO, DimensionOrder.THEMIS, sizes)
    smallest = played(WithinDimension.SMALLEST_FIRST, DimensionOrder.THEMIS, sizes)
    assert fixed > themis >= smallest
    assert fixed / smallest <= Fraction(load_ratio(sizes, (1,) * len(sizes)) * 1.05)


JOBS = st.dictionaries(
    st.integers(0, 20),
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9)), max_size=5),
    max_size=12,
)


@given(
    JOBS,
    st.integers(1, 12),
    st.integers(1, 3),
    st.sampled_from(WithinDimension),
    st.randoms(use_true_random=False),
)
def test_turns_never_wait_in_a_circle(
    drawn: dict[int, list[tuple[int, int]]],
    in_flight: int,
    active: int,
    within: WithinDimension,
    random: Random,
) -> None:
    jobs = {
        chunk: [Job(i, d, size, 1, True) for i, (d, size) in enumerate(phases)]
        for chunk, phases in drawn.items()
    }
    turns = play(jobs, in_flight, active, within).turns
    expected = sorted((chunk, job.phase) for chunk, phases in jobs.items() for job in phases)
    assert sorted((t.chunk, t.phase) for order in turns.values() for t in order) == expected
    # A rank that keeps to the order can always go on, whatever it does first of what it can: some
    # phase of the chunks that have a slot has its turn.
    chunks = [chunk for chunk in jobs if jobs[chunk]]
    done: set[Turn] = set()
    while len(done) < len(expected):
        over = [c for c in chunks if all(Turn(c, job.phase) in done for job in jobs[c])]
        started = chunks[: in_flight + len(over)]
        free = [
            order[i]
            for order in turns.values()
            for i in range(len(order))
            if order[i] not in done
            and sum(t not in done for t in order[:i]) < active
            and all(Turn(order[i].chunk, p) in done for p in range(order[i].phase))
            and order[i].chunk in started
        ]
        assert free
        done.add(random.choice(free))


def test_smaller_chunks_overtake_those_that_wait() -> None:
    jobs = {
        c: [Job(0, 0, size, 1, True), Job(1, 1, 1, 1, True)] for c, size in enumerate((5, 9, 3))
    }
    fifo = play(jobs, 3, 1, WithinDimension.FIFO).turns[0]
    smallest = play(jobs, 3, 1, WithinDimension.SMALLEST_FIRST).turns[0]
    assert [turn.chunk for turn in fifo] == [0, 1, 2]
    assert [turn.chunk for turn in smallest] == [0, 2, 1]


@pytest.mark.parametrize(
    ("schedule", "key"),
    [
        ({"chunks": 0}, "chunks"),
        ({"in_flight": -1}, "in_flight"),
        ({"order": CollectiveOrder.LIFO}, "order"),
        ({"order": CollectiveOrder.LIFO, "in_flight": 2, "active_per_dimension": 1}, "order"),
        ({"in_flight": 2, "priority": 1}, "priority"),
        ({"dimension_rates": (0, 1)}, "dimension_rates"),
    ],
)
def test_wrong_schedules_are_refused(schedule: dict[str, object], key: str) -> None:
    with pytest.raises(DoesNotFit) as refused:
        Chunking(**schedule)  # type: ignore[arg-type]
    assert refused.value.key == key


def test_themis_needs_dimensions() -> None:
    schedule = Chunking(chunks=4, dimension_order=DimensionOrder.THEMIS)
    with pytest.raises(DoesNotFit, match="hierarchical"):
        cut(Shape(Kind.ALL_REDUCE, 1 << 20, 8, 4), algorithm("ring"), schedule)
    rates = Chunking(dimension_rates=(1, 2, 3))
    with pytest.raises(DoesNotFit, match="2 dimensions"):
        cut(Shape(Kind.ALL_REDUCE, 1 << 20, 8, 4), hierarchical(2, 4), rates)
