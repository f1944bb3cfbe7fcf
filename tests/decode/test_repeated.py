"""Libraries that use a slot again: what they did is told apart, and nothing is merged."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.decode.attribution import attribute
from analysis.decode.found_collectives import on_wire
from analysis.decode.gloo.collectives_on_wire import WireCollective
from analysis.decode.gloo.connection_groups import LoggedCollective, LoggedConnection
from analysis.decode.gloo.groups_on_wire import WireGroup
from analysis.decode.gloo.repeated import cut_by_shape
from analysis.decode.gloo.rounds import exchanges_of
from analysis.decode.gloo.wire_messages import WireMessage
from analysis.decode.tcp.pcap import read_pcap
from collectives.call import CollectiveCall
from collectives.kinds import Kind
from collectives.schedule.halving_doubling import reduce_scatter

_ROUND_NS = 1_000


@pytest.fixture(scope="module")
def of_jax(jax_four_ranks: Path) -> tuple[list[WireGroup], list[WireCollective]]:
    files = [read_pcap(path) for path in sorted(jax_four_ranks.glob("*.pcap"))]
    first = (10 << 24) + 2
    captured = {rank: frozenset({rank}) for rank in range(4)}
    shown = on_wire(files, {first + rank: rank for rank in range(4)}, captured)
    assert sum(c.stream_bytes for c in shown.collectives) >= 0.999 * shown.gloo_bytes
    return shown.groups, shown.collectives


def test_each_operation_of_jax_has_a_row(
    of_jax: tuple[list[WireGroup], list[WireCollective]],
) -> None:
    """As it was recorded: all ranks' operations, and those of a mesh of 2 by 2."""
    groups, found = of_jax
    world = (0, 1, 2, 3)
    assert {group.ranks for group in groups} == {world, (0, 1), (2, 3), (0, 2), (1, 3)}
    assert all(len(g.connections) == len(g.ranks) * (len(g.ranks) - 1) // 2 for g in groups)
    wanted: Counter[tuple[Kind, int, tuple[int, ...]]] = Counter(
        {
            (Kind.ALL_REDUCE, 16_384, world): 3,
            (Kind.ALL_REDUCE, 4, world): 2,
            (Kind.ALL_GATHER, 65_536, world): 2,
            (Kind.ALL_TO_ALL, 16_384, world): 3,
            (Kind.EXCHANGE, 16_384, world): 4,
            (Kind.REDUCE_SCATTER, 65_536, world): 2,
        }
    )
    for axis in ((0, 1), (2, 3), (0, 2), (1, 3)):
        wanted[Kind.ALL_REDUCE, 16_384, axis] = 2
    assert Counter((c.kind, c.size_bytes, c.ranks) for c in found) == wanted
    assert len({c.id for c in found}) == len(found)


def test_an_exchange_has_its_messages(
    of_jax: tuple[list[WireGroup], list[WireCollective]],
) -> None:
    """Two rings, and two chains that do not go round."""
    ring = {(0, 1, 16_384), (1, 2, 16_384), (2, 3, 16_384), (3, 0, 16_384)}
    chain = ring - {(3, 0, 16_384)}
    exchanges = [set(c.exchanged) for c in of_jax[1] if c.kind is Kind.EXCHANGE]
    assert exchanges == [ring, ring, chain, chain]


def test_a_rank_is_in_one_operation_of_a_group_at_a_time(
    of_jax: tuple[list[WireGroup], list[WireCollective]],
) -> None:
    for rank in range(4):
        own = sorted(
            c.intervals_ns[rank]
            for c in of_jax[1]
            if c.group == "default" and rank in c.intervals_ns and c.kind is not Kind.EXCHANGE
        )
        assert all(a[0] <= a[1] <= b[0] for a, b in pairwise(own))


def test_bytes_are_attributed_to_the_rows_that_were_found(
    jax_four_ranks: Path, of_jax: tuple[list[WireGroup], list[WireCollective]]
) -> None:
    groups, found = of_jax
    logged = [
        LoggedCollective(
            c.id, c.kind, c.group, c.tag, c.size_bytes, 0, "", c.ranks, shares=c.shares
        )
        for c in found
    ]
    placed = []
    for group in groups:
        for initiator, responder, connection, _ in group.connections:
            ends = connection.forward.source, connection.forward.destination
            first, second = ((end.address, end.port) for end in ends)
            placed.append(LoggedConnection(group.name, (initiator, responder), (first, second)))
    files = [read_pcap(path) for path in sorted(jax_four_ranks.glob("*.pcap"))]
    addresses = {rank: f"10.0.0.{2 + rank}" for rank in range(4)}
    told = attribute(files, logged, addresses, logged_connections=placed)
    assert told.unlogged_bytes == 0
    carried = {row.collective.id: row for row in told.by_collective() if row.collective}
    assert carried.keys() == {c.id for c in found}
    ring = [row for row in carried.values() if row.kind == "all_gather"]
    assert [row.data_bytes for row in ring] == [3 * 65_536] * 2


def _played(calls: list[CollectiveCall]) -> list[WireMessage]:
    """Messages of calls one after another: of each, everything comes before the next begins, and of
    an all-reduce what is summed before sums. Two of a ring's are under way at a time; in a tree a
    rank sends on what it has received."""
    found = []
    number: Counter[tuple[int, int]] = Counter()
    now_ns = 0
    for call in calls:
        posts = list(call.posts())
        for at, post in enumerate(posts):
            first = len(posts) // 2 if at >= len(posts) // 2 and call.kind is Kind.ALL_REDUCE else 0
            tree = call.kind in (Kind.BROADCAST, Kind.BARRIER)
            sent_ns = now_ns + (at if tree else max(first, at - 1)) * _ROUND_NS
            come_ns = now_ns + (at + 1) * _ROUND_NS - 10
            times = (sent_ns, sent_ns, sent_ns, come_ns - 10, come_ns)
            ends = zip(post.source.tolist(), post.destination.tolist(), strict=True)
            for pair, size in zip(ends, post.size_bytes.tolist(), strict=True):
                found.append(WireMessage(*pair, 0, number[pair], False, size, *times))
                number[pair] += 1
        now_ns += (len(posts) + 2) * _ROUND_NS
    return found


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([Kind.ALL_REDUCE, Kind.ALL_GATHER, Kind.ALL_TO_ALL, Kind.BARRIER]),
    st.integers(2, 6),
    st.lists(st.integers(1, 30) | st.integers(1, 3_000_000), min_size=1, max_size=5),
)
def test_collectives_in_a_row_are_told_apart(kind: Kind, world: int, elements: list[int]) -> None:
    ranks = tuple(range(world))
    step = 4 * world if kind.traits.splits else 4
    sizes = [0 if kind is Kind.BARRIER else step * max(1, n // world) for n in elements]
    messages = _played([CollectiveCall(kind, size, ranks) for size in sizes])
    cuts = cut_by_shape(kind, ranks, messages)
    assert cuts is not None
    assert [call.size_bytes for call, _ in cuts] == sizes
    assert sum(len(own) for _, own in cuts) == len(messages)


@given(
    st.sampled_from([Kind.BROADCAST, Kind.GATHER, Kind.SCATTER]),
    st.integers(2, 6),
    st.lists(st.tuples(st.integers(1, 100_000), st.integers(0, 5)), min_size=1, max_size=5),
)
def test_roots_of_collectives_in_a_row_are_found(
    kind: Kind, world: int, wanted: list[tuple[int, int]]
) -> None:
    ranks = tuple(range(world))
    calls = [CollectiveCall(kind, 8 * world * n, ranks, 8, root % world) for n, root in wanted]
    cuts = cut_by_shape(kind, ranks, _played(calls))
    assert cuts is not None
    assert [(c.size_bytes, c.root) for c, _ in cuts] == [(c.size_bytes, c.root) for c in calls]


def test_one_of_many_segments_is_not_two_of_half_as_many() -> None:
    """16 MiB over 4 ranks are 16 segments of 1 MiB, and so are two times 8 MiB."""
    ranks = (0, 1, 2, 3)
    for sizes in ([16 << 20], [8 << 20, 8 << 20], [8 << 20, 16 << 20, 8 << 20]):
        messages = _played([CollectiveCall(Kind.ALL_REDUCE, size, ranks) for size in sizes])
        cuts = cut_by_shape(Kind.ALL_REDUCE, ranks, messages)
        assert cuts is not None
        assert [call.size_bytes for call, _ in cuts] == sizes


def test_what_fits_no_schedule_is_not_cut() -> None:
    messages = _played([CollectiveCall(Kind.ALL_REDUCE, 4_096, (0, 1, 2))])
    assert cut_by_shape(Kind.ALL_REDUCE, (0, 1, 2), messages[:-1]) is None


@given(
    st.lists(
        st.permutations(range(5)).map(
            lambda order: [(a, b) for a, b in enumerate(order) if a != b]
        ),
        min_size=1,
        max_size=6,
    )
)
def test_permutations_in_a_row_are_told_apart(permutations: list[list[tuple[int, int]]]) -> None:
    """Each rank goes on when all have what is theirs. A permutation with nothing to send is
    none."""
    wanted = [pairs for pairs in permutations if len(pairs) == 5]
    number: Counter[tuple[int, int]] = Counter()
    messages = []
    for at, pairs in enumerate(wanted):
        now = at * 10_000
        for pair in pairs:
            times = (now + 1, now + 2, now + 100, now + 5_000, now + 5_100)
            messages.append(WireMessage(*pair, 1 << 62, number[pair], False, 64, *times))
            number[pair] += 1
    found = exchanges_of(messages)
    assert [sorted((m.source, m.destination) for m in one) for one in found] == [
        sorted(pairs) for pairs in wanted
    ]


@given(st.integers(2, 17), st.integers(1, 40), st.sampled_from([1, 2, 4, 8]))
def test_a_reduce_scatter_by_halving_gives_each_rank_its_part(
    world: int, part: int, element: int
) -> None:
    """All that is sent is received, and each rank but those that keep theirs gets its part."""
    size = world * part * element
    told = reduce_scatter(size, world, element)
    sends = sorted(act for acts in told.acts for act in acts if act >= 0)
    comes = sorted(~act for acts in told.acts for act in acts if act < 0)
    assert sends == comes == list(range(len(told.messages)))
    into: Counter[int] = Counter()
    for _, destination, size_bytes in told.messages:
        into[destination] += size_bytes
    assert all(into[rank] >= part * element for rank in range(world))
    # Every summand but one of each element travels (Patarasuk and Yuan 2009, section 3).
    assert sum(into.values()) >= (world - 1) * part * element * world
