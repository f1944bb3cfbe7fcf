"""Dragonfly and Dragonfly+: who is joined to whom, and minimal routing."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from typing import Any

import networkx as nx
import pytest
from hypothesis import given, settings

from tests.topologies.fabric_strategies import dragonflies, fabric_of
from topologies.fabrics.fabric import Fabric
from topologies.routing.routes import compute_routes
from topologies.spec.spec import SpecError, parse_spec


def _group(fabric: Fabric, node: str) -> int:
    return fabric.by_name[node].coordinates[0]


def _classes(fabric: Fabric, source: str, destination: str) -> list[list[str]]:
    """The classes of the links of every way."""
    paths = compute_routes(fabric).paths(source, destination)
    return [[fabric.links[hop.link].link_class for hop in path] for path in paths]


@settings(max_examples=80, deadline=None)
@given(dragonflies())
def test_each_pair_of_groups_has_as_many_global_links(raw: dict[str, Any]) -> None:
    fabric = fabric_of(raw)
    switches = raw.get("routers_per_group") or raw["spines_per_group"]
    joined: Counter[tuple[int, int]] = Counter()
    of_switch: Counter[str] = Counter()
    for link in fabric.links:
        if link.link_class == "global":
            a, b = sorted(_group(fabric, port.node) for port in (link.a, link.b))
            joined[a, b] += 1
            of_switch.update((link.a.node, link.b.node))
        elif link.link_class == "local":
            assert _group(fabric, link.a.node) == _group(fabric, link.b.node)
    each = switches * raw["global_links"] // (raw["groups"] - 1)
    assert joined == dict.fromkeys(combinations(range(raw["groups"]), 2), each)
    assert set(of_switch.values()) == {raw["global_links"]}
    assert len(of_switch) == switches * raw["groups"]


@settings(max_examples=40, deadline=None)
@given(dragonflies())
def test_minimal_ways_have_one_global_link(raw: dict[str, Any]) -> None:
    fabric = fabric_of(raw)
    source = fabric.hosts[0]
    for host in fabric.hosts[1:]:
        crosses = _group(fabric, host.name) != source.coordinates[0]
        for way in _classes(fabric, source.name, host.name):
            assert way.count("global") == crosses
            assert way[0] == way[-1] == "host"
            # Up to the spine and down again; or to the router that has the link, and from it.
            assert way.count("local") <= 2


def test_no_way_is_left_out_that_is_as_short() -> None:
    raw = {"routers_per_group": 3, "hosts_per_router": 1, "global_links": 2, "groups": 4}
    fabric = fabric_of({"kind": "dragonfly", **raw})
    graph: nx.Graph[str] = nx.Graph()
    for link in fabric.links:
        graph.add_edge(link.a.node, link.b.node, cost=3 if link.link_class == "global" else 1)
    routes = compute_routes(fabric)
    for a in fabric.hosts:
        for b in fabric.hosts:
            if a is not b:
                expected = list(nx.all_shortest_paths(graph, a.name, b.name, weight="cost"))
                found = [[a.name, *(h.node for h in p)] for p in routes.paths(a.name, b.name)]
                assert sorted(found) == sorted(expected)


def test_the_papers_figures() -> None:
    # Figure 5 of Kim et al.: p = h = 2, a = 4: g = 9 groups, N = 72 terminals.
    fabric = fabric_of(
        {"kind": "dragonfly", "routers_per_group": 4, "hosts_per_router": 2, "global_links": 2}
    )
    assert len(fabric.hosts) == 72
    assert len(fabric.switches) == 36
    # A router has p + a - 1 + h ports, and two hosts are at most three hops of routers apart.
    assert {len(fabric.links_of[s.name]) for s in fabric.switches} == {2 + 3 + 2}
    ways = [_classes(fabric, "h0", host.name) for host in fabric.hosts[1:]]
    assert max(len(way[0]) for way in ways) == 5
    assert {len(way) for way in ways} == {1}


def test_a_dragonfly_plus_has_the_ways_of_its_leaf_spines() -> None:
    # One global link of each pair of groups: one way across, and one by each spine within.
    raw = {"leaves_per_group": 2, "spines_per_group": 2, "hosts_per_leaf": 2, "global_links": 2}
    fabric = fabric_of({"kind": "dragonfly+", **raw})
    assert (len(fabric.hosts), len(fabric.switches)) == (20, 20)
    routes = compute_routes(fabric)
    assert routes.path_count("h0", "h2") == 2
    assert {routes.path_count("h0", host.name) for host in fabric.hosts[4:]} == {1}
    assert _classes(fabric, "h0", "h19") == [["host", "local", "global", "local", "host"]]


def test_addresses_of_leaves_and_spines_are_apart() -> None:
    raw = {"leaves_per_group": 64, "spines_per_group": 2, "hosts_per_leaf": 1, "global_links": 1}
    fabric = fabric_of({"kind": "dragonfly+", **raw})
    assert len({node.address for node in fabric.nodes}) == len(fabric.nodes)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ("groups: 4", "expected the 8 global links of a group to be a multiple of groups - 1"),
        ("groups: 1", "fabric.groups: found 1; expected at least 2"),
        ("groups: 9, hosts_per_router: 128", "expected at most 4096 hosts"),
        ("global_links: 64", "257 would have one global link to each other"),
        ("links: {spine: {rate: 1Gbps}}", "a link class: global, host, local"),
    ],
)
def test_what_does_not_fit_is_told(keys: str, said: str) -> None:
    fabric = {"kind": "dragonfly", "routers_per_group": "4", "hosts_per_router": "2"}
    fabric |= {"global_links": "2"}
    for key in fabric:
        if f"{key}:" in keys:
            fabric = {k: v for k, v in fabric.items() if k != key}
    section = ", ".join(f"{key}: {value}" for key, value in fabric.items())
    with pytest.raises(SpecError) as refused:
        parse_spec(f"fabric: {{{section}, {keys}}}\nworkload: {{kind: dlrm, ranks: 2}}\nname: x\n")
    assert said in str(refused.value)
