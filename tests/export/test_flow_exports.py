"""SimAI's workloads, htsim's matrices and ns-3's files: written, and read back by the readers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.chakra.graph import (
    CollectiveNode,
    ComputeNode,
    Graph,
    GraphNode,
    ReceiveNode,
    SendNode,
)
from analysis.chakra.sources.flow_files import read_connections, read_ns3_flows
from analysis.chakra.sources.from_spec import graphs_of_spec
from analysis.chakra.sources.read import read_workload
from analysis.chakra.sources.simai import Degrees, read_simai
from analysis.chakra.summary import problems
from analysis.exporters.flow_files import htsim_lines, one_after_another
from analysis.exporters.messages import Message, messages_of
from analysis.exporters.simai import simai_lines
from analysis.exporters.write import TraceFormat, write_trace_as
from collectives.call import CollectiveCall
from tests.export.export_graphs import workloads
from topologies.fabrics.build import build_fabric
from topologies.graph_files import parse_graph
from topologies.spec.fabric_section import GraphSpec
from topologies.spec.spec import Spec, parse_dict

_FABRIC = {"kind": "leaf-spine", "leaves": 2, "spines": 2, "hosts_per_leaf": 4}


def _spec(workload: dict[str, object], **sections: object) -> Spec:
    return parse_dict({"name": "w", "fabric": _FABRIC, "workload": workload, **sections})


def _sizes(messages: Sequence[Message]) -> Counter[tuple[int, int, int]]:
    return Counter((m.source, m.destination, max(1, m.size_bytes)) for m in messages)


def _over(messages: Sequence[Message]) -> list[set[tuple[str, int]]]:
    """The messages that are over when each message begins, at its source."""
    found: list[set[tuple[str, int]]] = []
    for message in messages:
        over = {("sent", each) for each in message.sent}
        over |= {("received", each) for each in message.received}
        for each in message.sent:
            over |= found[each]
        found.append(over)
    return found


@settings(deadline=None, max_examples=12)
@given(workloads())
def test_a_matrix_reads_back_with_its_messages_and_what_they_wait_for(
    tmp_path_factory: pytest.TempPathFactory, graphs: list[Graph]
) -> None:
    messages = messages_of(graphs)
    chained = one_after_another(messages)
    for before, after in zip(_over(messages), _over(chained), strict=True):
        come = {each for kind, each in after if kind == "received"}
        # A later message of a source implies its earlier ones.
        last = {(chained[each].source): each for each in sorted(come)}
        assert {e for e in before if e[0] == "sent"} <= after
        assert all(each <= last[messages[each].source] for kind, each in before if kind != "sent")
    try:
        lines = list(htsim_lines(messages, len(graphs)))
        written = messages
    except ValueError:
        lines, written = list(htsim_lines(chained, len(graphs))), chained
    path = tmp_path_factory.mktemp("matrix") / "w.cm"
    path.write_text("\n".join(lines))
    read = read_connections(path)
    assert problems(read) == []
    again = messages_of(read)
    assert _sizes(again) == _sizes(written)
    assert Counter((m.source, len(m.sent), len(m.received)) for m in again) == Counter(
        (m.source, len(m.sent), len(m.received)) for m in written
    )


@settings(deadline=None, max_examples=12)
@given(workloads())
def test_flows_of_ns3_read_back(
    tmp_path_factory: pytest.TempPathFactory, graphs: list[Graph]
) -> None:
    spec = _spec({"kind": "flows", "ranks": len(graphs), "pattern": "random"})
    folder = tmp_path_factory.mktemp("ns3")
    topology, flows = write_trace_as(TraceFormat.ns3, folder, spec, graphs).paths
    read = read_ns3_flows(flows)
    messages = messages_of(graphs)
    assert problems(read) == []
    assert _sizes(messages_of(read)) == _sizes(messages)
    starts = [float(line.split()[5]) for line in flows.read_text().splitlines()[1:]]
    assert starts == sorted(starts)
    keys = parse_graph(topology.read_text(), "t")
    fabric = build_fabric(GraphSpec.model_validate({"kind": "graph", **keys}))
    own = spec.plan.fabric
    assert [(link.rate_bps, link.delay_ns) for link in fabric.links] == [
        (link.rate_bps, link.delay_ns) for link in own.links
    ]
    assert len(fabric.hosts) == len(own.hosts)


def test_the_lines_of_a_small_matrix_and_of_its_flows(tmp_path: Path) -> None:
    graphs = [
        (
            ComputeNode(id=0, name="c", duration_ns=250),
            SendNode(id=1, name="s", after=(0,), peer=1, size_bytes=1000),
        ),
        (
            ReceiveNode(id=0, name="r", peer=0, size_bytes=1000),
            ComputeNode(id=1, name="c", after=(0,), duration_ns=40),
            SendNode(id=2, name="s", after=(1,), peer=2, size_bytes=500),
        ),
        (ReceiveNode(id=0, name="r", peer=1, size_bytes=500),),
    ]
    spec = parse_dict(
        {
            "name": "w",
            "fabric": {"kind": "flat", "hosts": 3, "link": {"rate": "8Gbps", "delay": "500ns"}},
            "workload": {"kind": "flows", "ranks": 3, "pattern": "random"},
        }
    )
    written = write_trace_as(TraceFormat.htsim, tmp_path, spec, graphs)
    assert written.paths[0].read_text().splitlines() == [
        "Nodes 3",
        "Connections 2",
        "Triggers 1",
        "0->1 id 1 start 250000 size 1000 recv_done_trigger 1",
        "1->2 id 2 trigger 1 size 500",
        "trigger id 1 oneshot",
    ]
    assert "1 messages wait for others and for computation behind these, 40 ns" in str(
        written.left_out
    )
    _, flows = write_trace_as(TraceFormat.ns3, tmp_path, spec, graphs).paths
    # 250 ns, then 1000 bytes at 8 Gb/s, two links of 500 ns, and 40 ns.
    assert flows.read_text().splitlines() == [
        "2",
        "0 1 3 100 1000 0.000000250",
        "1 2 3 100 500 0.000002290",
    ]


def test_what_a_matrix_cannot_say_is_refused() -> None:
    large = [Message(0, 1, 2**31)]
    with pytest.raises(ValueError, match="message 0 of rank 0 to 1 has 2147483648 bytes"):
        list(htsim_lines(large, 2))
    unlike = [
        Message(0, 1, 10),
        Message(2, 1, 10),
        Message(1, 2, 10, received=(0,)),
        Message(1, 3, 10, received=(0, 1)),
    ]
    with pytest.raises(ValueError, match="message 3 of rank 1 to 3 waits for message 0"):
        list(htsim_lines(unlike, 4))


@st.composite
def passes(draw: st.DrawFn) -> list[Graph]:
    """Ranks alike, with collectives of Megatron's groups: awaited ones, and some of data-parallel
    ranks that nobody awaits."""
    degrees = Degrees(8, draw(st.sampled_from([1, 2, 4])), 1, 1)
    graphs: list[list[GraphNode]] = [[] for _ in range(degrees.ranks)]
    line: tuple[int, ...] = ()
    for _ in range(draw(st.integers(1, 8))):
        duration, computes = draw(st.integers(1, 10**6)), draw(st.booleans())
        kind = draw(st.sampled_from(["all_reduce", "all_gather", "all_to_all", None]))
        group = draw(st.sampled_from(["TP", "DP"]))
        size = 64 * draw(st.integers(1, 1000))
        id = len(graphs[0])
        for rank, own in enumerate(graphs):
            after = line
            if computes or kind is None:
                own.append(ComputeNode(id=id, name="c", after=after, duration_ns=duration))
                after = (id,)
            ranks = degrees.members(group, rank)
            if kind is not None and len(ranks) > 1:
                call = CollectiveCall(kind, size, ranks)
                own.append(CollectiveNode(id=len(own), name="c", after=after, call=call))
        last = graphs[0][-1] if graphs[0] else None
        if isinstance(last, CollectiveNode) and group == "DP" and last.id >= id:
            line = (id,) if computes else line
        elif last is not None:
            line = (last.id,)
    return [tuple(own) for own in graphs]


def _acts(graph: Graph) -> list[object]:
    found: list[object] = []
    for node in graph:
        if isinstance(node, CollectiveNode):
            found.append((node.call.kind, node.call.size_bytes, node.call.ranks))
        elif found and isinstance(found[-1], int):
            found[-1] += node.duration_ns
        elif node.duration_ns:
            found.append(node.duration_ns)
    return found


@settings(deadline=None)
@given(passes().filter(lambda graphs: bool(graphs[0])))
def test_a_workload_of_simai_reads_back(
    tmp_path_factory: pytest.TempPathFactory, graphs: list[Graph]
) -> None:
    path = tmp_path_factory.mktemp("simai") / "w.txt"
    path.write_text("\n".join(simai_lines(graphs)[0]))
    read = read_simai(path)[0]
    assert [_acts(graph) for graph in read] == [_acts(graph) for graph in graphs]


def test_a_training_step_is_the_same_after_simai(tmp_path: Path) -> None:
    workload = {"kind": "training", "ranks": 8, "parallelism": {"tensor": 2, "data": 4}}
    spec = _spec(workload)
    graphs = graphs_of_spec(spec)
    written = write_trace_as(TraceFormat.simai, tmp_path, spec, graphs)
    assert "the time of an update" in written.left_out[0]
    read = read_workload(written.paths[0]).graphs
    kept = [graph[:-1] for graph in graphs]  # the update, which ends a pass of SimAI
    assert [_acts(graph) for graph in read] == [_acts(graph) for graph in kept]
    after = [{len(node.after) for node in graph} for graph in read]
    assert after == [{0, 1}] * 8


@pytest.mark.parametrize(
    ("workload", "told"),
    [
        ({"kind": "dlrm", "ranks": 4}, "rank 0, node 5 .* waits for node"),
        (
            {"kind": "training", "ranks": 4, "parallelism": {"pipeline": 2, "data": 2}},
            "rank 0, node 8 .*found send_recv, allowed all_gather",
        ),
        (
            {"kind": "collectives", "ranks": 4, "operations": [{"kind": "reduce", "size": "1MB"}]},
            "found reduce, allowed",
        ),
    ],
)
def test_what_simai_cannot_say_is_refused(workload: dict[str, object], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        simai_lines(graphs_of_spec(_spec(workload)))


def test_groups_that_are_none_of_megatrons_are_refused() -> None:
    pairs = [(0, 3), (1, 2), (1, 2), (0, 3)]
    graphs = [
        (CollectiveNode(id=0, name="c", call=CollectiveCall("all_reduce", 64, pairs[rank])),)
        for rank in range(4)
    ]
    with pytest.raises(ValueError, match="the groups of c are none of Megatron's"):
        simai_lines(graphs)
