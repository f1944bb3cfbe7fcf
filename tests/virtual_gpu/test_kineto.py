"""Kernels of virtual GPUs as Kineto's profiles, and the file that has them in a run directory."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.chakra.graph import CollectiveNode, ComputeNode
from analysis.chakra.sources.kineto import read_kineto
from analysis.runs.kernels import read_kernels, side_stretches
from analysis.runs.run import RankLog, Run, RunError
from workloads.virtual_gpu.interpreter.kineto import (
    CommunicationEvent,
    KernelEvent,
    device_events,
)

HEAD = ",".join(KernelEvent._fields) + "\n"
_TIMES = st.integers(0, 10**9)


def _kernels() -> st.SearchStrategy[list[KernelEvent]]:
    one = st.builds(
        lambda stream, name, start_ns, length_ns, early_ns: KernelEvent(
            0, stream, name, "forward", max(0, start_ns - early_ns), start_ns, start_ns + length_ns,
            7, 9,
        ),
        st.integers(0, 5), st.sampled_from(["aten::mm", "aten::add", "copy to device"]), _TIMES,
        st.integers(0, 10**6), st.integers(0, 10**6),
    )  # fmt: skip
    return st.lists(one, max_size=20)


@given(_kernels())
def test_each_kernel_has_its_times_and_a_launch_before_it(kernels: list[KernelEvent]) -> None:
    events = list(device_events(kernels, [], 99, 1, lambda ns: ns / 1000))
    launches = {
        each["args"]["correlation"]: each for each in events if each.get("cat") == "cuda_runtime"
    }
    device = [each for each in events if each.get("cat") in ("kernel", "gpu_memcpy")]
    assert len(device) == len(launches) == len(kernels)
    for event, kernel in zip(device, kernels, strict=True):
        assert event["ts"] == kernel.start_ns / 1000
        assert event["dur"] == pytest.approx((kernel.end_ns - kernel.start_ns) / 1000, abs=1e-3)
        assert event["args"]["stream"] == event["tid"]
        launch = launches[event["args"]["correlation"]]
        assert launch["ts"] == kernel.launched_ns / 1000 <= event["ts"]
    assert {each["name"] for each in device} <= {"aten::mm", "aten::add", "Memcpy HtoD"}


def test_a_reader_of_profiles_finds_what_was_written() -> None:
    kernels = [
        KernelEvent(0, 0, "aten::mm", "forward", 100, 1000, 5000, 0, 0),
        KernelEvent(0, 0, "aten::add", "forward", 100, 5000, 6000, 0, 0),
    ]
    gather = CommunicationEvent(
        0, 1000, "_allgather_base", "dp", (0, 1), "BFloat16", 512, 1024, 200, 6000, 9000
    )
    document = {
        "distributedInfo": {"rank": 0, "world_size": 2},
        "traceEvents": list(device_events(kernels, [gather], 99, 1, lambda ns: ns / 1000)),
    }
    graph, notes = read_kineto(document, Path("p.0.json"))
    (call,) = [node.call for node in graph if isinstance(node, CollectiveNode)]
    assert (call.kind, call.size_bytes, call.ranks) == ("all_gather", 2048, (0, 1))
    assert sum(node.duration_ns for node in graph if isinstance(node, ComputeNode)) == 5000
    assert not notes


def _run(directory: Path) -> Run:
    (directory / "ranks").mkdir(exist_ok=True)
    run = SimpleNamespace(directory=directory, environment=SimpleNamespace(scale=1))
    return cast(Run, cast(Any, run))


def test_kernels_are_read_as_they_were_written(tmp_path: Path) -> None:
    run = _run(tmp_path)
    assert read_kernels(run, 3) == ()
    (tmp_path / "ranks" / "003.kernels.csv").write_text(
        HEAD + "0,0,aten::mm,forward,1,2,3,4,5\n0,7,copy to host,forward,6,7,8,0,9\n"
    )
    assert read_kernels(run, 3) == (
        KernelEvent(0, 0, "aten::mm", "forward", 1, 2, 3, 4, 5),
        KernelEvent(0, 7, "copy to host", "forward", 6, 7, 8, 0, 9),
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "csv:1: expected device,stream"),
        ("a,b\n", "csv:1: expected device,stream"),
        (HEAD + "0,0,aten::mm,forward,1,2\n", "csv:2: not enough"),
        (HEAD + "0,x,aten::mm,forward,1,2,3,4,5\n", "csv:2: invalid literal"),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, text: str, said: str) -> None:
    run = _run(tmp_path)
    (tmp_path / "ranks" / "000.kernels.csv").write_text(text)
    with pytest.raises(RunError, match=said):
        read_kernels(run, 0)


def test_what_other_streams_do_is_told_in_stretches(tmp_path: Path) -> None:
    run = _run(tmp_path)
    rows = [(0, 0, 50), (3, 100, 400), (3, 500, 900), (3, 4000, 4100), (3, 9000, 9100)]
    (tmp_path / "ranks" / "000.kernels.csv").write_text(
        HEAD + "".join(f"0,{s},aten::add,forward,0,{a},{b},0,0\n" for s, a, b in rows)
    )
    steps = [SimpleNamespace(end_ns=5000)]
    log = cast(RankLog, cast(Any, SimpleNamespace(rank=0, iterations=steps)))
    found = side_stretches(run, log)
    assert [(s.stream, s.iteration, s.start_ns, s.end_ns, s.kernels) for s in found] == [
        (3, 0, 100, 900, 2), (3, 0, 4000, 4100, 1), (3, 1, 9000, 9100, 1)
    ]  # fmt: skip
