"""GOAL texts: what is read, refused by its line, and replayed as it is written."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.chakra.errors import ChakraError
from analysis.chakra.graph import ComputeNode, Graph, GraphNode, ReceiveNode, SendNode
from analysis.chakra.sources.goal import read_goal
from analysis.chakra.sources.read import read_workload
from analysis.chakra.summary import problems
from analysis.exporters.goal import goal_lines
from tests.session.command import groundwire

_TEXT = """// a message between two calculations
num_ranks 3
rank 0 {
  a: calc 1500 cpu 0 nic 0
  b: send 4096b to 2 tag 7
  b requires a /* over
  two lines */
  send 8b to 1
}
rank 2 { c: recv 4096b from 0 tag 7 cpu 3
d: calc 20 d requires c }
rank 1 {
recv 8b from 0
}
"""


def _read(tmp_path: Path, text: str) -> tuple[Graph, ...]:
    path = tmp_path / "schedule.goal"
    path.write_text(text)
    return read_goal(path)[0]


def test_a_text_is_read_by_rank_with_its_dependencies(tmp_path: Path) -> None:
    first, second, third = _read(tmp_path, _TEXT)
    assert first == (
        ComputeNode(id=0, name="a", duration_ns=1500),
        SendNode(id=1, name="b", after=(0,), peer=2, size_bytes=4096, tag=7),
        SendNode(id=2, name="op2", peer=1, size_bytes=8),
    )
    assert second == (ReceiveNode(id=0, name="op0", peer=0, size_bytes=8),)
    assert third == (
        ReceiveNode(id=0, name="c", peer=0, size_bytes=4096, tag=7),
        ComputeNode(id=1, name="d", after=(0,), duration_ns=20),
    )
    assert problems([first, second, third]) == []


def test_what_irequires_begins_with_waits_for_the_same(tmp_path: Path) -> None:
    (graph, _) = _read(
        tmp_path,
        "num_ranks 2 rank 0 { a: calc 5 b: recv 8b from 1 b requires a "
        "c: send 8b to 1 c irequires b d: calc 1 d irequires c d requires a }",
    )
    assert [node.after for node in graph] == [(), (0,), (0,), (0,)]


def test_two_cpus_calculate_side_by_side_and_more_are_told(tmp_path: Path) -> None:
    path = tmp_path / "cpus.goal"
    path.write_text("num_ranks 1 rank 0 { calc 5 cpu 1 calc 6 cpu 2 }")
    (graph,), notes = read_goal(path)
    assert [isinstance(n, ComputeNode) and n.on_host for n in graph] == [False, True]
    assert notes == ()
    path.write_text("num_ranks 1 rank 0 { calc 5 calc 6 cpu 1 calc 7 cpu 2 }")
    assert "on 3 CPUs" in read_goal(path)[1][0][1]
    path.write_text("num_ranks 2 rank 0 { send 0b to 1 } rank 1 { recv 0b from 0 }")
    read = read_workload(path)
    assert read.notes == ("all ranks: 1 messages have no bytes, and are sent with 1",)
    assert problems(read.graphs) == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("num_ranks", "line 1: found the end of the file, allowed a whole number"),
        ("num_ranks 0", "line 1: found '0', allowed 1 to"),
        ("num_ranks 1\nranks 0 {}", "line 2: found 'ranks', allowed rank"),
        ("num_ranks 1\nrank 1 {}", "line 2: found '1', allowed 0 to 0"),
        ("num_ranks 1\nrank 0 {}\nrank 0 {}", "line 3: rank 0 is there twice"),
        ("num_ranks 1\nrank 0 {\ncalc 5", "line 3: found the end of the file"),
        ("num_ranks 1\nrank 0 {\ncalc 5b\n}", "line 3: found '5', allowed a whole number"),
        ("num_ranks 2\nrank 0 { send 8b from 1 }", "line 2: found 'from', allowed to"),
        ("num_ranks 2\nrank 0 { recv 8b from -1 }", "line 2: op0: receives from any rank (-1)"),
        ("num_ranks 2\nrank 0 { recv 8b from 1 tag -1 }", "op0: receives any tag (-1)"),
        ("num_ranks 2\nrank 0 { send 8b to 2 }", "line 2: found '2', allowed 0 to 1"),
        ("num_ranks 1\nrank 0 { a: calc 1\na: calc 2 }", "line 3: label a is there twice"),
        ("num_ranks 1\nrank 0 { a: calc 1\na requires b }", "line 3: nothing has the label b"),
        ("num_ranks 1\nrank 0 { a: calc 1\na needs a }", "line 3: found 'needs', allowed :"),
        ("num_ranks 1\nrank 0 { calc 1 ; }", "line 2: found ';', allowed GOAL's words"),
        ("num_ranks 1\nrank 0 { a: calc 1 a irequires a }", "a: irequires leads in a circle"),
        ("num_ranks 1\nrank 0 { calc " + "9" * 5000 + " }", "allowed 0 to"),
    ],
)
def test_a_mistake_is_told_by_its_line(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ChakraError) as caught:
        _read(tmp_path, text)
    assert told in str(caught.value) and "schedule.goal" in str(caught.value)


@given(st.text(alphabet="num_raks {}:01b/*-\n sedcloqui", max_size=60))
def test_garbage_is_told(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.mktemp("garbage") / "x.goal"
    path.write_text("num_ranks 2\nrank 0 {" + text)
    try:
        graphs, _ = read_goal(path)
    except ChakraError:
        return
    assert len(graphs) == 2


@st.composite
def _graphs(draw: st.DrawFn) -> list[Graph]:
    graphs: list[Graph] = []
    for rank in range(3):
        nodes: list[GraphNode] = []
        for id in range(draw(st.integers(0, 6))):
            after = tuple(sorted(draw(st.sets(st.integers(0, id - 1), max_size=3)) if id else ()))
            kind, name = draw(st.sampled_from(["calc", "send", "recv"])), f"l{id}"
            size, peer = draw(st.integers(1, 10**9)), (rank + draw(st.integers(1, 2))) % 3
            if kind == "calc":
                nodes.append(ComputeNode(id=id, name=name, after=after, duration_ns=size))
            else:
                made = SendNode if kind == "send" else ReceiveNode
                nodes.append(made(id=id, name=name, after=after, peer=peer, size_bytes=size, tag=5))
        graphs.append(tuple(nodes))
    return graphs


@given(_graphs())
def test_what_is_exported_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, graphs: list[Graph]
) -> None:
    path = tmp_path_factory.mktemp("goal") / "x.goal"
    path.write_text("\n".join(goal_lines(graphs)))
    assert list(read_goal(path)[0]) == graphs


def test_import_makes_traces_of_a_text_that_pass(tmp_path: Path) -> None:
    (tmp_path / "x.goal").write_text(_TEXT)
    made = groundwire("trace", "import", tmp_path / "x.goal", "--out", tmp_path / "t")
    assert made.returncode == 0, made.stderr
    assert "ranks: 3" in made.stdout and "2 receive, 2 send" in made.stdout
    again = groundwire("trace", "import", tmp_path / "t", "--json")
    assert again.returncode == 0, again.stderr
    assert read_workload(tmp_path / "t").graphs == read_workload(tmp_path / "x.goal").graphs
