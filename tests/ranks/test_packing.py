"""Ranks are packed by themselves where nothing can tell."""

from __future__ import annotations

from typing import Any

import pytest

from emulator.ranks.packing import ranks_per_process
from topologies.spec.spec import parse_dict

_STAR: dict[str, Any] = {"kind": "flat", "hosts": 16}
_FAULT = {"kind": "loss", "link": "h0-s0", "at": "1ms", "value": "0.1%"}


def _per_process(fabric: dict[str, Any] | None = None, ranks: int = 16, **sections: Any) -> int:
    operations = [{"kind": "all_reduce", "size": "1MB"}]
    workload = {"kind": "collectives", "ranks": ranks, "operations": operations}
    sections = {"workload": workload} | sections
    return ranks_per_process(parse_dict({"name": "n", "fabric": fabric or _STAR, **sections}))


def test_ranks_around_one_switch_are_packed_when_they_are_many() -> None:
    assert _per_process() == 16
    assert _per_process(_STAR | {"queue": {"kind": "dctcp", "k": "60KB"}}) == 16
    assert _per_process(ranks=15) == 1


def test_a_process_has_room_for_the_queue_pairs_of_its_ranks() -> None:
    """Those of 128 ranks in one were more mappings than a host allows it."""
    over_roce = {
        "fabric": _STAR | {"hosts": 128, "link": {"mtu": 4300}},
        "transport": {"kind": "roce", "path_mtu": 4096},
        "collectives": {"backend": "programs", "all_reduce": {"algorithm": "ring"}},
    }
    assert _per_process(ranks=128, **over_roce) == 16
    assert _per_process(ranks=32, **over_roce) == 32


@pytest.mark.parametrize(
    "different",
    [
        {"fabric": {"kind": "fat-tree", "k": 4}},
        {"fabric": _STAR | {"queue": {"kind": "fq_codel"}}},
        {"fabric": _STAR | {"queue": {"kind": "lossless"}}},
        {"transport": {"congestion_control": "bbr"}},
        {"faults": [_FAULT]},
        {"workload": {"kind": "command", "argv": ["true"], "ranks": 16}},
    ],
    ids=["paths", "hashed flows", "pauses", "bbr", "faults", "programs"],
)
def test_what_random_numbers_or_ports_could_decide_is_not_packed(
    different: dict[str, Any],
) -> None:
    assert _per_process(**different) == 1


def test_many_ranks_are_packed_on_every_fabric() -> None:
    assert _per_process({"kind": "fat-tree", "k": 8}, ranks=63) == 1
    assert _per_process({"kind": "fat-tree", "k": 8}, ranks=64) == 64
    assert _per_process({"kind": "flat", "hosts": 2048}, ranks=2048) == 1024


def test_a_process_has_no_more_threads_than_it_has_room_for() -> None:
    programs = {"backend": "programs", "chunks": 128, "in_flight": 64}
    star = {"kind": "flat", "hosts": 64}
    assert _per_process(star, ranks=64, collectives=programs) == 4096 // (4 + 3 * 64)
    several = {"backend": "programs", "all_reduce": {"algorithm": "ring", "chunks": 4096}}
    assert _per_process(star, ranks=64, collectives=several) == 1


def test_what_the_spec_says_holds() -> None:
    assert _per_process(virtual={"ranks_per_process": 1}) == 1
    assert _per_process({"kind": "fat-tree", "k": 4}, virtual={"ranks_per_process": 5}) == 5
