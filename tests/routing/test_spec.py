"""Kinds of routing as a spec names them, and what routes make of them."""

from __future__ import annotations

from ipaddress import IPv4Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.native.kernel import missing_for
from topologies.fabrics.build import build_fabric
from topologies.routing.ecmp_hash import FiveTuple, flow_path
from topologies.routing.routes import compute_routes
from topologies.spec.errors import SpecError
from topologies.spec.routing_section import (
    Ecmp,
    Flowlet,
    Resilient,
    Spray,
    Weighted,
    resilient_of,
)
from topologies.spec.spec import Spec, parse_spec

_GRAPH = """{kind: graph, routing: %s,
  nodes: [{name: a, kind: host}, {name: b, kind: host}, {name: s, kind: switch},
          {name: t, kind: switch}, {name: u, kind: switch}, {name: v, kind: switch}],
  links: [{ends: [a, s]}, {ends: [b, v]}, {ends: [s, t], rate: 100Gbps},
          {ends: [s, u], rate: 100Gbps}, {ends: [t, v], rate: %s}, {ends: [u, v], rate: %s}]}"""


def _spec(fabric: str) -> Spec:
    return parse_spec(
        f"name: routing\nfabric: {fabric}\n"
        "workload: {kind: collectives, ranks: 2, operations: [{kind: all_reduce, size: 1MB}]}\n"
    )


def _fat_tree(routing: str) -> Spec:
    return _spec(f"{{kind: fat-tree, k: 4, routing: {routing}}}")


def test_a_word_stands_for_a_section_without_keys() -> None:
    assert _fat_tree("ecmp").plan.fabric.choice == Ecmp()
    assert _fat_tree("spray").plan.fabric.choice == Spray(kind="spray")
    flowlet = _fat_tree("{kind: flowlet, gap: 20us}").plan.fabric.choice
    assert isinstance(flowlet, Flowlet)
    assert flowlet.gap_ns == 20_000
    assert _fat_tree("static").plan.fabric.routing == "static"
    assert _fat_tree("weighted").plan.fabric.routing == "ecmp"


@pytest.mark.parametrize("kind", ["ecmp", "weighted"])
def test_resilient_groups_are_a_section_or_a_word(kind: str) -> None:
    def told(value: str) -> Resilient | None:
        return resilient_of(_fat_tree(f"{{kind: {kind}, resilient: {value}}}").plan.fabric.choice)

    assert told("true") == told("{}") == Resilient(buckets=128)
    assert told("false") is None
    timers = told("{buckets: 64, idle_timer: 120s, unbalanced_timer: 10ms}")
    assert timers is not None
    assert (timers.idle_timer_ns, timers.unbalanced_timer_ns) == (120 * 10**9, 10**7)
    again = parse_spec(_fat_tree(f"{{kind: {kind}, resilient: true}}").to_yaml())
    assert resilient_of(again.plan.fabric.choice) == Resilient()


@pytest.mark.parametrize(
    ("routing", "told"),
    [
        ("sprey", "did you mean spray?"),
        ("{kind: spray, chose: random}", "unknown key; did you mean choose?"),
        ("{kind: spray, choose: best}", "allowed: random, round-robin, least-of-two, least-queue"),
        ("{kind: flowlet, gap: 0ns}", "expected more than 0"),
        ("{kind: ecmp, fields: [addresses, addresses]}", "expected each field once"),
        ("{kind: ecmp, resilient: {bucket: 8}}", "unknown key; did you mean buckets?"),
        ("{kind: ecmp, resilient: {buckets: 0}}", "resilient.buckets: found 0; expected at least"),
        ("{kind: weighted, resilient: {buckets: 70000}}", "found 70000; expected at most 65535"),
        ("{kind: ecmp, resilient: {buckets: 8KB}}", "found 8KB; expected a whole number"),
        ("{kind: ecmp, resilient: {idle_timer: 5ms}}", "expected a multiple of 10ms, from 0 to"),
        ("{kind: ecmp, resilient: maybe}", "found maybe; expected a section"),
        ("{kind: spray, resilient: true}", "unknown key"),
        ("{kind: ecmp, fields: [labels]}", "allowed: addresses, ports, queue-pair"),
    ],
)
def test_mistakes_are_told(routing: str, told: str) -> None:
    with pytest.raises(SpecError, match=r"fabric\.routing") as caught:
        _fat_tree(routing)
    assert told in str(caught.value)


