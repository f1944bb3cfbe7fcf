"""GOAL's binary files, SimAI's workloads, ns-3's flows and htsim's matrices become graphs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.chakra.errors import ChakraError
from analysis.chakra.graph import CollectiveNode, ComputeNode, Graph, SendNode
from analysis.chakra.sources.from_spec import graphs_of_spec
from analysis.chakra.sources.goal import GoalOperation, read_goal
from analysis.chakra.sources.goal_binary import goal_binary
from analysis.chakra.sources.read import read_workload
from analysis.chakra.summary import problems
from analysis.exporters.write import TraceFormat, write_trace_as
from topologies.spec.spec import parse_dict

SIMAI = """HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 2 pp: 2 vpp: 1 ga: 1 \
all_gpus: 16 checkpoints: 0 checkpoint_initiates: 0 pp_comm 1024
2
attention\t-1\t500\tALLREDUCE\t100\t300\tALLREDUCE\t8192\t200\tALLREDUCE\t65536\t100
experts -1 700 ALLTOALL_EP 16384 400 ALLTOALL_EP 16384 100 ALLREDUCE_DP_EP 32768 100
"""
FLOWS = "2\n0 2 3 100 2000 0.000002\n1 2 3 100 3000 0\n"
MATRIX = """# a comment
Nodes 4
Connections 3
Triggers 1
0->1 id 1 start 0 size 1000 recv_done_trigger 1
1->2 id 2 trigger 1 size 500
3->2 id 3 start 2000000 size 700
trigger id 1 oneshot
"""


def _write(folder: Path, text: str | bytes) -> Path:
    path = folder / "file"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def _calls(graph: Graph) -> list[tuple[str, int, tuple[int, ...]]]:
    calls = [node.call for node in graph if isinstance(node, CollectiveNode)]
    return [(call.kind, call.size_bytes, call.ranks) for call in calls]


def test_simais_groups_are_megatrons(tmp_path: Path) -> None:
    """16 GPUs: 2 tensor-parallel, 4 data-parallel of which 2 spread experts, 2 stages."""
    read = read_workload(_write(tmp_path, SIMAI))
    assert problems(read.graphs) == []
    assert _calls(read.graphs[11]) == [
        ("all_reduce", 4096, (10, 11)),
        ("all_to_all", 16384, (9, 11)),
        ("all_to_all", 16384, (9, 11)),
        ("all_reduce", 32768, (11, 15)),
        ("all_reduce", 8192, (10, 11)),
        ("all_reduce", 65536, (9, 11, 13, 15)),
    ]
    assert "pp_comm" in read.notes[0]
    times = [n.duration_ns for n in read.graphs[0] if isinstance(n, ComputeNode)]
    assert times == [500, 700, 400, 100, 300, 200]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("all_gpus: 16 ", "", "line 1: all_gpus: is not there"),
        ("all_gpus: 16", "all_gpus: 12", "expected a multiple of"),
        ("ALLTOALL_EP 16384 400", "BROADCASTS 16384 400", "line 4: the collective of forward"),
        ("\n2\n", "\n3\n", "line 2: found 3, and 2 layers behind it"),
        ("checkpoints: 0", "checkpoints: 1", "checkpoints are not replayed"),
    ],
)
def test_what_simai_would_misread_is_refused(tmp_path: Path, old: str, new: str, told: str) -> None:
    assert old in SIMAI
    with pytest.raises(ChakraError, match="file: ") as refused:
        read_workload(_write(tmp_path, SIMAI.replace(old, new)))
    assert told in str(refused.value)


def test_flows_begin_when_they_are_to(tmp_path: Path) -> None:
    graphs = read_workload(_write(tmp_path, FLOWS)).graphs
    assert problems(graphs) == []
    clock, send = graphs[0]
    assert isinstance(clock, ComputeNode) and clock.duration_ns == 2000
    assert isinstance(send, SendNode) and (send.peer, send.size_bytes) == (2, 2000)


def test_a_flow_sets_off_another_one(tmp_path: Path) -> None:
    graphs = read_workload(_write(tmp_path, MATRIX)).graphs
    assert problems(graphs) == []
    receive, send = graphs[1]
    assert send.after == (receive.id,)
    assert isinstance(graphs[3][0], ComputeNode) and graphs[3][0].duration_ns == 2000
    with pytest.raises(ChakraError, match="line 6: trigger 1 is set off at another node than 3"):
        read_workload(_write(tmp_path, MATRIX.replace("1->2 id 2", "3->2 id 2")))


@st.composite
def schedules(draw: st.DrawFn) -> list[list[GoalOperation]]:
    found = []
    for _ in range(draw(st.integers(1, 3))):
        operations: list[GoalOperation] = []
        for number in range(draw(st.integers(0, 6))):
            earlier = st.lists(st.integers(0, number - 1), max_size=2, unique=True)
            after = draw(earlier) if number else []
            begun = [p for p in draw(earlier) if p not in after] if number else []
            size, cpu = draw(st.integers(0, 10**6)), draw(st.integers(0, 2))
            operations.append(
                GoalOperation(number, f"op{number}", "calc", size, -1, {"cpu": cpu}, after, begun)
            )
        found.append(operations)
    for number in range(draw(st.integers(0, 3)) if len(found) > 1 else 0):
        source, destination = draw(st.permutations(range(len(found))))[:2]
        size = draw(st.integers(1, 10**6))
        for end, kind, peer in ((source, "send", destination), (destination, "recv", source)):
            name = f"op{len(found[end])}"
            found[end].append(GoalOperation(0, name, kind, size, peer, {"tag": number}))
    return found


def _text(ranks: list[list[GoalOperation]]) -> str:
    lines = [f"num_ranks {len(ranks)}"]
    for rank, operations in enumerate(ranks):
        lines.append(f"rank {rank} {{")
        for each in operations:
            ends = {"calc": "", "send": f"b to {each.peer}", "recv": f"b from {each.peer}"}
            options = " ".join(f"{key} {value}" for key, value in each.options.items())
            lines.append(f"{each.name}: {each.kind} {each.size}{ends[each.kind]} {options}")
        for each in operations:
            lines += [f"{each.name} requires op{place}" for place in each.after]
            lines += [f"{each.name} irequires op{place}" for place in each.with_]
        lines.append("}")
    return "\n".join(lines)


@given(schedules())
def test_a_binary_says_what_its_text_says(
    tmp_path_factory: pytest.TempPathFactory, ranks: list[list[GoalOperation]]
) -> None:
    folder = tmp_path_factory.mktemp("goal")
    (folder / "text").write_text(_text(ranks))
    read = read_workload(_write(folder, goal_binary(ranks)))
    assert read.graphs == read_goal(folder / "text")[0]


@given(st.sampled_from(["goal", SIMAI, FLOWS, MATRIX]), st.data())
def test_broken_files_are_told_by_their_place(
    tmp_path_factory: pytest.TempPathFactory, kind: str, data: st.DataObject
) -> None:
    whole = bytearray(goal_binary(data.draw(schedules())) if kind == "goal" else kind.encode())
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(8, len(whole) - 1))] = data.draw(st.integers(0, 255))
    whole = whole[: data.draw(st.integers(len(whole) // 2, len(whole)))]
    path = _write(tmp_path_factory.mktemp("broken"), bytes(whole))
    try:
        read_workload(path)
    except ChakraError as error:
        assert str(path) in str(error)


def test_an_exported_workload_is_the_same_as_text_and_as_binary(tmp_path: Path) -> None:
    raw = {"name": "w", "fabric": {"kind": "flat", "hosts": 4}}
    spec = parse_dict(raw | {"workload": {"kind": "dlrm", "ranks": 4}})
    graphs = graphs_of_spec(spec)
    text, binary = (
        write_trace_as(format_, tmp_path, spec, graphs).paths[0]
        for format_ in (TraceFormat.goal, TraceFormat.goal_binary)
    )
    read = [read_workload(path).graphs for path in (text, binary)]
    assert problems(read[1]) == []
    for one, other in zip(*read, strict=True):
        assert [replace(n, id=0, name="", after=()) for n in one] == [
            replace(n, id=0, name="", after=()) for n in other
        ]
        assert [len(n.after) for n in one] == [len(n.after) for n in other]
