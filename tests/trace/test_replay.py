"""Export, replay with real Gloo, export again: the same graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from analysis.chakra.graph import CollectiveNode, ComputeNode, Graph, ReceiveNode, SendNode
from analysis.chakra.sources.from_run import graphs_of_run
from analysis.chakra.sources.from_spec import graphs_of_spec
from analysis.chakra.sources.read import read_workload
from analysis.runs.run import load_run
from tests.session.command import groundwire

_FABRIC = "fabric: {kind: flat, hosts: 4, link: {rate: 100Gbps, delay: 500ns, mtu: 9000}}\n"
_STEP = f"""
name: step
{_FABRIC}
workload: {{kind: dlrm, ranks: 4, iterations: 2, batch_size: 16, bottom_mlp: [64, 64],
  top_mlp: [64, 1], bucket: 20KB}}
"""


def _shape(graph: Graph) -> list[tuple[Any, ...]]:
    """All of a graph but its times."""
    found: list[tuple[Any, ...]] = []
    for node in graph:
        match node:
            case CollectiveNode():
                what: tuple[Any, ...] = (node.call,)
            case ComputeNode():
                what = (node.flops, node.memory_bytes)
            case SendNode() | ReceiveNode():
                what = (type(node).__name__, node.peer, node.size_bytes, node.tag)
            case _:
                raise AssertionError(node)
        found.append((node.id, node.name, node.after, *what))
    return found


def test_export_replay_export_gives_the_same_graph(tmp_path: Path) -> None:
    spec = tmp_path / "step.yaml"
    spec.write_text(_STEP)
    run, first, again = tmp_path / "run", tmp_path / "first", tmp_path / "again"
    commands: tuple[tuple[str | Path, ...], ...] = (
        ("run", spec, "--kernel", "virtual", "--out", run),
        ("trace", "export", run, "--out", first),
        (
            *("trace", "replay", first / "step", "--on", spec, "--kernel", "virtual"),
            *("--out", tmp_path / "rerun"),
        ),
        ("trace", "export", tmp_path / "rerun", "--out", again),
    )
    for arguments in commands:
        done = groundwire(*arguments)
        assert done.returncode == 0, done.stderr
    before, after = (read_workload(each / "step").graphs for each in (first, again))
    assert [_shape(graph) for graph in before] == [_shape(graph) for graph in after]
    assert {type(node) for graph in before for node in graph} == {ComputeNode, CollectiveNode}
    measured = load_run(run)
    # The log shows the acts of the program.
    planned = graphs_of_spec(measured.spec)
    assert [_shape(g) for g in graphs_of_run(measured)] == [_shape(g) for g in planned]
    for old, new in zip(before, after, strict=True):
        for left, right in zip(old, new, strict=True):
            if isinstance(left, ComputeNode):
                # Sleeps end on the clock's next tick at the latest.
                assert 0 <= right.duration_ns - left.duration_ns <= 1000
