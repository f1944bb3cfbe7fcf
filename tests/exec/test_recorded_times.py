"""A program's computing takes the times that a trace of PyTorch's profiler recorded."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from tests.exec.test_charging import DEVICE, PLAN, charged
from topologies.spec.spec import SpecError, parse_spec
from workloads.models.operation_times import (
    OperationTimesError,
    read_operation_times,
)
from workloads.observer.rates import NotInTrace


def _event(cat: str, name: str, ts: float, dur: float, **args: Any) -> dict[str, Any]:
    return {
        "ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1 if cat == "cpu_op" else 7,
        "ts": ts, "dur": dur, "args": args,
    }  # fmt: skip


def _trace(path: Path, *events: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"traceEvents": [{"ph": "M"}, *events]}))
    return path


def _operation(name: str, ts: float, dur: float, number: int, *dims: object) -> dict[str, Any]:
    return _event("cpu_op", name, ts, dur, **{"Input Dims": list(dims), "External id": number})


def test_an_operation_takes_the_kernels_of_all_that_it_calls(tmp_path: Path) -> None:
    path = _trace(
        tmp_path / "trace.json",
        _operation("aten::linear", 0, 100, 1, [4, 8], [2, 8], []),
        _operation("aten::addmm", 10, 80, 2, [2], [4, 8], [8, 2], []),
        _operation("aten::copy_", 20, 5, 3, [4, 2]),
        _event("kernel", "gemm", 300, 7, **{"External id": 2}),
        _event("kernel", "copy", 310, 2, **{"External id": 3}),
        _operation("aten::t", 200, 1, 4, [8, 2]),
    )
    found = read_operation_times(path)
    assert found.of_device
    assert found.by_operation == {
        ("aten::linear", ((4, 8), (2, 8))): 9_000,
        ("aten::addmm", ((2,), (4, 8), (8, 2))): 9_000,
        ("aten::copy_", ((4, 2),)): 2_000,
        ("aten::t", ((8, 2),)): 0,
    }


def test_of_a_processor_the_median_of_outermost_calls_counts(tmp_path: Path) -> None:
    calls = [
        each
        for n, dur in enumerate((900, 10, 12))  # the first one warms up
        for each in (
            _operation("aten::mean", 1000 * n, dur, n, [3], []),
            _operation("aten::mean", 1000 * n + 1, dur - 5, n, [3], [], [], []),
        )
    ]
    path = _trace(tmp_path / "trace.json", *calls, _operation("aten::x", 5000, 1, 9, [[2], [3, 4]]))
    path.write_bytes(gzip.compress(path.read_bytes()))
    found = read_operation_times(path)
    assert not found.of_device
    assert found.by_operation == {
        ("aten::mean", ((3,),)): 12_000,
        ("aten::x", ((2,), (3, 4))): 1000,
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "found no traceEvents"),
        ('{"traceEvents": 3}', "found no traceEvents"),
        ('{"traceEvents": []}', "expected a trace of torch.profiler.profile(record_shapes=True)"),
    ],
)
def test_what_is_no_such_trace_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "trace.json"
    path.write_text(text)
    with pytest.raises(OperationTimesError, match=re.escape(said)) as raised:
        read_operation_times(path)
    assert str(raised.value).startswith(f"{path}: ")
    with pytest.raises(OperationTimesError, match="No such file"):
        read_operation_times(tmp_path / "none.json")


def _training() -> Callable[[], None]:
    layers = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8))
    optimizer = torch.optim.SGD(layers.parameters(), lr=0.01)

    def step() -> None:
        optimizer.zero_grad()
        layers(torch.ones(16, 64)).square().mean().backward()
        optimizer.step()

    return step


def test_a_step_takes_what_it_took_when_it_was_profiled(tmp_path: Path) -> None:
    """Each of its operations, to the nanosecond; what the trace lacks takes the roofline's time."""
    step = _training()
    step()
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiled:
        step()
        step()
    profiled.export_chrome_trace(str(tmp_path / "trace.json"))
    times = read_operation_times(tmp_path / "trace.json")
    lines = charged(step, PLAN | {"times": times.to_json(), "device": None})
    assert [line["phase"] for line in lines][:2] == ["forward", "backward"]
    assert all(line["by_trace"] == line["operations"] > 0 for line in lines)
    forward_ns = sum(
        times.by_operation["aten::addmm", shapes]
        for shapes in (((32,), (16, 64), (64, 32)), ((8,), (16, 32), (32, 8)))
    )
    took_ns = lines[0]["end_ns"] - lines[0]["start_ns"]
    assert forward_ns < took_ns < sum(times.by_operation.values())
    sevens = torch.ones(7, 7)
    (line,) = charged(sevens.exp, PLAN | {"times": times.to_json()})
    assert (line["operations"], line["by_trace"]) == (1, 0)
    assert line["end_ns"] - line["start_ns"] == DEVICE.time_ns(0, 2 * 4 * 49, 4)


def test_without_a_device_an_operation_that_the_trace_lacks_is_an_error() -> None:
    plan = PLAN | {"times": [["aten::exp", [[3]], 5]], "device": None, "slowdown": 2}
    three = torch.ones(3)
    assert [x["end_ns"] - x["start_ns"] for x in charged(three.exp, plan)] == [10]
    said = "the trace lacks aten::exp of [[4]]; it has it of [[[3]]]"
    with pytest.raises(NotInTrace, match=re.escape(said)):
        charged(torch.ones(4).exp, plan)
    with pytest.raises(NotInTrace, match="it has no operation of that name"):
        charged(three.cos, plan)


def test_a_trace_and_a_roofline_are_not_both_asked_for() -> None:
    text = (
        "name: p\nfabric: {kind: flat, hosts: 4}\nworkload: {kind: command, argv: [a], ranks: 4, "
    )
    with pytest.raises(SpecError, match="expected false with charge_by"):
        parse_spec(text + "charge: true, charge_by: t.json}\n")
    with pytest.raises(SpecError, match="the observer charges"):
        parse_spec(text + "observe: false, charge_by: t.json}\n")
