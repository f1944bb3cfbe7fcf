"""The promises of every builder: counts, names, addresses, distances, capacity."""

from __future__ import annotations

from math import prod
from typing import Any

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.topologies.fabric_strategies import any_fabric, fabric_of, leaf_spines, meshes, tori
from topologies.fabrics.fabric import Fabric
from topologies.fabrics.wiring import FabricError


def bisection_bps(fabric: Fabric, half: set[str]) -> int:
    """Capacity, one way, between the hosts of `half` and the others (a maximum flow)."""
    graph: nx.DiGraph[str] = nx.DiGraph()
    for link in fabric.links:
        for a, b in ((link.a.node, link.b.node), (link.b.node, link.a.node)):
            before = graph.get_edge_data(a, b, {"capacity": 0})["capacity"]
            graph.add_edge(a, b, capacity=before + link.rate_bps)
    for host in fabric.hosts:
        if host.name in half:
            graph.add_edge("source", host.name)
        else:
            graph.add_edge(host.name, "sink")
    return int(nx.maximum_flow_value(graph, "source", "sink"))


@settings(max_examples=60, deadline=None)
@given(any_fabric)
def test_a_fabric_is_a_function_of_its_section(raw: dict[str, Any]) -> None:
    assert fabric_of(raw) == fabric_of(raw)


@settings(max_examples=80, deadline=None)
@given(any_fabric)
def test_names_addresses_and_macs_are_unique_and_legal(raw: dict[str, Any]) -> None:
    fabric = fabric_of(raw)
    ports = [port for link in fabric.links for port in (link.a, link.b)]
    assert len({node.name for node in fabric.nodes}) == len(fabric.nodes)
    assert len({node.address for node in fabric.nodes}) == len(fabric.nodes)
    assert all(node.address.packed[0] == 10 for node in fabric.nodes)
    assert len({port.interface for port in ports}) == len(ports)
    assert len({port.mac for port in ports}) == len(ports)
    assert all(len(port.interface) <= 15 for port in ports)
    for link in fabric.links:
        for end, port in enumerate((link.a, link.b)):
            serial = int(port.mac.replace(":", "")[6:], 16)
            assert port.mac.startswith("02:47:57:")
            assert serial == 2 * link.index + end


@settings(max_examples=60, deadline=None)
@given(any_fabric)
def test_interfaces_count_a_nodes_links_in_order(raw: dict[str, Any]) -> None:
    fabric = fabric_of(raw)
    assert [link.index for link in fabric.links] == list(range(len(fabric.links)))
    for name, links in fabric.links_of.items():
        names = [link.port(name).interface for link in links]
        assert names == [f"{name}-eth{n}" for n in range(len(links))]


@pytest.mark.parametrize("k", range(4, 17, 2))
def test_fat_tree_has_the_papers_counts(k: int) -> None:
    fabric = fabric_of({"kind": "fat-tree", "k": k})
    assert len(fabric.hosts) == k**3 // 4
    assert len(fabric.switches) == 5 * k**2 // 4
    assert len(fabric.links) == 3 * k**3 // 4
    assert {len(fabric.links_of[s.name]) for s in fabric.switches} == {k}
    assert {len(fabric.links_of[h.name]) for h in fabric.hosts} == {1}


def test_the_main_jobs_fat_tree() -> None:
    fabric = fabric_of({"kind": "fat-tree", "k": 4})
    assert (len(fabric.hosts), len(fabric.switches), len(fabric.links)) == (16, 20, 48)
    assert nx.diameter(nx.Graph(fabric.graph)) == 6
    assert str(fabric.by_name["h0"].address) == "10.0.0.2"
    assert fabric.by_name["core3"].coordinates == (1, 1)
    classes = [link.link_class for link in fabric.links]
    assert {c: classes.count(c) for c in classes} == {"host": 16, "edge-agg": 16, "agg-core": 16}


