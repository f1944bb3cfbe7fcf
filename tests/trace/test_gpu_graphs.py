"""A run with virtual GPUs as graphs: what each launch waits for."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from analysis.chakra.foreign import as_feeder_reads
from analysis.chakra.graph import (
    CollectiveNode,
    ComputeNode,
    from_trace,
    number_groups,
    to_trace,
)
from analysis.chakra.sources.from_gpus import graphs_of_gpus
from analysis.runs.records import CollectiveRecord, IterationRecord
from analysis.runs.run import Run, RunError
from workloads.virtual_gpu.interpreter.kineto import KernelEvent

_COLUMNS = ",".join(KernelEvent._fields)
# Default stream: a product of the iteration before, two of this one and the optimizer's kernel.
_KERNELS = """
0,0,aten::mm,forward,0,0,90,8,8,0,
0,0,aten::mm,forward,100,100,200,8,8,1,
0,0,aten::mul,backward,100,500,600,8,8,3,2
0,0,aten::add_,optimizer,650,650,700,8,8,4,
"""


def _run(folder: Path, launches: int | None = 5, rows: str = _KERNELS) -> Run:
    (folder / "ranks").mkdir()
    (folder / "ranks/000.kernels.csv").write_text(_COLUMNS + rows)
    reduced = CollectiveRecord(
        event="collective", id="default.0.all_reduce", kind="all_reduce", phase="all_reduce",
        group="default", tag=0, size_bytes=1000, iteration=1, ranks=None, start_ns=200, end_ns=500,
        waited_ns=0, known=0, stream=1000, posted_ns=100, number=2, after=[1],
    )  # fmt: skip
    steps = (
        IterationRecord(event="iteration", index=0, start_ns=0, end_ns=90, launches=1),
        IterationRecord(event="iteration", index=1, start_ns=90, end_ns=700, launches=launches),
    )
    log = SimpleNamespace(rank=0, iterations=steps, collectives=(reduced,), gpus=(object(),))
    run = SimpleNamespace(directory=folder, ranks=(log,), environment=SimpleNamespace(scale=1))
    return cast(Run, cast(Any, run))


def test_a_launch_waits_for_its_stream_for_others_and_for_its_host(tmp_path: Path) -> None:
    (graph,) = graphs_of_gpus(_run(tmp_path), 1)
    said = [(node.name, node.after, node.start_ns, node.duration_ns) for node in graph]
    assert said == [
        ("aten::mm", (), 0, 100),
        ("default.0.all_reduce", (0,), 100, 300),
        ("aten::mul", (0, 1), 400, 100),
        ("host", (2,), 500, 50),  # it launched late
        ("aten::add_", (3,), 550, 50),
    ]
    assert [node.stream for node in graph] == [0, 1000, 0, None, 0]
    assert isinstance(graph[1], CollectiveNode) and graph[1].call.ranks == (0,)
    assert isinstance(graph[3], ComputeNode) and graph[3].on_host


def test_a_trace_of_it_comes_back_with_no_order_added(tmp_path: Path) -> None:
    graphs = graphs_of_gpus(_run(tmp_path), 1)
    groups = number_groups(graphs)
    trace, notes = as_feeder_reads(to_trace(graphs[0], groups))
    assert not notes and from_trace(trace, groups) == graphs[0]


def test_logs_that_do_not_number_launches_or_lack_some_are_refused(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    with pytest.raises(RunError, match="a run of an older version"):
        graphs_of_gpus(_run(tmp_path / "old", launches=None), 1)
    (tmp_path / "lacks").mkdir()
    with pytest.raises(RunError, match="launched 5 kernels"):
        graphs_of_gpus(_run(tmp_path / "lacks", launches=6), 1)
