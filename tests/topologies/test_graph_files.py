"""Fabrics of ns-3's files, of GraphML and of InfraGraph."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topologies.fabrics.build import build_fabric
from topologies.graph_files import GraphFileError, parse_graph
from topologies.spec.errors import SpecError
from topologies.spec.fabric_section import GraphSpec
from topologies.spec.spec import load_spec

NS3 = (
    "5 2 4\n3 4\n0 3 100Gbps 0.001ms 0\n1 3 100Gbps 1000ns 0.0\n2 4 25Gbps 2us 0\n"
    "3 4 400Gbps 1us 0\n"
)
SIMAI = "6 2 1 1 6 H100\n4 5\n0 4 2880Gbps 0.000025ms 0\n1 4 2880Gbps 0.000025ms 0\n" + "".join(
    f"{gpu} 5 400Gbps 0.0005ms 0\n" for gpu in range(4)
)
GRAPHML = """<?xml version="1.0"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<key id="r" for="edge" attr.name="rate" attr.type="string"/>
<key id="k" for="node" attr.name="kind" attr.type="string"/>
<graph edgedefault="undirected">
<node id="A Host"/><node id="b"/><node id="core"><data key="k">switch</data></node>
<edge source="A Host" target="core"><data key="r">40Gbps</data></edge>
<edge source="b" target="core"/>
</graph></graphml>"""
INFRAGRAPH = """
name: two-servers
devices:
  - name: server
    components: [{name: gpu, count: 2, choice: xpu}, {name: nic, count: 2, choice: nic}]
    links: []
    edges: []
  - name: switch
    components: [{name: port, count: 8, choice: port}]
    links: []
    edges: []
links:
  - name: eth
    physical: {bandwidth: {choice: gigabits_per_second, gigabits_per_second: 200}}
instances:
  - {name: srv, device: server, count: 2}
  - {name: sw, device: switch, count: 2}
edges:
  - ep1: {instance: "srv[0]", component: nic}
    ep2: {instance: sw, component: "port[0]"}
    scheme: one2one
    link: eth
  - ep1: {instance: "srv[1:2]", component: "nic[0:2]"}
    ep2: {instance: sw, component: "port[1]"}
    scheme: one2one
    link: eth
  - ep1: {instance: "sw[0]", component: "port[7]"}
    ep2: {instance: "sw[1]", component: "port[7]"}
    scheme: many2many
    link: eth
"""


def _fabric(folder: Path, text: str) -> GraphSpec:
    (folder / "graph").write_text(text)
    (folder / "spec.yaml").write_text(
        "name: g\nfabric: {kind: graph, path: graph, link: {rate: 10Gbps, delay: 3us}}\n"
        "workload: {kind: collectives, ranks: 2, operations: [{kind: all_reduce, size: 1MB}]}\n"
    )
    spec = load_spec(folder / "spec.yaml")
    build_fabric(spec.fabric)
    return cast(GraphSpec, spec.fabric)


def test_ns3s_topologies_have_their_links(tmp_path: Path) -> None:
    fabric = _fabric(tmp_path, NS3)
    assert [node.kind for node in fabric.nodes] == ["host"] * 3 + ["switch"] * 2
    first, second, third, _ = fabric.links
    assert (first.rate_bps, first.delay_ns, second.delay_ns) == (100 * 10**9, 1000, 1000)
    assert third.ends == ("n2", "n4") and third.rate_bps == 25 * 10**9


def test_simais_servers_have_two_networks(tmp_path: Path) -> None:
    fabric = _fabric(tmp_path, SIMAI)
    assert sum(node.kind == "host" for node in fabric.nodes) == 4
    assert fabric.links[0].delay_ns == 25 and fabric.links[2].ends == ("n0", "n5")


def test_graphml_has_rates_and_kinds_or_what_its_links_tell(tmp_path: Path) -> None:
    fabric = _fabric(tmp_path, GRAPHML)
    assert [(node.name, node.kind) for node in fabric.nodes] == [
        ("a-host", "host"), ("b", "host"), ("core", "switch")
    ]  # fmt: skip
    assert [link.rate_bps for link in fabric.links] == [40 * 10**9, None]


def test_infragraphs_edges_are_links_of_instances(tmp_path: Path) -> None:
    fabric = _fabric(tmp_path, INFRAGRAPH)
    assert [(node.name, node.kind) for node in fabric.nodes] == [
        ("srv0", "host"), ("srv1", "host"), ("sw0", "switch"), ("sw1", "switch")
    ]  # fmt: skip
    ends = [link.ends for link in fabric.links]
    assert ends == [
        ("srv0", "sw0"),
        ("srv0", "sw1"),
        ("srv1", "sw0"),
        ("srv1", "sw1"),
        ("sw0", "sw1"),
    ]
    assert {link.rate_bps for link in fabric.links} == {200 * 10**9}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (NS3.replace("25Gbps", "25"), "line 5"),
        (NS3.replace("0 3 100Gbps 0.001ms 0", "0 3 100Gbps 0.001ms 0.01"), "losses are faults"),
        (NS3.replace("3 4\n", "3\n", 1), "found 1 switches"),
        (GRAPHML.replace("switch", "router"), "host or switch"),
        (GRAPHML.replace("40Gbps", "fast"), "a value with its unit"),
        (INFRAGRAPH.replace("instance: sw,", "instance: none,", 1), "expected an instance"),
        (INFRAGRAPH.replace("link: eth", "link: usb", 1), "a link: eth"),
        ("nothing", "InfraGraph"),
    ],
)
def test_what_cannot_be_read_is_told_by_its_place(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(SpecError) as refused:
        _fabric(tmp_path, text)
    assert told in str(refused.value) and "fabric.path" in str(refused.value)


@given(st.sampled_from([NS3, SIMAI, GRAPHML, INFRAGRAPH]), st.data())
def test_broken_files_are_refused_in_words(text: str, data: st.DataObject) -> None:
    whole = list(text)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(whole) - 1))
        whole[at] = data.draw(st.sampled_from(["0", "9", "-", " ", "x", "{", "[", "<", "\n", "é"]))
    try:
        found = parse_graph("".join(whole), "file")
    except GraphFileError as error:
        assert str(error).startswith("file")
    else:
        assert found["nodes"]
