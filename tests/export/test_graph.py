"""Graphs to Chakra and back, and collectives as messages."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analysis.chakra.check import check_trace
from analysis.chakra.codec import decode, encode, write_trace
from analysis.chakra.errors import ChakraError
from analysis.chakra.expand import Part, expand, parts
from analysis.chakra.files import write_graphs
from analysis.chakra.graph import (
    CollectiveNode,
    ComputeNode,
    Graph,
    Groups,
    ReceiveNode,
    SendNode,
    from_trace,
    number_groups,
    to_trace,
    trace_groups,
)
from analysis.chakra.sources.read import read_workload
from analysis.chakra.trace import Trace
from collectives.algorithms import algorithm
from collectives.call import CollectiveCall
from collectives.chunking import Chunking, cut
from collectives.kinds import Kind, Shape
from tests.export.export_graphs import WITH_CHAKRA_TYPE, WITHOUT, workloads


@settings(deadline=None)
@given(workloads(WITH_CHAKRA_TYPE))
def test_a_graph_survives_the_way_through_a_file(graphs: list[Graph]) -> None:
    groups = number_groups(graphs)
    for graph in graphs:
        trace = decode(encode(to_trace(graph, groups)))
        check_trace(trace)
        assert from_trace(trace) == graph


@settings(deadline=None)
@given(workloads(), st.booleans())
def test_expanded_graphs_are_complete_and_match(graphs: list[Graph], everything: bool) -> None:
    """Every send meets one receive of the same tag and size, and nothing is lost on the way."""

    def chosen(call: CollectiveCall) -> bool:
        return everything or call.kind in WITHOUT

    expanded = expand(graphs, chosen, first_tag=100)
    sent: Counter[tuple[int, int, int, int]] = Counter()
    received: Counter[tuple[int, int, int, int]] = Counter()
    for rank, (graph, before) in enumerate(zip(expanded, graphs, strict=True)):
        ids = {node.id for node in graph}
        assert len(ids) == len(graph)
        for node in graph:
            assert set(node.after) <= ids
            if isinstance(node, SendNode):
                sent[rank, node.peer, node.tag, node.size_bytes] += 1
            elif isinstance(node, ReceiveNode):
                received[node.peer, rank, node.tag, node.size_bytes] += 1
            elif isinstance(node, CollectiveNode):
                assert not chosen(node.call)
        check_trace(to_trace(graph, number_groups(expanded)))
        assert [n.id for n in graph if isinstance(n, ComputeNode)] == [
            n.id for n in before if isinstance(n, ComputeNode)
        ]
        # The last computation still comes after all that came before it.
        last = max(n.id for n in graph if isinstance(n, ComputeNode))
        parents = {node.id: node.after for node in graph}
        reached, left = set(), [last]
        while left:
            for parent in parents[left.pop()]:
                if parent not in reached:
                    reached.add(parent)
                    left.append(parent)
        assert {n.id for n in graph if isinstance(n, ComputeNode) and n.id < last} <= reached
    assert sent == received


def test_a_broadcast_is_a_binomial_tree() -> None:
    found = parts(CollectiveCall("broadcast", 4096, tuple(range(8))))
    senders = {rank: sum(o.sends for o in part.operations) for rank, part in found.items()}
    assert senders == {0: 3, 1: 2, 2: 1, 3: 1, 4: 0, 5: 0, 6: 0, 7: 0}
    # A rank must have received the blocks that it passes on.
    for rank, part in found.items():
        for operation in part.operations:
            if operation.sends and rank != 0:
                assert any(not part.operations[p].sends for p in operation.after)


def test_all_reduce_keeps_two_messages_in_flight() -> None:
    """Gloo's ring for 1 MiB over 8 ranks: 28 messages a rank (design of its wire)."""
    part = parts(CollectiveCall("all_reduce", 1 << 20, tuple(range(8))))[0]
    sends = [o for o in part.operations if o.sends]
    assert len(sends) == 28
    assert {o.size_bytes for o in sends} == {65_536}
    assert all(len(o.after) <= 4 for o in part.operations)


def test_groups_are_numbered_once_and_travel_in_the_trace() -> None:
    groups = Groups(6)
    assert groups.number(tuple(range(6))) == 0
    assert groups.number((4, 2)) == 1
    assert groups.number((2, 4)) == 2
    assert groups.number((4, 2)) == 1
    call = CollectiveCall("all_reduce", 64, (4, 2))
    node = CollectiveNode(id=1, name="x", call=call)
    assert from_trace(to_trace((node,), groups)) == (node,)
    assert trace_groups(to_trace((node,), groups)).subgroups() == {1: (4, 2), 2: (2, 4)}


