"""The table of kinds: what it must move, told by an independent count of who needs what."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectives.kinds import (
    TABLE,
    Kind,
    Shape,
    SizeOf,
    bus_factor,
    least_crossing_share,
    least_received_bytes,
    least_sent_bytes,
    least_total_bytes,
    rounded_elements,
    step_bytes,
)


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    ranks = draw(st.integers(2, 24))
    root = draw(st.integers(0, ranks - 1))
    return Shape(
        draw(st.sampled_from(Kind)),
        draw(st.integers(1, 50)) * 4 * ranks,
        ranks,
        element_bytes=4,
        root=root,
        degree=draw(st.none() | st.integers(1, ranks - 1)),
        peer=(root + draw(st.integers(1, ranks - 1))) % ranks,
        shift=draw(st.none() | st.integers(1, ranks - 1)),
    )


def test_every_kind_has_a_row() -> None:
    assert set(TABLE) == set(Kind)
    assert all(row.kind is kind and kind.traits is row for kind, row in TABLE.items())


def test_a_kind_is_its_name() -> None:
    assert Kind("all_reduce") is Kind.ALL_REDUCE
    assert Kind.ALL_REDUCE == "all_reduce"  # type: ignore[comparison-overlap]
    assert f"{Kind.ALL_REDUCE}" == "all_reduce"


@pytest.mark.parametrize(
    ("kind", "factor"),
    [
        (Kind.ALL_REDUCE, 14 / 8),
        (Kind.ALL_GATHER, 7 / 8),
        (Kind.REDUCE_SCATTER, 7 / 8),
        (Kind.ALL_TO_ALL, 7 / 8),
        (Kind.BROADCAST, 1.0),
        (Kind.REDUCE, 1.0),
    ],
)
def test_bus_factors_are_those_of_nccl_tests(kind: Kind, factor: float) -> None:
    assert bus_factor(kind, 8) == factor


@given(shapes())
def test_members_together_receive_and_send_no_less_than_the_total(shape: Shape) -> None:
    members = range(shape.ranks)
    total = least_total_bytes(shape)
    received = sum(least_received_bytes(shape, member) for member in members)
    sent = sum(least_sent_bytes(shape, member) for member in members)
    assert received <= total
    assert sent <= total or shape.kind is Kind.BARRIER
    if not shape.kind.traits.reduces and shape.kind not in (Kind.BROADCAST, Kind.ALL_GATHER):
        assert sent == received == total  # nobody can combine or relay to save


@given(shapes())
def test_bus_bandwidth_is_that_of_the_busiest_rank(shape: Shape) -> None:
    """busbw is defined so that an optimal algorithm shows the rate of a rank's link: the mean rank
    of kinds without root, the root of the others."""
    moved = bus_factor(shape.kind, shape.ranks) * shape.size_bytes
    if shape.kind in (Kind.BARRIER, Kind.INCAST, Kind.SEND_RECV, Kind.EXCHANGE):
        return  # no payload; nccl-tests' factor is of the message
    if shape.kind.traits.rooted:
        busiest: float = max(
            max(least_received_bytes(shape, m), least_sent_bytes(shape, m))
            for m in range(shape.ranks)
        )
    else:
        busiest = least_total_bytes(shape) / shape.ranks
    assert moved == pytest.approx(busiest)


@given(shapes())
def test_a_cut_is_crossed_by_no_more_than_must_be_sent(shape: Shape) -> None:
    for lower in range(1, shape.ranks):
        crossing = least_crossing_share(shape.kind, lower, shape.ranks) * shape.size_bytes
        assert crossing <= least_total_bytes(shape)
    whole = least_crossing_share(shape.kind, shape.ranks, shape.ranks)
    assert whole == least_crossing_share(shape.kind, 0, shape.ranks) == Fraction(0)


@given(shapes(), st.integers(0, 10_000))
def test_rounding_gives_a_size_that_is_accepted(shape: Shape, size_bytes: int) -> None:
    kind, ranks = shape.kind, shape.ranks
    elements = rounded_elements(kind, size_bytes, ranks, 4)
    assert elements * 4 % step_bytes(kind, ranks, 4) == 0
    if kind is Kind.BARRIER:
        assert elements == 0
    else:
        assert elements >= 1
        assert elements * 4 <= max(size_bytes, step_bytes(kind, ranks, 4))


def test_one_rank_alone_moves_nothing() -> None:
    for kind in Kind:
        shape = Shape(kind, 64, 1, peer=0, shift=0)
        assert least_received_bytes(shape, 0) == least_sent_bytes(shape, 0) == 0


def test_shards_are_whole_elements() -> None:
    shape = Shape(Kind.ALL_GATHER, 103, 3, element_bytes=4)
    assert (shape.whole_bytes, shape.shard_bytes) == (100, 32)


def test_a_root_is_an_option_of_what_has_one() -> None:
    for kind, row in TABLE.items():
        assert not row.rooted or "root" in row.options, kind
        assert row.splits == (row.size_of in (SizeOf.WHOLE, SizeOf.SENT)), kind