def test_hosts_with_several_ways_of_their_own_only_hash() -> None:
    two_ways = """{kind: graph, routing: %s, nodes: [{name: a, kind: host}, {name: b, kind: host},
      {name: s, kind: switch}, {name: t, kind: switch}],
      links: [{ends: [a, s]}, {ends: [a, t]}, {ends: [b, s]}, {ends: [b, t]}]}"""
    _spec(two_ways % "ecmp")
    with pytest.raises(SpecError, match="a has several ways of its own"):
        _spec(two_ways % "spray")


def test_stock_kernels_are_refused_what_they_cannot_choose_by() -> None:
    refused = "fabric.routing.kind: spray: stock kernels choose next hops by a hash"
    assert any(refused in each for each in missing_for(_fat_tree("spray")))
    assert not any("fabric.routing" in each for each in missing_for(_fat_tree("weighted")))


def test_weights_are_what_can_be_sent_by_way_of_each_hop() -> None:
    fabric = build_fabric(_spec(_GRAPH % ("weighted", "100Gbps", "25Gbps")).fabric)
    assert fabric.choice == Weighted(kind="weighted")
    routes = compute_routes(fabric)
    assert routes.weights("s", "b") == (4, 1)
    assert {r.weights for r in routes.tables["s"] if len(r.next_hops) > 1} == {(4, 1)}
    even = compute_routes(build_fabric(_spec(_GRAPH % ("ecmp", "100Gbps", "25Gbps")).fabric))
    assert even.weights("s", "b") == (1, 1)


def test_weights_follow_a_link_that_is_down() -> None:
    """An aggregation switch that has lost one of its two uplinks can send half as much."""
    fabric = build_fabric(_fat_tree("weighted").fabric)
    cut = next(link.index for link in fabric.links if link.link_class == "agg-core")
    lost = {fabric.links[cut].a.node, fabric.links[cut].b.node}
    routes = compute_routes(fabric, [cut])
    far = fabric.hosts[-1].name
    edge = next(
        link.other(fabric.hosts[0].name).node for link in fabric.links_of[fabric.hosts[0].name]
    )
    by_node = {
        hop.node: weight
        for hop, weight in zip(routes.next_hops(edge, far), routes.weights(edge, far), strict=True)
    }
    assert sorted(by_node.values()) == [1, 2]
    assert by_node[(lost & by_node.keys()).pop()] == 1


def test_flows_get_their_shares_by_weight() -> None:
    """4 to 1, within five standard deviations of 3,000 flows."""
    fabric = build_fabric(_spec(_GRAPH % ("weighted", "100Gbps", "25Gbps")).fabric)
    routes = compute_routes(fabric)
    ends = fabric.by_name["a"].address, fabric.by_name["b"].address
    paths = [flow_path(routes, "a", "b", FiveTuple(*ends, 1024 + n, 80), 1) for n in range(3_000)]
    share = sum(path[1].node == "t" for path in paths) / len(paths)
    assert abs(share - 0.8) < 5 * (0.8 * 0.2 / 3_000) ** 0.5


def _cores_used(routing: str, flows: int) -> int:
    spec = _spec(f"{{kind: fat-tree, k: 8, routing: {routing}}}")
    fabric, routes = spec.plan.fabric, spec.plan.routes
    first, last = fabric.hosts[0], fabric.hosts[-1]
    used = set()
    for port in range(flows):
        flow = FiveTuple(first.address, last.address, 20_000 + port, 80)
        used.add(flow_path(routes, first.name, last.name, flow, 1)[2].node)
    return len(used)


def test_one_seed_for_all_switches_leaves_most_cores_unused() -> None:
    """Polarisation: the second tier chooses by the bits that the first has chosen by, so that of 16
    cores the flows of an edge switch reach the 4 with equal places."""
    assert _cores_used("ecmp", 500) == 16
    assert _cores_used("{kind: ecmp, seeds: shared}", 500) == 4


@given(st.integers(0, 65_535), st.integers(0, 65_535))
def test_addresses_alone_give_a_pair_of_hosts_one_path(one: int, other: int) -> None:
    spec = _fat_tree("{kind: ecmp, fields: [addresses]}")
    ends = spec.plan.fabric.hosts[0], spec.plan.fabric.hosts[-1]
    addresses: tuple[IPv4Address, IPv4Address] = (ends[0].address, ends[1].address)
    paths = {
        flow_path(spec.plan.routes, ends[0].name, ends[1].name, FiveTuple(*addresses, port, 9), 1)
        for port in (one, other)
    }
    assert len(paths) == 1
