"""Placement: one host per rank, always the same for the same seed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.topologies.fabric_strategies import any_fabric, fabric_of
from topologies.fabrics.placement import place


@settings(max_examples=60, deadline=None)
@given(any_fabric, st.sampled_from(["linear", "random", "strided"]), st.integers(0, 9), st.data())
def test_ranks_get_distinct_hosts(
    raw: dict[str, Any], policy: str, seed: int, data: st.DataObject
) -> None:
    fabric = fabric_of(raw)
    ranks = data.draw(st.integers(1, len(fabric.hosts)))
    hosts = place(policy, fabric, ranks, seed)
    assert len(set(hosts)) == ranks == len(hosts)
    assert set(hosts) <= {host.name for host in fabric.hosts}
    assert hosts == place(policy, fabric, ranks, seed)
    assert hosts == place(dict(enumerate(hosts)), fabric, ranks, seed)


def test_policies() -> None:
    fabric = fabric_of({"kind": "fat-tree", "k": 4})
    assert place("linear", fabric, 3, 1) == ("h0", "h1", "h2")
    strided = place("strided", fabric, 16, 1)
    assert [fabric.by_name[h].coordinates[0] for h in strided[:4]] == [0, 1, 2, 3]
    assert place("random", fabric, 16, 1) != place("random", fabric, 16, 2)


def test_a_random_placement_is_the_same_on_every_machine() -> None:
    fabric = fabric_of({"kind": "flat", "hosts": 8})
    assert place("random", fabric, 8, 1) == RANDOM_OF_SEED_1


RANDOM_OF_SEED_1 = ("h6", "h1", "h5", "h0", "h7", "h4", "h2", "h3")
"""Hosts in order of sha256("1/<name>"), by the sha256sum program."""


@pytest.mark.parametrize(
    ("placement", "ranks", "reason"),
    [
        ("linear", 5, "5 ranks need 5 hosts, the fabric has 4"),
        ("round-robin", 2, "unknown placement 'round-robin'"),
        ({0: "h0"}, 2, "rank 1 has no host"),
        ({0: "h0", 1: "h9"}, 2, "rank 1 has no host"),
        ({0: "h0", 1: "s0"}, 2, "rank 1 has no host"),
        ({0: "h0", 1: "h0"}, 2, "at most one rank"),
    ],
)
def test_impossible_placements(placement: Any, ranks: int, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        place(placement, fabric_of({"kind": "flat", "hosts": 4}), ranks, 1)
