"""Resilient groups on this machine's own kernel: their tables, and links that go down."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest

from emulator.linux.capabilities import kernel_capabilities
from emulator.native.kernel import missing_for_fabric
from emulator.network.network import Network
from tests.native.group_tables import assert_as_computed, kernel_buckets
from tests.native.native_fabrics import network
from tests.native.native_traffic import echo_all_pairs
from topologies.fabrics.build import build_fabric
from topologies.fabrics.fabric import Fabric
from topologies.routing.routes import compute_routes
from topologies.spec.fabric_section import LeafSpineSpec

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="root is needed to make network namespaces"),
    pytest.mark.skipif(
        not kernel_capabilities().resilient_groups,
        reason="this kernel has no resilient next hop groups (Linux 5.13)",
    ),
]


def _fabric(kind: str) -> Fabric:
    return build_fabric(
        LeafSpineSpec.model_validate(
            {
                "kind": "leaf-spine",
                "leaves": 3,
                "spines": 3,
                "hosts_per_leaf": 1,
                "link": {"rate": "1Gbps", "delay": 0, "mtu": 1500},
                "routing": {"kind": kind, "resilient": {"buckets": 37}},
            }
        )
    )


def _uplink(fabric: Fabric, leaf: str, spine: str) -> int:
    (found,) = (e.index for e in fabric.links_of[leaf] if e.other(leaf).node == spine)
    return found


def _reroute(live: Network, down: Sequence[int]) -> None:
    live.set_routes(compute_routes(live.fabric, down, live.routes))


@pytest.mark.parametrize("kind", ["ecmp", "weighted"])
def test_a_link_goes_down_and_comes_back(kind: str) -> None:
    """The kernel's tables are those that are computed, at every node, and everybody is reached."""
    fabric = _fabric(kind)
    hosts = [host.name for host in fabric.hosts]
    first, second = _uplink(fabric, "leaf0", "spine0"), _uplink(fabric, "leaf0", "spine2")
    down: list[int] = []
    with network(fabric) as live:
        assert_as_computed(live)
        for link, up in ((first, False), (second, False), (first, True), (second, True)):
            live.set_link(link, up)
            (down.remove if up else down.append)(link)
            _reroute(live, down)
            assert_as_computed(live)
            assert echo_all_pairs(live, hosts) == []


def test_next_hops_that_are_left_keep_their_buckets() -> None:
    fabric = _fabric("ecmp")
    cut = _uplink(fabric, "leaf0", "spine1")
    with network(fabric) as live:
        before = kernel_buckets(live, "leaf0", "leaf2")
        live.set_link(cut, False)  # the kernel itself takes the next hop out of its groups
        after = kernel_buckets(live, "leaf0", "leaf2")
        assert cut in before and cut not in after
        assert all(now == was for was, now in zip(before, after, strict=True) if was != cut)


def test_a_leaf_that_is_cut_off_is_reached_again() -> None:
    """A group of nobody is gone, with its routes, and comes back."""
    fabric = _fabric("ecmp")
    uplinks = [_uplink(fabric, "leaf0", f"spine{i}") for i in range(3)]
    with network(fabric) as live:
        for place, link in enumerate(uplinks):
            live.set_link(link, False)
            _reroute(live, uplinks[: place + 1])
        assert_as_computed(live)
        assert kernel_buckets(live, "leaf1", "leaf0") == ()
        for place, link in enumerate(uplinks):
            live.set_link(link, True)
            _reroute(live, uplinks[place + 1 :])
        assert_as_computed(live)
        assert echo_all_pairs(live, [host.name for host in fabric.hosts]) == []


def test_the_kernel_at_hand_can() -> None:
    assert not any("resilient" in each for each in missing_for_fabric(_fabric("ecmp")))
