"""Tables of buckets, as property tests; tests/native holds them against a kernel."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.topologies.fabric_strategies import fabric_of
from topologies.fabrics.fabric import Fabric
from topologies.routing.buckets import Shares, UnknownBuckets, filled, replaced, wanted
from topologies.routing.ecmp_hash import FiveTuple, flow_path
from topologies.routing.routes import compute_routes

groups = st.dictionaries(st.integers(0, 40), st.integers(1, 256), min_size=1, max_size=16).map(
    lambda weights: tuple(sorted(weights.items()))
)
sizes = st.integers(1, 300)


@given(groups, sizes)
def test_a_new_group_has_its_shares_in_turn_from_the_last_hop_on(shares: Shares, size: int) -> None:
    buckets = filled(shares, size)
    total = sum(weight for _, weight in shares)
    counts = Counter(buckets)
    for hop, weight in shares:
        # Two bounds are rounded, each by at most a half.
        assert abs(counts[hop] - Fraction(size * weight, total)) <= 1
    assert list(buckets) == sorted(buckets, reverse=True)


@given(groups, st.lists(groups, min_size=1, max_size=5), sizes)
def test_no_more_buckets_move_than_have_to(first: Shares, later: list[Shares], size: int) -> None:
    """A next hop that stays loses what it has beyond its share, and nothing else."""
    buckets = filled(first, size)
    for shares in later:
        before, had = buckets, Counter(buckets)
        buckets = replaced(before, shares, moves_idle=True)
        wants = wanted(shares, size)
        assert Counter(buckets) == Counter({hop: n for hop, n in wants.items() if n})
        moved = Counter(was for was, now in zip(before, buckets, strict=True) if was != now)
        for hop, count in had.items():
            assert moved[hop] == max(0, count - wants.get(hop, 0))


@given(st.integers(2, 12), st.data())
def test_those_of_a_hop_that_is_gone_move_alone(hops: int, data: st.DataObject) -> None:
    """With equal weights and enough buckets for rounding to give each that is left no less."""
    shares = tuple((hop, 1) for hop in range(hops))
    gone = data.draw(st.integers(0, hops - 1))
    before = filled(shares, 2 * hops * hops)
    left = tuple(each for each in shares if each[0] != gone)
    for moves_idle in (True, False):
        after = replaced(before, left, moves_idle=moves_idle)
        assert all(now == was for was, now in zip(before, after, strict=True) if was != gone)


@given(st.integers(2, 12))
def test_without_idle_buckets_nobody_knows_which_go_to_one_that_comes(hops: int) -> None:
    before = filled(tuple((hop, 1) for hop in range(hops)), 128)
    more = tuple((hop, 1) for hop in range(hops + 1))
    with pytest.raises(UnknownBuckets, match="in use"):
        replaced(before, more, moves_idle=False)


@given(groups, sizes)
def test_a_group_of_nobody_has_none(shares: Shares, size: int) -> None:
    with pytest.raises(ValueError, match="no next hop"):
        filled((), size)
    with pytest.raises(ValueError, match="no next hop"):
        replaced(filled(shares, size), (), moves_idle=True)


def _fabric(**routing: object) -> Fabric:
    return fabric_of(
        {
            "kind": "leaf-spine",
            "leaves": 3,
            "spines": 4,
            "hosts_per_leaf": 2,
            "routing": {"kind": "ecmp", **routing},
        }
    )


def test_flows_spread_over_all_next_hops() -> None:
    """400 flows of 4 paths: 65 and 135 are 4 standard deviations off 100."""
    fabric = _fabric(resilient=True)
    routes = compute_routes(fabric)
    ends = fabric.by_name["h0"].address, fabric.by_name["h5"].address
    used = Counter(
        flow_path(routes, "h0", "h5", FiveTuple(*ends, 30_000 + port, 29_500), 1)[1].node
        for port in range(400)
    )
    assert len(used) == 4 and all(65 <= count <= 135 for count in used.values())
    assert routes.portions("leaf0", "h5") == (32, 32, 32, 32)


def test_a_place_keeps_its_group_where_others_lose_a_hop() -> None:
    """One leaf lost a spine: what is for the other leaf is left alone, though a prefix no longer
    holds both."""
    fabric = _fabric(resilient=True)
    routes = compute_routes(fabric)
    (cut,) = (e.index for e in fabric.links_of["leaf1"] if e.other("leaf1").node == "spine2")
    after = compute_routes(fabric, [cut], routes)
    assert routes.groups is not None and after.groups is not None
    assert after.groups.towards("leaf0", "h5") == routes.groups.towards("leaf0", "h5")
    assert after.groups.towards("leaf0", "h2") != routes.groups.towards("leaf0", "h2")
    assert after.groups.towards("leaf0", "h1") is None, "it hangs on the leaf"
    assert compute_routes(_fabric()).groups is None
