"""Collectives from captures alone: what the ranks logged beside them is found again."""

from __future__ import annotations

from ipaddress import IPv4Address
from pathlib import Path

import pytest

from analysis.decode.found_collectives import on_wire
from analysis.decode.gloo.collectives_on_wire import WireCollective
from analysis.decode.gloo.groups_on_wire import WireGroup
from analysis.decode.tcp.pcap import read_pcap
from tests.decode.recorded_log import Log, read_log

# record.py notes the time of this one when it waits for it.
_POSTED_BEFORE_LOGGED = "default.9.all_reduce"


def _found(directory: Path) -> tuple[Log, list[WireGroup], list[WireCollective]]:
    log = read_log(directory)
    files = [read_pcap(path) for path in sorted(directory.glob("*.pcap"))]
    rank_at = {int(IPv4Address(address)): rank for rank, address in log.addresses.items()}
    captured = {
        rank: frozenset(n for n, file in enumerate(files) if file.path.stem == f"h{rank}-eth0")
        for rank in log.addresses
    }
    shown = on_wire(files, rank_at, captured)
    return log, shown.groups, shown.collectives


@pytest.mark.parametrize("recorded", ["three_ranks", "two_ranks_shaped"])
def test_kinds_sizes_ranks_and_roots_are_those_of_the_log(
    recorded: str, request: pytest.FixtureRequest
) -> None:
    log, groups, found = _found(request.getfixturevalue(recorded))
    members = {group.name: group.ranks for group in groups}
    assert members["default"] == tuple(sorted(log.addresses))
    logged = {  # a group of one has nobody to send to
        (c.ranks, c.tag, c.kind.replace("reduce_scatter", "all_reduce"), c.size_bytes)
        for c in log.collectives
        if c.tag is not None and len(c.ranks) > 1
    }
    assert {(c.ranks, c.tag, c.kind, c.size_bytes) for c in found if c.tag is not None} == logged


def test_nothing_is_seen_before_it_was_posted(three_ranks: Path) -> None:
    """A packet leaves after its rank has posted the collective that it is of."""
    log, groups, found = _found(three_ranks)
    counted = [c for c in log.collectives if c.tag is not None and len(c.ranks) > 1]
    logged_groups = dict.fromkeys((c.ranks, c.group) for c in counted)
    assert sorted(ranks for ranks, _ in logged_groups) == sorted(g.ranks for g in groups)
    name_of: dict[str, str] = {}  # of several groups of the same ranks, the first is the first
    for ranks in {group.ranks for group in groups}:
        on_the_wire = [group.name for group in groups if group.ranks == ranks]
        in_the_log = [name for members, name in logged_groups if members == ranks]
        name_of |= dict(zip(on_the_wire, in_the_log, strict=True))
    posted = {(c.group, c.tag): c.intervals_ns for c in counted}
    compared = 0
    for each in found:
        for rank, (start_ns, end_ns) in each.intervals_ns.items():
            assert start_ns <= end_ns
            if each.tag is not None and each.id != _POSTED_BEFORE_LOGGED:
                logged_ns = posted[name_of[each.group], each.tag][rank][0] + log.clock_offset_ns
                assert start_ns >= logged_ns
                compared += 1
    assert compared > 20
