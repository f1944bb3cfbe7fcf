"""Fabrics divided among kernels: every node has one, cuts have delays, loads are even."""

from collections import Counter

import pytest
from fabric_strategies import any_fabric, fabric_of, regular
from hypothesis import given, settings
from hypothesis import strategies as st

from topologies.division import IndivisibleFabric, divide, part_of


@st.composite
def with_delays(draw):
    """A random graph, some of whose links have no delay."""
    raw = draw(any_fabric)
    if raw["kind"] == "graph":
        for link in raw["links"]:
            link["delay"] = draw(st.sampled_from(["0ns", "100ns", "1us"]))
    return raw


@settings(max_examples=150, deadline=None)
@given(with_delays(), st.integers(1, 5))
def test_every_node_has_one_kernel_and_cuts_have_a_delay(raw, kernels):
    fabric = fabric_of(raw)
    try:
        division = divide(fabric, kernels)
    except IndivisibleFabric as refusal:
        few = len(fabric.hosts) < kernels
        assert few or any(link.delay_ns == 0 for link in fabric.links), refusal
        return
    assert divide(fabric_of(raw), kernels) == division
    assert division.kernel_of.keys() == fabric.by_name.keys()
    assert set(division.kernel_of.values()) == set(range(kernels))
    assert division.kernel_of[fabric.hosts[0].name] == 0
    cut = [link for link in fabric.links if division.is_cut(link)]
    assert bool(cut) == (kernels > 1)
    assert division.lookahead_ns == min((link.delay_ns for link in cut), default=0)
    assert division.lookahead_ns > 0 or kernels == 1


@settings(max_examples=60, deadline=None)
@given(regular, st.integers(2, 4))
def test_neighbours_stay_together(raw, kernels):
    fabric = fabric_of(raw)
    if len(fabric.hosts) < kernels:
        return
    division = divide(fabric, kernels)
    row = [division.kernel_of[host.name] for host in fabric.hosts]
    assert row == sorted(row)


@settings(max_examples=60, deadline=None)
@given(any_fabric, st.integers(2, 4))
def test_parts_make_up_the_fabric(raw, kernels):
    fabric = fabric_of(raw)
    if len(fabric.hosts) < kernels:
        return
    division = divide(fabric, kernels)
    parts = [part_of(fabric, division, kernel) for kernel in range(kernels)]
    times = Counter(link for part in parts for link in part.links)
    assert times == {link: 1 + division.is_cut(link) for link in fabric.links}
    for kernel, part in enumerate(parts):
        own = [node for node in fabric.nodes if division.kernel_of[node.name] == kernel]
        assert [node for node in part.nodes if node in own] == own
        for node in own:
            assert part.links_of[node.name] == fabric.links_of[node.name]
        for node in set(part.nodes) - set(own):
            assert all(division.is_cut(link) for link in part.links_of[node.name])
            assert part.links_of[node.name]


def test_one_kernel_has_everything():
    fabric = fabric_of({"kind": "flat", "hosts": 3})
    assert part_of(fabric, divide(fabric, 1), 0) == fabric


@pytest.mark.parametrize("hosts", [5, 10, 60, 125])
def test_a_star_is_divided_by_what_hosts_and_switch_cost(hosts):
    # A packet costs its switch 1 and its two hosts 5: the switch and 2/5 of the hosts are a half.
    fabric = fabric_of({"kind": "flat", "hosts": hosts})
    kernel_of = divide(fabric, 2).kernel_of
    with_switch = [host for host in fabric.hosts if kernel_of[host.name] == kernel_of["s0"]]
    assert len(with_switch) == hosts * 2 // 5


@pytest.mark.parametrize("kernels", [2, 4])
def test_pods_stay_whole_and_cores_are_shared_out(kernels):
    fabric = fabric_of({"kind": "fat-tree", "k": 4})
    division = divide(fabric, kernels)
    nodes = Counter((division.kernel_of[node.name], node.layer) for node in fabric.nodes)
    for layer in (0, 1, 2, 3):
        counts = [nodes[kernel, layer] for kernel in range(kernels)]
        assert len(set(counts)) == 1, (layer, counts)
    for link in fabric.links:
        layers = {fabric.by_name[port.node].layer for port in (link.a, link.b)}
        assert not division.is_cut(link) or layers == {2, 3}


def test_hosts_without_ranks_cost_nothing():
    fabric = fabric_of({"kind": "fat-tree", "k": 4})
    working = [f"h{i}" for i in range(6)]
    division = divide(fabric, 2, working)
    assert Counter(division.kernel_of[host] for host in working) == {0: 3, 1: 3}


def test_a_longer_lookahead_is_taken_where_it_costs_no_balance():
    raw = {"kind": "leaf-spine", "leaves": 4, "spines": 2, "hosts_per_leaf": 4}
    speeds = {"link": {"delay": "100ns"}, "links": {"leaf-spine": {"delay": "2us"}}}
    assert divide(fabric_of(raw | speeds), 2).lookahead_ns == 2000
    # One host against seven, and the switch of the seven: waiting less is not worth that.
    names = [f"h{i}" for i in range(8)]
    lopsided = {
        "kind": "graph",
        "nodes": [{"name": name, "kind": "host"} for name in names]
        + [{"name": name, "kind": "switch"} for name in ("s0", "s1")],
        "links": [{"ends": [name, "s0" if name != "h7" else "s1"]} for name in names]
        + [{"ends": ["s0", "s1"], "delay": "2us"}],
        "link": {"delay": "100ns"},
    }
    assert divide(fabric_of(lopsided), 2).lookahead_ns == 100


def test_what_cannot_be_divided_says_why():
    flat = {"kind": "flat", "hosts": 3}
    with pytest.raises(IndivisibleFabric, match=r"4 kernels need at least 4 hosts .* there are 3"):
        divide(fabric_of(flat), 4)
    with pytest.raises(IndivisibleFabric, match="there are 1"):
        divide(fabric_of(flat), 2, ["h1"])
    with pytest.raises(IndivisibleFabric, match="no link has a delay"):
        divide(fabric_of(flat | {"link": {"delay": "0ns"}}), 2)
    raw = {"kind": "leaf-spine", "leaves": 2, "spines": 1, "hosts_per_leaf": 4}
    tied = fabric_of(raw | {"links": {"host": {"delay": "0ns"}}})
    assert divide(tied, 3).kernels == 3  # two leaves and a spine
    with pytest.raises(IndivisibleFabric, match="into 3 parts that cannot be divided"):
        divide(tied, 4)
    with pytest.raises(ValueError, match="at least 1 kernel"):
        divide(tied, 0)
