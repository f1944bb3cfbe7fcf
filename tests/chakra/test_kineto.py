"""PyTorch's profiles of runs on NCCL become graphs that keep what the profile shows."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.chakra.errors import ChakraError
from analysis.chakra.graph import CollectiveNode, ComputeNode, Graph, ReceiveNode, SendNode
from analysis.chakra.sources.kineto import read_kineto
from analysis.chakra.sources.read import read_workload
from analysis.chakra.summary import problems
from tests.chakra.kineto_files import Profile

WORLD = 4
GROUPS = {
    0: {"0": range(4), "tp": (0, 1), "dp": (0, 2)},
    1: {"0": range(4), "tp": (0, 1), "dp": (1, 3)},
    2: {"0": range(4), "tp": (2, 3), "dp": (0, 2)},
    3: {"0": range(4), "tp": (2, 3), "dp": (1, 3)},
}


def _hybrid(rank: int, told: str = "kernel") -> Profile:
    """Two stages of two tensor-parallel ranks: compute, all-reduce, hand on, reduce gradients."""
    profile = Profile(rank, GROUPS[rank], WORLD)
    peer = rank + 2 if rank < 2 else rank - 2
    if rank >= 2:
        profile.communicate("recv", "0", 500, 30, stream=30, told=told, Src_Rank=peer)
        profile.wait(30)
    profile.compute(100)
    profile.communicate("allreduce", "tp", 1000, 40, told=told)
    profile.wait(20)
    profile.compute(50)
    if rank < 2:
        profile.communicate("send", "0", 500, 30, stream=30, told=told, Dst_Rank=peer)
    profile.communicate("_allgather_base", "dp", 250, 25, stream=40, told=told,
                        Out_msg_nelems=500)  # fmt: skip
    profile.compute(70)
    profile.wait(40)
    profile.communicate("allreduce", "0", 2000, 60, told=told)
    return profile


def _calls(graph: Graph) -> list[tuple[str, int, tuple[int, ...]]]:
    return [
        (node.call.kind, node.call.size_bytes, node.call.ranks)
        for node in graph
        if isinstance(node, CollectiveNode)
    ]


@pytest.mark.parametrize("told", ["kernel", "host"])
def test_process_groups_and_messages_are_read(tmp_path: Path, told: str) -> None:
    for rank in range(WORLD):
        _hybrid(rank, told).write(tmp_path / "p")
    read = read_workload(tmp_path / "p")
    assert problems(read.graphs) == []
    assert _calls(read.graphs[3]) == [
        ("all_reduce", 4000, (2, 3)),
        ("all_gather", 2000, (1, 3)),
        ("all_reduce", 8000, (0, 1, 2, 3)),
    ]
    (send,) = (node for node in read.graphs[1] if isinstance(node, SendNode))
    (receive,) = (node for node in read.graphs[3] if isinstance(node, ReceiveNode))
    assert (send.peer, send.size_bytes, receive.peer) == (3, 2000, 1)


def test_the_observers_file_says_what_a_profile_does_not(tmp_path: Path) -> None:
    """Older versions of PyTorch put nothing into the kernel: the observer's file of the same run
    knows the call by the id of its record function."""
    profile = _hybrid(0, "nobody")
    path = profile.write(tmp_path / "p")
    with pytest.raises(ChakraError, match="says neither what it communicates nor in which process"):
        read_workload(path)
    calls = [("allreduce", "tp", 1000), ("send", "0", 500), ("_allgather_base", "dp", 250)]
    recorded = [e for e in profile.events if e["name"] == "record_param_comms"]
    nodes = [_groups_node(GROUPS[0])]
    for number, (event, (name, group, elements)) in enumerate(
        zip(recorded, [*calls, ("allreduce", "0", 2000)], strict=True), 1
    ):
        position = 2 if name == "send" else 0
        gathered = elements * 2 if name == "_allgather_base" else elements
        nodes.append(
            _recorded_node(
                10 + number, event["args"]["Record function id"], name, group, position,
                elements, gathered,
            )
        )  # fmt: skip
    observed = {"schema": "1.1.1-chakra.0.0.4", "nodes": nodes}
    (tmp_path / "p.0.et.json").write_text(json.dumps(observed))
    graph = read_workload(path).graphs[0]
    assert _calls(graph) == [
        ("all_reduce", 4000, (0, 1)),
        ("all_gather", 2000, (0, 2)),
        ("all_reduce", 8000, (0, 1, 2, 3)),
    ]
    (send,) = (node for node in graph if isinstance(node, SendNode))
    assert (send.peer, send.size_bytes) == (2, 2000)


def test_messages_that_go_together_are_one_kernel() -> None:
    profile = Profile(1, {"0": range(4)}, WORLD)
    profile.compute(10)
    profile.record("send", "0", 100, Dst_Rank=2)
    profile.record("recv", "0", 300, Src_Rank=0)
    profile.together(20)
    profile.wait(20)
    profile.compute(10)
    graph, _ = read_kineto(profile.document(), Path("p"))
    first, send, receive, last = graph
    assert isinstance(send, SendNode) and isinstance(receive, ReceiveNode)
    assert (send.peer, send.size_bytes, receive.peer, receive.size_bytes) == (2, 400, 0, 1200)
    assert set(last.after) == {first.id, send.id, receive.id}


def test_a_run_on_nccl_without_a_profile_has_its_groups(tmp_path: Path) -> None:
    """ExecutionTraceObserver alone: the record within a c10d operator names the group."""
    for rank in range(WORLD):
        nodes = [_groups_node(GROUPS[rank])]
        for number, group in enumerate(("tp", "dp")):
            recorded = _recorded_node(11 + 10 * number, 0, "allreduce", group, 0, 256, 256)
            around = recorded | {"id": 10 + 10 * number, "name": "c10d::allreduce_"}
            nodes += [recorded, around]
        observed = {"schema": "1.1.1-chakra.0.0.4", "nodes": nodes}
        (tmp_path / f"o.{rank}.json").write_text(json.dumps(observed))
    read = read_workload(tmp_path / "o")
    assert problems(read.graphs) == []
    assert _calls(read.graphs[2]) == [("all_reduce", 1024, (2, 3)), ("all_reduce", 1024, (0, 2))]


acts = st.lists(
    st.one_of(
        st.tuples(st.just("compute"), st.integers(0, 40)),
        st.tuples(st.sampled_from(["a", "b"]), st.integers(1, 60), st.integers(0, 5)),
        st.tuples(st.just("wait"), st.sampled_from([20, 21])),
    ),
    min_size=1,
    max_size=25,
)


@given(acts, st.floats(0.5, 30))
def test_what_a_profile_shows_comes_out_of_its_graph(
    program: list[tuple[Any, ...]], launch: float
) -> None:
    """When everything begins as soon as what it waits for is over, and communication takes what it
    took, every node begins when it did, but for launches that are late by less than a
    microsecond each."""
    profile = Profile(0, {"0": range(2)}, 2, launch=launch)
    for act in program:
        if act[0] == "compute":
            profile.compute(act[1])
        elif act[0] == "wait":
            profile.wait(act[1])
        else:
            stream = 20 if act[0] == "a" else 21
            profile.communicate("allreduce", "0", 10, act[1], stream=stream, late=act[2])
    kernels = [event for event in profile.events if event["cat"] == "kernel"]
    if not kernels:
        return
    graph, _ = read_kineto(profile.document(), Path("p"))
    ends: dict[int, int] = {}
    slack_ns = 1001 * len(graph)
    for node in graph:
        begins = max((ends[id] for id in node.after), default=0)
        assert abs(begins - node.start_ns) <= slack_ns
        ends[node.id] = begins + node.duration_ns
    first = min(event["ts"] for event in kernels)
    last = max(event["ts"] + event["dur"] for event in kernels)
    assert abs(max(ends.values()) - round((last - first) * 1000)) <= slack_ns
    assert sum(isinstance(node, CollectiveNode) for node in graph) == sum(
        act[0] in ("a", "b") for act in program
    )
    # Nothing is computed twice, and stretches are in one line.
    line = [n for n in graph if isinstance(n, ComputeNode) and not n.on_host]
    assert all(a.id in b.after for a, b in pairwise(line))


@given(st.data())
def test_a_broken_profile_is_refused_in_words(data: st.DataObject) -> None:
    document = _hybrid(1).document()
    place = data.draw(st.integers(0, len(document["traceEvents"]) - 1))
    event = document["traceEvents"][place]
    value = data.draw(
        st.one_of(
            st.none(),
            st.text(max_size=5),
            st.integers(-5, 2**70),
            st.floats(),
            st.lists(st.integers(), max_size=2),
        )
    )
    key = data.draw(st.sampled_from([*event, *event["args"]]))
    (event if key in event else event["args"])[key] = value
    try:
        graph, _ = read_kineto(document, Path("broken"))
    except ChakraError as error:
        assert str(error).startswith("broken: ")
    else:
        assert graph


def _groups_node(groups: Any) -> dict[str, Any]:
    listed = [
        {"pg_name": name, "ranks": list(ranks), "group_size": len(ranks)}
        for name, ranks in groups.items()
    ]
    return _node(1, "## process_group:init ##", [json.dumps(listed)], [])


def _recorded_node(
    id: int, function: int, name: str, group: str, position: int, elements: int, results: int
) -> dict[str, Any]:
    values = [[[1, 2, 0, elements, 4, "cuda:0"]], 3, [group, ""], position, name, [], [], 0, 1, 2]
    outputs = [[[4, 5, 0, results, 4, "cuda:0"]]]
    return _node(id, "record_param_comms", values, outputs, function)


def _node(
    id: int, name: str, values: list[Any], outputs: list[Any], function: int = 0
) -> dict[str, Any]:
    attributes = [{"name": "tid", "type": "uint64", "value": 1}]
    attributes.append({"name": "rf_id", "type": "uint64", "value": function})
    return {
        "id": id,
        "name": name,
        "ctrl_deps": 0,
        "inputs": {"values": values, "shapes": [[] for _ in values], "types": []},
        "outputs": {"values": outputs, "shapes": [], "types": []},
        "attrs": attributes,
    }