def test_a_trace_of_other_origin_needs_its_world() -> None:
    groups = Groups(4)
    node = CollectiveNode(id=1, name="x", call=CollectiveCall("all_reduce", 64, (0, 1, 2, 3)))
    trace = to_trace((node,), groups)
    bare = decode(encode(type(trace)(trace.nodes)))
    with pytest.raises(ValueError, match="no world_size"):
        from_trace(bare)
    assert from_trace(bare, groups) == (node,)


@settings(
    deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(workloads())
def test_a_workload_survives_its_files(tmp_path: Path, graphs: list[Graph]) -> None:
    """Written, read and written again: the same graphs and the same bytes."""
    folder = tmp_path / str(len(graphs))
    folder.mkdir(exist_ok=True)
    first = [path.read_bytes() for path in write_graphs(folder / "w", graphs)]
    found = list(read_workload(folder / "w").graphs)
    assert len(found) == len(graphs)
    if not any(n.call.kind in WITHOUT for g in graphs for n in g if isinstance(n, CollectiveNode)):
        assert found == graphs
    assert [path.read_bytes() for path in write_graphs(folder / "w", found)] == first


def test_an_unknown_group_names_the_file(tmp_path: Path) -> None:
    groups = Groups(2, {5: (1, 0)})
    node = CollectiveNode(id=1, name="x", call=CollectiveCall("all_reduce", 64, (1, 0)))
    bare = Trace(to_trace((node,), groups).nodes)
    for rank in range(2):
        write_trace(tmp_path / f"w.{rank}.et", bare)
    with pytest.raises(ChakraError, match=r"w\.0\.et: node 1: pg_name: no ranks are told of"):
        read_workload(tmp_path / "w")
    file = tmp_path / "groups.json"
    file.write_text('{"5": [1, 0]}')
    assert read_workload(tmp_path / "w", groups=file).graphs == ((node,), (node,))


def test_what_chakra_cannot_say_is_refused() -> None:
    incast = CollectiveNode(id=3, name="x", call=CollectiveCall("incast", 64, (0, 1)))
    with pytest.raises(ValueError, match="node 3: Chakra has no collective incast"):
        to_trace((incast,), Groups(2))
    uneven = CollectiveNode(id=4, name="x", call=CollectiveCall("all_gather", 65, (0, 1)))
    with pytest.raises(ValueError, match="65 bytes does not divide into 2"):
        to_trace((uneven,), Groups(2))


@pytest.mark.parametrize(
    ("name", "options", "schedule"),
    [
        ("ring", {"channels": 2, "both_directions": True}, Chunking(chunks=3, in_flight=2)),
        ("direct", {}, Chunking()),
        ("double-binary-tree", {}, Chunking(chunks=4)),
        ("hierarchical", {"dimensions": [2, 4]}, Chunking(chunks=4, active_per_dimension=1)),
    ],
)
def test_a_program_is_exported_as_its_messages(
    name: str, options: dict[str, object], schedule: Chunking
) -> None:
    """Every message of the plan once at each end, with a tag of its own, in an order that can be
    followed: what an operation waits for comes before it."""
    shape = Shape(Kind.ALL_REDUCE, 64_000, 8, 4)
    found = cut(shape, algorithm(name, **options), schedule)
    members = (3, 1, 0, 2, 7, 6, 5, 4)
    call = CollectiveCall("all_reduce", 64_000, members, schedule=found)
    exported = parts(call)
    sent, received = Counter[tuple[int, ...]](), Counter[tuple[int, ...]]()
    for rank, part in exported.items():
        for position, operation in enumerate(part.operations):
            ends = (rank, operation.peer) if operation.sends else (operation.peer, rank)
            (sent if operation.sends else received)[*ends, operation.tag, operation.size_bytes] += 1
            assert all(before < position for before in operation.after)
        assert part.tags == sum(1 for _ in found.numbered_messages())
    assert sent == received and set(sent.values()) == {1}
    expected = Counter(
        (members[m.source], members[m.destination], m.size_bytes) for m in found.numbered_messages()
    )
    assert Counter((a, b, size) for a, b, _, size in sent) == expected
    assert _finishes(exported)


def _finishes(exported: dict[int, Part]) -> bool:
    """Whether messages that move when both ends are posted all move in the end."""
    over: set[tuple[int, int]] = set()
    place = {
        (rank, o.tag, o.sends): i
        for rank, part in exported.items()
        for i, o in enumerate(part.operations)
    }
    again = True
    while again:
        again = False
        for rank, part in exported.items():
            for i, o in enumerate(part.operations):
                other = (o.peer, place[o.peer, o.tag, not o.sends])
                ready = all((rank, p) in over for p in o.after) and all(
                    (o.peer, p) in over for p in exported[o.peer].operations[other[1]].after
                )
                if (rank, i) not in over and ready:
                    over |= {(rank, i), other}
                    again = True
    return len(over) == sum(len(part.operations) for part in exported.values())
