"""Which collectives OpenMPI's messages are: by the algorithms of its release 4.1."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from analysis.decode.mpi.collectives import mpi_collectives
from analysis.decode.mpi.exchanges import (
    INTERLEAVED,
    PAUSED,
    exchanges_of_messages,
    unpredicted,
)
from analysis.decode.mpi.messages import kind_of_tag
from analysis.decode.mpi.records import lines_of
from analysis.predict.interface import Setting
from analysis.predict.models.flow import Flow
from analysis.runs.mpi_messages import MpiMessage, of_ranks
from collectives.call import CollectiveCall
from collectives.schedule.observed import ObservedSchedule, SeenMessage
from topologies.spec.spec import parse_spec

_TAGS = {kind_of_tag(tag): tag for tag in range(-26, -9)}
Sent = tuple[int, int, int]
"""Source, destination and bytes of a message."""


class _Wire:
    """Messages that follow each other, each 1,000 ns after those that it waits for."""

    def __init__(self) -> None:
        self.messages: list[MpiMessage] = []
        self._now: dict[int, int] = {}
        self._numbers: dict[tuple[int, int], int] = {}

    def add(self, kind: str, steps: Iterable[Iterable[Sent]]) -> None:
        """Add each step's messages: ranks send them when they have those that came to them in the
        step before."""
        tag = _TAGS.get(kind, 7)
        for step in steps:
            come: dict[int, int] = {}
            for source, destination, size in step:
                pair = source, destination
                self._numbers[pair] = self._numbers.get(pair, 0) + 1
                at = self._now[source] = self._now.get(source, 0) + 10
                ends = at, at + 5, at + 1_000
                number = self._numbers[pair]
                self.messages.append(
                    MpiMessage(0, *pair, tag, kind_of_tag(tag), number, size, *ends)
                )
                come[destination] = max(come.get(destination, 0), at + 1_000)
            for rank, at in come.items():
                self._now[rank] = max(self._now.get(rank, 0), at)

    def found(self) -> list[tuple[str, int, int]]:
        """(kind, size, root) of each; nothing is left."""
        found, left = mpi_collectives(self.messages)
        assert not left
        assert sum(len(one.messages) for one in found) == len(self.messages)
        return [(str(one.kind), one.size_bytes, one.root) for one in found]


def _exchange(ranks: int, distance: int, size: int) -> list[Sent]:
    return [(rank, rank ^ distance, size) for rank in range(ranks)]


def _doubling(size: int) -> list[list[Sent]]:
    return [_exchange(4, 1, size), _exchange(4, 2, size)]


def _halving(size: int) -> list[list[Sent]]:
    there = [_exchange(4, 1, size // 2), _exchange(4, 2, size // 4)]
    return [*there, *there[::-1]]


def _ring(ranks: int, size: int, steps: int) -> list[list[Sent]]:
    return [[(r, (r + 1) % ranks, size // ranks) for r in range(ranks)] for _ in range(steps)]


def _direct(ranks: int, size: int) -> list[list[Sent]]:
    return [[(a, b, size // ranks) for a in range(ranks) for b in range(ranks) if a != b]]


_BARRIER = [[(rank, 0, 0) for rank in (1, 2, 3)], [(0, rank, 0) for rank in (1, 2, 3)]]


def test_collectives_of_one_kind_that_follow_each_other_are_told_apart() -> None:
    wire = _Wire()
    wire.add("barrier", _BARRIER)
    for steps in (_doubling(8), _doubling(1024), _halving(65536), _halving(1 << 20)):
        wire.add("all_reduce", steps)
    wire.add("barrier", _BARRIER)
    wire.add("barrier", _BARRIER)
    assert wire.found() == [
        ("barrier", 0, 0),
        ("all_reduce", 8, 0),
        ("all_reduce", 1024, 0),
        ("all_reduce", 65536, 0),
        ("all_reduce", 1 << 20, 0),
        ("barrier", 0, 0),
        ("barrier", 0, 0),
    ]


def test_rings_and_whole_exchanges_are_known() -> None:
    wire = _Wire()
    wire.add("all_reduce", _ring(3, 30_000, 4))
    wire.add("all_reduce", _ring(3, 60_000, 4))
    wire.add("all_gather", _ring(3, 9_000, 2))
    wire.add("reduce_scatter", _ring(3, 900, 2))
    wire.add("all_to_all", _direct(3, 300))
    wire.add("all_to_all", _direct(3, 600))
    assert wire.found() == [
        ("all_reduce", 30_000, 0),
        ("all_reduce", 60_000, 0),
        ("all_gather", 9_000, 0),
        ("reduce_scatter", 900, 0),
        ("all_to_all", 300, 0),
        ("all_to_all", 600, 0),
    ]


def test_trees_have_roots() -> None:
    """A rank that only receives in one collective is soon in the next one."""
    wire = _Wire()
    wire.add("broadcast", [[(1, 3, 100)], [(1, 2, 100), (3, 0, 100)]])
    wire.add("all_gather", [_exchange(4, 1, 25), _exchange(4, 2, 50)])
    wire.add("broadcast", [[(1, 3, 64), (1, 2, 64)], [(2, 0, 64)]])
    wire.add("reduce", [[(1, 3, 100), (0, 2, 100)], [(3, 2, 100)]])
    wire.add("gather", [[(1, 0, 25), (3, 2, 25)], [(2, 0, 50)]])
    wire.add("scatter", [[(3, 1, 50), (3, 0, 25)], [(1, 2, 25)]])
    wire.add("reduce_scatter_block", [_exchange(4, 2, 64), _exchange(4, 1, 32)])
    assert wire.found() == [
        ("broadcast", 100, 1),
        ("all_gather", 100, 0),
        ("broadcast", 64, 1),
        ("reduce", 100, 2),
        ("gather", 100, 0),
        ("scatter", 100, 3),
        ("reduce_scatter", 128, 0),
    ]


def test_a_root_that_asks_for_parts_gets_each_in_two() -> None:
    wire = _Wire()
    for rank in (1, 2):
        wire.add("gather", [[(0, rank, 0)], [(rank, 0, 262_144)], [(rank, 0, 0)]])
    assert wire.found() == [("gather", 786_432, 0)]


def _two(*sizes: int) -> Iterator[list[Sent]]:
    for size in sizes:
        yield [(0, 1, size), (1, 0, size)]


@pytest.mark.parametrize(
    ("sizes", "found"),
    [
        ((1024, 1024), [1024, 1024]),
        ((4,), [4]),
        ((32_768, 32_768), [65_536]),
        ((524_288, 524_288), [1 << 20]),
        ((2048, 2048), None),  # or one of 4096, by a ring
        ((2048,), [2048]),
    ],
)
def test_what_two_ranks_reduce_follows_from_openmpis_choice(
    sizes: tuple[int, ...], found: list[int] | None
) -> None:
    wire = _Wire()
    wire.add("all_reduce", _two(*sizes))
    collectives, left = mpi_collectives(wire.messages)
    if found is None:
        assert not collectives and len(left) == 4
        rows, without = exchanges_of_messages(left)
        assert [row.id for row in rows] == ["default.exchange.0", "default.exchange.1"]
        assert all(row.ranks == (0, 1) and row.size_bytes == 2048 for row in rows) and not without
    else:
        assert [one.size_bytes for one in collectives] == found


def test_of_a_communicator_with_a_gap_nothing_is_told() -> None:
    wire = _Wire()
    wire.add("all_reduce", _doubling(8))
    wire.add("all_reduce", _doubling(8))
    found, left = mpi_collectives([m for m in wire.messages if (m.source, m.number) != (2, 1)])
    assert not found and len(left) == len(wire.messages) - 2


def _starts(lines: dict[int, list[dict[str, Any]]]) -> dict[int, tuple[int, int]]:
    return {rank: (own[0]["start_ns"], own[0]["end_ns"]) for rank, own in lines.items()}


def test_who_begins_by_receiving_is_there_from_the_first_message_on() -> None:
    wire = _Wire()
    wire.add("broadcast", [[(0, 1, 100)], [(1, 2, 100)]])
    found, _ = mpi_collectives(wire.messages)
    lines = lines_of(found, 3, {})
    assert _starts(lines) == {0: (10, 15), 1: (10, 1025), 2: (10, 2020)}
    assert all(own[0]["ranks"] is None for own in lines.values())


def test_a_message_of_a_program_is_a_row_of_its_own() -> None:
    wire = _Wire()
    wire.add("send_recv", [[(2, 1, 100)]])
    found, left = mpi_collectives(wire.messages)
    assert not found
    rows, _ = exchanges_of_messages(left)
    lines = lines_of(rows, 3, {})
    assert set(lines) == {1, 2}
    assert lines[1][0]["id"] == "default.2to1.7.0"
    assert lines[1][0]["ranks"] == [2, 1] and lines[1][0]["peer"] == 1


def _message(
    source: int, destination: int, sent_ns: int, come_ns: int, left_ns: int | None = None
) -> MpiMessage:
    left_ns = sent_ns + 5 if left_ns is None else left_ns
    return MpiMessage(
        0, source, destination, 7, "send_recv", 1, 100, sent_ns, left_ns, come_ns
    )  # fmt: skip


_PORT_NS = dict.fromkeys(range(4), 20)


def test_messages_that_are_under_way_at_one_time_are_an_exchange() -> None:
    window = [_message(0, 1, at, 1_000 + at) for at in (0, 10, 20)]
    answer = _message(1, 0, 1_020, 2_020)
    others = [_message(2, 3, 0, 5_000)]
    rows, _ = exchanges_of_messages([*window, answer, *others])
    assert [(row.id, row.ranks, len(row.messages)) for row in rows] == [
        ("default.exchange.0", (0, 1), 3),
        ("default.2to3.7.0", (2, 3), 1),
        ("default.1to0.7.0", (1, 0), 1),
    ]
    assert unpredicted(rows, _PORT_NS) == {}
    lines = lines_of(rows, 4, {})
    assert [(line["kind"], line["start_ns"], line["end_ns"]) for line in lines[1]] == [
        ("exchange", 0, 1_020), ("send_recv", 1_020, 1_025),
    ]  # fmt: skip


def test_an_exchange_in_which_a_rank_pauses_is_not_predicted() -> None:
    pausing = [_message(0, 1, 0, 1_000), _message(0, 1, 500, 1_500)]
    rows, _ = exchanges_of_messages(pausing)
    assert unpredicted(rows, _PORT_NS) == {"default.exchange.0": PAUSED}
    assert lines_of(rows, 2, unpredicted(rows, _PORT_NS))[0][0]["unpredicted"] == PAUSED
    at_the_port = [_message(0, 1, 0, 1_000, left_ns=490), _message(0, 1, 500, 1_500)]
    answered = [_message(0, 1, 0, 1_000), _message(2, 0, 0, 500), _message(0, 1, 500, 1_500)]
    for explained in (at_the_port, answered):
        rows, _ = exchanges_of_messages(explained)
        assert len(rows) == 1 and unpredicted(rows, _PORT_NS) == {}


def test_a_collective_between_a_posted_message_and_its_coming_is_not_predicted() -> None:
    wire = _Wire()
    wire.add("all_reduce", _doubling(8))
    collectives, _ = mpi_collectives(wire.messages)
    around, _ = exchanges_of_messages([_message(0, 3, 5, 400), _message(3, 0, 5, 5_000)])
    found = unpredicted([*collectives, *around], _PORT_NS)
    assert found == dict.fromkeys(("default.0.all_reduce", "default.exchange.0"), INTERLEAVED)


def test_a_rank_that_begins_by_receiving_comes_when_it_is_through_with_what_was_before() -> None:
    before, after = _message(1, 2, 900, 1_900), _message(0, 1, 0, 1_500)
    rows, _ = exchanges_of_messages([before])
    (late,), _ = exchanges_of_messages([after])
    lines = lines_of([*rows, late], 3, {})
    assert [line["start_ns"] for line in lines[1]] == [0 + 900, 900]


def _setting() -> Setting:
    spec = parse_spec(
        "name: m\nfabric: {kind: flat, hosts: 4, link: {rate: 100Gbps, delay: 500ns, mtu: 9000}}\n"
        "workload: {kind: collectives, ranks: 4, operations: [{kind: barrier}]}\n"
    )
    return Setting(spec.plan.fabric, spec.plan.routes, spec.plan.hosts)


def _call(kind: str, size: int, exchange: ObservedSchedule) -> CollectiveCall:
    return CollectiveCall(kind, size, (0, 1, 2, 3), schedule=exchange)


def test_flow_follows_messages_as_they_were_seen() -> None:
    """8 bytes of a message take 2 x (66 + 24 + 30) bytes' time and 1 us; what is long is announced
    first, there and back."""
    wire = _Wire()
    wire.add("all_reduce", _doubling(8))
    found, _ = mpi_collectives(wire.messages)
    one_way = 1_000 + 2 * 8 * (90 + 22 + 8) / 100
    alone = Flow().predict(
        _setting(), _call("all_reduce", 8, of_ranks(found[0].messages, range(4)))
    )
    assert alone == pytest.approx(2 * one_way, abs=15)
    size = 1 << 20
    long = ObservedSchedule.of([SeenMessage(0, 1, size, 0, 1)], 4, 65_520, 22)
    took = Flow().predict(_setting(), _call("broadcast", size, long))
    data = size * 8 / 100 * 9038 / 8948
    assert took == pytest.approx(data + 3 * one_way, rel=0.01)


@pytest.mark.parametrize("size", [1_000, 16_000, 60_000])
def test_what_waited_for_the_port_alone_is_predicted_so(size: int) -> None:
    """An all-to-all whose ranks post everything at once: messages leave one behind the other, the
    later ones after others have come. Each port is busy with three, and the last one has a way."""
    frames = -(-(size + 22) // 8948)
    one = (size + 22 + 90 * frames) * 8 / 100
    seen = []
    for rank in range(4):
        for place in range(3):
            sent, left = round(place * one), round((place + 1) * one)
            come = left + 1_000 + round(one / frames)
            seen.append(SeenMessage(rank, (rank + place + 1) % 4, size, sent, come, left))
    told = ObservedSchedule.of(seen, 4, 65_520, 22, [2 * 8 * 9038 // 100] * 4)
    assert all(acts[:3] == tuple(sorted(acts[:3])) and acts[0] >= 0 for acts in told.acts)
    assert all(act < 0 for acts in told.acts for act in acts[3:])
    took = Flow().predict(_setting(), _call("all_to_all", 4 * size, told))
    assert took == pytest.approx(3 * one + 1_000 + one / frames, rel=0.05)


def test_what_left_a_free_port_waited_for_what_had_come() -> None:
    seen = [
        SeenMessage(0, 1, 8, 0, 1_010, 0),
        SeenMessage(1, 0, 8, 0, 1_010, 0),
        SeenMessage(0, 2, 8, 3_000, 4_010, 3_000),
    ]
    assert ObservedSchedule.of(seen, 3, 65_520, 22, [1_446] * 3).acts[0] == (0, -2, 2)
