"""Rails: two ports a host, and which of them a packet takes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.topologies.fabric_strategies import (
    fabric_of,
    rails_in_planes,
    rails_with_pxn,
    rails_with_spines,
)
from tests.topologies.test_routing import longest_match
from topologies.fabrics.fabric import Fabric
from topologies.fabrics.selectors import select_ports
from topologies.routing.routes import Path, Routes, compute_routes

any_rails = st.one_of(rails_with_pxn, rails_with_spines)


def classes(fabric: Fabric, path: Path) -> list[str]:
    return [fabric.links[hop.link].link_class for hop in path]


def all_paths(routes: Routes) -> dict[tuple[str, str], tuple[Path, ...]]:
    names = [host.name for host in routes.fabric.hosts]
    return {(a, b): routes.paths(a, b) for a in names for b in names if a != b}


@settings(max_examples=60)
@given(any_rails)
def test_counts_and_ports(raw: dict[str, Any]) -> None:
    fabric = fabric_of(raw)
    servers, local = raw["servers"], raw["hosts_per_server"]
    lowers = servers // raw["servers_per_leaf"] if "servers_per_leaf" in raw else local
    assert len(fabric.hosts) == servers * local
    assert len(fabric.switches) == servers + lowers + raw["spines"]
    assert len(fabric.links) == 2 * servers * local + lowers * raw["spines"]
    assert len({node.address for node in fabric.nodes}) == len(fabric.nodes)
    for host in fabric.hosts:
        assert [x.link_class for x in fabric.links_of[host.name]] == ["scale-up", "nic"]
        assert host.forwards is raw["pxn"]


@settings(max_examples=60)
@given(any_rails)
def test_inside_a_server_by_scale_up_and_all_else_by_the_nic(raw: dict[str, Any]) -> None:
    fabric = fabric_of(raw)
    routes = compute_routes(fabric)
    nodes = fabric.by_name
    for (a, b), paths in all_paths(routes).items():
        (server, local), (other, remote) = nodes[a].coordinates, nodes[b].coordinates
        leaves = [x.coordinates[0] // raw.get("servers_per_leaf", 1) for x in (nodes[a], nodes[b])]
        if server == other:
            expected = ["scale-up"] * 2
        elif leaves[0] == leaves[1] if "servers_per_leaf" in raw else local == remote:
            expected = ["nic"] * 2
        elif raw["pxn"]:
            expected = ["scale-up"] * 2 + ["nic"] * 2
            assert paths[0][1].node == f"h{server * raw['hosts_per_server'] + remote}"
        else:
            expected = ["nic", "spine", "spine", "nic"]
        assert {tuple(classes(fabric, path)) for path in paths} == {tuple(expected)}
        spread = expected[1] == "spine" and raw["routing"] == "ecmp"
        assert len(paths) == (raw["spines"] if spread else 1)


@settings(max_examples=40)
@given(rails_with_spines)
def test_tables_of_all_nodes_on_the_way_say_what_next_hops_say(raw: dict[str, Any]) -> None:
    fabric = fabric_of(raw)
    routes = compute_routes(fabric)
    for (a, b), paths in all_paths(routes).items():
        for node in {a, *(hop.node for path in paths for hop in path[:-1])}:
            expected = routes.next_hops(node, b)
            assert expected
            assert longest_match(routes.tables[node], fabric.by_name[b].address) == expected


@settings(max_examples=40)
@given(rails_in_planes)
def test_a_way_through_planes_is_of_one_plane(raw: dict[str, Any]) -> None:
    """Each plane has the ways of the fabric without planes, and a NIC leads into each of them."""
    fabric, flat = fabric_of(raw), fabric_of(raw | {"planes": 1})
    routes, of_one = compute_routes(fabric), compute_routes(flat)
    nodes, planes = fabric.by_name, raw["planes"]
    assert len({node.address for node in fabric.nodes}) == len(fabric.nodes)
    for (a, b), paths in all_paths(routes).items():
        inside = nodes[a].coordinates[0] == nodes[b].coordinates[0]
        expected = of_one.paths(a, b)
        if inside:
            assert [hop.node for hop in paths[0]] == [hop.node for hop in expected[0]]
            continue
        several = planes if raw["routing"] == "ecmp" else 1
        assert len(paths) == several * len(expected)
        for path in paths:
            names = [hop.node for hop in path[:-1]]
            assert names[0].startswith("nic") and names[-1].startswith("nic")
            assert len({nodes[name].coordinates[0] for name in names[1:-1]}) == 1
            assert len(path) == len(expected[0]) + 2


def test_a_nic_has_a_port_in_each_plane_and_its_host_a_link_as_wide_as_all() -> None:
    raw = {"kind": "rails", "servers": 4, "hosts_per_server": 2, "servers_per_leaf": 4}
    link = {"rate": "100Gbps", "delay": "500ns"}
    fabric = fabric_of(raw | {"planes": 8, "link": link})
    to_host, *to_planes = fabric.links_of["nic1-0"]
    assert (to_host.link_class, to_host.rate_bps, to_host.delay_ns) == ("host-nic", 8 * 10**11, 0)
    assert [link.other("nic1-0").node for link in to_planes] == [f"leaf0p{p}" for p in range(8)]
    slower = {"host-nic": {"rate": "400Gbps", "delay": "200ns"}}
    to_host, *_ = fabric_of(raw | {"planes": 8, "link": link, "links": slower}).links_of["nic1-0"]
    assert (to_host.rate_bps, to_host.delay_ns) == (4 * 10**11, 200)


def test_equal_local_ranks_load_all_rails_alike() -> None:
    """Rails do this, and `hierarchical` cannot: there the hash of ports decides."""
    fabric = fabric_of({"kind": "rails", "servers": 4, "hosts_per_server": 8})
    load: Counter[str] = Counter()
    for (a, b), (path,) in all_paths(compute_routes(fabric)).items():
        if fabric.by_name[a].coordinates[1] == fabric.by_name[b].coordinates[1]:
            load.update(hop.interface for hop in path)
    assert len(load) == 2 * 32
    assert set(load.values()) == {3}


def test_a_nic_that_is_down_is_gone_round_by_a_neighbours() -> None:
    fabric = fabric_of({"kind": "rails", "servers": 2, "hosts_per_server": 2})
    (nic,) = (x.index for x in fabric.links_of["h0"] if x.link_class == "nic")
    (path,) = compute_routes(fabric, down=[nic]).paths("h0", "h2")
    assert [hop.node for hop in path] == ["server0", "h1", "rail1", "h3", "server1", "h2"]


def test_tables_of_a_large_system_are_small() -> None:
    raw = {"kind": "rails", "servers": 64, "hosts_per_server": 8}
    for pxn, spines in ((True, 0), (False, 4)):
        tables = compute_routes(fabric_of(raw | {"pxn": pxn, "spines": spines})).tables
        assert len(tables["h9"]) <= 24
        assert len(tables["server3"]) <= 24


def test_selectors_know_servers_and_classes() -> None:
    fabric = fabric_of({"kind": "rails", "servers": 2, "hosts_per_server": 2})
    assert {port.node for port in select_ports(fabric, "host:server1")} == {"h2", "h3"}
    assert {port.node for port in select_ports(fabric, "nic")} == {
        "h0",
        "h1",
        "h2",
        "h3",
        "rail0",
        "rail1",
    }


@pytest.mark.parametrize(
    ("raw", "pxn"),
    [({}, True), ({"spines": 2}, False), ({"servers_per_leaf": 4}, False)],
)
def test_pxn_is_the_default_where_nothing_else_joins_rails(raw: dict[str, Any], pxn: bool) -> None:
    fabric = fabric_of({"kind": "rails", "servers": 4, "hosts_per_server": 2} | raw)
    assert fabric.hosts[0].forwards is pxn