@pytest.mark.parametrize("k", [4, 6])
def test_fat_tree_has_full_bisection(k: int) -> None:
    fabric = fabric_of({"kind": "fat-tree", "k": k, "link": {"rate": "10Gbps"}})
    half = {host.name for host in fabric.hosts[: len(fabric.hosts) // 2]}
    assert bisection_bps(fabric, half) == len(half) * 10 * 10**9


def test_link_classes_oversubscribe_a_fat_tree() -> None:
    raw = {"kind": "fat-tree", "k": 4, "links": {"agg-core": {"rate": "25Gbps"}}}
    fabric = fabric_of(raw)
    half = {host.name for host in fabric.hosts[:8]}
    assert bisection_bps(fabric, half) == 8 * 25 * 10**9
    slow = [link for link in fabric.links if link.rate_bps == 25 * 10**9]
    assert {link.link_class for link in slow} == {"agg-core"}
    assert {link.delay_ns for link in slow} == {500}


@settings(max_examples=60, deadline=None)
@given(tori)
def test_torus_counts_and_diameter(raw: dict[str, Any]) -> None:
    fabric, dims = fabric_of(raw), raw["dims"]
    hosts = prod(dims)
    assert len(fabric.hosts) == len(fabric.nodes) == hosts
    assert all(node.forwards for node in fabric.nodes)
    assert len(fabric.links) == sum(hosts // 2 if axis == 2 else hosts for axis in dims)
    degree = sum(1 if axis == 2 else 2 for axis in dims)
    assert {len(links) for links in fabric.links_of.values()} == {degree}
    assert nx.diameter(nx.Graph(fabric.graph)) == sum(axis // 2 for axis in dims)
    assert nx.number_of_edges(nx.Graph(fabric.graph)) == len(fabric.links)
    places = [host.coordinates for host in fabric.hosts]
    assert places == sorted(places)


@settings(max_examples=60, deadline=None)
@given(meshes)
def test_mesh_counts_and_diameter(raw: dict[str, Any]) -> None:
    fabric, dims = fabric_of(raw), raw["dims"]
    hosts = prod(dims)
    assert len(fabric.hosts) == len(fabric.nodes) == hosts
    assert all(node.forwards for node in fabric.nodes)
    assert len(fabric.links) == sum(hosts // axis * (axis - 1) for axis in dims)
    assert nx.diameter(nx.Graph(fabric.graph)) == sum(axis - 1 for axis in dims)
    # A corner has one neighbour on every axis, and nobody has two on an end of it.
    for host in fabric.hosts:
        ends = sum(at in (0, axis - 1) for at, axis in zip(host.coordinates, dims, strict=True))
        assert len(fabric.links_of[host.name]) == 2 * len(dims) - ends
    for link in fabric.links:
        a, b = (fabric.by_name[port.node].coordinates for port in (link.a, link.b))
        assert sum(abs(x - y) for x, y in zip(a, b, strict=True)) == 1


@pytest.mark.parametrize(("dims", "crossing"), [([4, 4], 4), ([8, 4], 4), ([4, 4, 4], 16)])
def test_mesh_bisection_is_half_of_the_torus(dims: list[int], crossing: int) -> None:
    fabric = fabric_of({"kind": "mesh", "dims": dims})
    half = {host.name for host in fabric.hosts if host.coordinates[0] < dims[0] // 2}
    assert bisection_bps(fabric, half) == crossing * 100 * 10**9


@pytest.mark.parametrize(("dims", "crossing"), [([4, 4], 8), ([8, 4], 8), ([4, 4, 4], 32)])
def test_torus_bisection(dims: list[int], crossing: int) -> None:
    fabric = fabric_of({"kind": "torus", "dims": dims})
    half = {host.name for host in fabric.hosts if host.coordinates[0] < dims[0] // 2}
    assert bisection_bps(fabric, half) == crossing * 100 * 10**9


@settings(max_examples=60, deadline=None)
@given(leaf_spines)
def test_leaf_spine_counts(raw: dict[str, Any]) -> None:
    fabric = fabric_of(raw)
    leaves, spines, hosts = raw["leaves"], raw["spines"], raw["hosts_per_leaf"]
    assert len(fabric.hosts) == leaves * hosts
    assert len(fabric.switches) == leaves + spines
    assert len(fabric.links) == leaves * (hosts + spines)
    if leaves > 1:
        assert nx.diameter(nx.Graph(fabric.graph)) == 4


def test_leaf_spine_is_oversubscribed_as_written() -> None:
    raw = {"kind": "leaf-spine", "leaves": 4, "spines": 2, "hosts_per_leaf": 4}
    half = {f"h{i}" for i in range(8)}
    assert bisection_bps(fabric_of(raw), half) == 4 * 100 * 10**9
    full = raw | {"links": {"leaf-spine": {"rate": "200Gbps"}}}
    assert bisection_bps(fabric_of(full), half) == 8 * 100 * 10**9


def test_hierarchical_has_two_speeds() -> None:
    fabric = fabric_of(
        {
            "kind": "hierarchical",
            "groups": 4,
            "hosts_per_group": 8,
            "links": {"inner": {"rate": "800Gbps", "delay": "100ns"}, "outer": {"delay": "1us"}},
        }
    )
    assert len(fabric.hosts) == 32
    inner = [link for link in fabric.links if link.link_class == "inner"]
    outer = [link for link in fabric.links if link.link_class == "outer"]
    assert (len(inner), len(outer)) == (32, 4)
    assert {(link.rate_bps, link.delay_ns) for link in inner} == {(800 * 10**9, 100)}
    assert {(link.rate_bps, link.delay_ns) for link in outer} == {(100 * 10**9, 1000)}
    group = {f"h{i}" for i in range(8)}
    assert bisection_bps(fabric, group) == 100 * 10**9


@given(st.integers(2, 300))
@settings(max_examples=20, deadline=None)
def test_flat_is_a_star(hosts: int) -> None:
    fabric = fabric_of({"kind": "flat", "hosts": hosts})
    assert [switch.name for switch in fabric.switches] == ["s0"]
    assert len(fabric.links) == len(fabric.hosts) == hosts
    assert [host.name for host in fabric.hosts] == [f"h{i}" for i in range(hosts)]


def test_graph_keeps_what_its_links_say() -> None:
    fabric = fabric_of(
        {
            "kind": "graph",
            "nodes": [{"name": n, "kind": k} for n, k in (("a", "host"), ("r", "switch"))]
            + [{"name": "b", "kind": "host"}],
            "link": {"rate": "10Gbps", "delay": "1us", "mtu": 1500},
            "queue": {"kind": "droptail", "buffer": "1MB"},
            "links": [
                {"ends": ["a", "r"], "rate": "40Gbps", "class": "fast"},
                {"ends": ["r", "b"], "queue": {"kind": "dctcp", "k": "50KB"}},
                {"ends": ["r", "b"], "mtu": 9000},
            ],
        }
    )
    first, second, third = fabric.links
    assert (first.rate_bps, first.delay_ns, first.mtu_bytes) == (40 * 10**9, 1000, 1500)
    assert first.link_class == "fast"
    assert second.a.queue.kind == second.b.queue.kind == "dctcp"
    assert (third.rate_bps, third.mtu_bytes, third.a.queue.kind) == (10**10, 9000, "droptail")


def test_the_queue_is_the_switches_and_a_nic_keeps_what_its_host_sends() -> None:
    raw = {"queue": {"kind": "dctcp", "k": "50KB"}}
    fabric = fabric_of({"kind": "flat", "hosts": 2} | raw)
    for link in fabric.links:
        for port in (link.a, link.b):
            expected = "dctcp" if fabric.by_name[port.node].forwards else "droptail"
            assert port.queue.kind == expected
    torus = fabric_of({"kind": "torus", "dims": [2, 2]} | raw)
    assert {p.queue.kind for link in torus.links for p in (link.a, link.b)} == {"dctcp"}
    named = fabric_of({"kind": "flat", "hosts": 2, "queues": {"h0": raw["queue"]}})
    assert named.links[0].port("h0").queue.kind == "dctcp"


def test_the_more_specific_queue_wins() -> None:
    def sized(size: int) -> dict[str, Any]:
        return {"kind": "droptail", "buffer": size}

    fabric = fabric_of(
        {
            "kind": "leaf-spine",
            "leaves": 2,
            "spines": 1,
            "hosts_per_leaf": 2,
            "queue": sized(10_000),
            "queues": {
                "leaf0-eth1": sized(60_000),
                "leaf0:h0": sized(50_000),
                "leaf0": sized(40_000),
                "leaf-spine": sized(30_000),
                "switches": sized(20_000),
                "hosts": sized(15_000),
            },
        }
    )
    found = {
        port.interface: port.queue.buffer_bytes
        for link in fabric.links
        for port in (link.a, link.b)
    }
    assert found["h0-eth0"] == 15_000
    assert found["leaf1-eth0"] == 20_000
    assert found["leaf1-eth2"] == found["spine0-eth0"] == 30_000
    assert found["leaf0-eth2"] == 40_000
    assert found["leaf0-eth0"] == 50_000
    assert found["leaf0-eth1"] == 60_000


@pytest.mark.parametrize(
    ("keys", "queues", "words"),
    [
        ({"links": 4}, {}, "400 Gb/s on s0: 4 of 100 Gb/s carry 387.879 Gb/s without headers"),
        ({"ports": 2, "links": 1}, {}, "found 1, expected links that carry what the ports"),
        (
            {},
            {"s0:h1": {"kind": "voq"}},
            "found voq at s0-eth1, expected the cells that other ports",
        ),
    ],
)
def test_a_fabric_of_cells_is_that_of_its_whole_switch(
    keys: dict[str, Any], queues: dict[str, Any], words: str
) -> None:
    """Its links carry what the ports of each card do, and all ports of the switch have it."""
    queue = {"kind": "cells", "link_rate": "100Gbps"}
    section: dict[str, Any] = {"kind": "flat", "hosts": 6, "link": {"rate": "100Gbps"}}
    fabric_of(section | {"queue": queue})
    with pytest.raises(FabricError, match=words):
        fabric_of(section | {"queue": queue | keys, "queues": queues})
