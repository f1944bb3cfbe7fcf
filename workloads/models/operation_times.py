"""How long operations of torch took, from a trace of PyTorch's profiler.

The trace is what `torch.profiler.profile(record_shapes=True)` exports by `export_chrome_trace`
(Kineto's format). An operation is known by its name and the shapes of its tensors. An operation
took as long as the kernels that it launched, where the trace has kernels of a device; else as long
as it took on the processor. Operations that it called are a part of it. The median of many
occurrences counts, as the first ones warm up."""

from __future__ import annotations

import gzip
import json
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

_ON_DEVICE = frozenset(("kernel", "gpu_memcpy", "gpu_memset"))
_OPERATION = "cpu_op"
_NO_TRACE = (AttributeError, EOFError, KeyError, RecursionError, TypeError, ValueError)

Shapes = tuple[tuple[int, ...], ...]
"""Shapes of an operation's tensors, in order of its arguments; scalars and tensors of no dimension
are left out, as a trace does not tell them apart."""


class OperationTimesError(ValueError):
    """A trace that cannot be used: names the file, what was found and what is allowed."""


@dataclass(frozen=True, slots=True)
class OperationTimes:
    """Nanoseconds by (name, shapes of tensors), and whether they are those of a device. `typed` are
    those of operations on tensors of certain types, which go before them."""

    by_operation: Mapping[tuple[str, Shapes], int]
    of_device: bool
    typed: Mapping[tuple[str, Shapes, str], int] = field(default_factory=dict)

    def to_json(self) -> list[list[Any]]:
        """[name, shapes, nanoseconds] of each operation, as an observer takes them."""
        return [[name, shapes, ns] for (name, shapes), ns in sorted(self.by_operation.items())]

    def typed_json(self) -> list[list[Any]]:
        """[name, shapes, types or "", nanoseconds] of each, as virtual GPUs take them."""
        found = [(name, shapes, "", ns) for (name, shapes), ns in self.by_operation.items()]
        found += [(*key, ns) for key, ns in self.typed.items()]
        return [list(each) for each in sorted(found)]


@dataclass(slots=True)
class _Operation:
    """An event on a thread, times in nanoseconds. `device_ns` is of its own kernels at first."""

    key: tuple[str, Shapes]
    start_ns: float
    end_ns: float
    device_ns: float


def read_operation_times(path: Path) -> OperationTimes:
    """Those of a trace, which may be gzipped. Raises OperationTimesError."""
    events = _events(path)
    kernels: dict[int, float] = defaultdict(float)
    of_device = False
    for event in events:
        if event.get("cat") in _ON_DEVICE:
            of_device = True
            kernels[event["args"].get("External id", -1)] += event["dur"] * 1e3
    by_thread: dict[Any, list[_Operation]] = defaultdict(list)
    for event in events:
        if event.get("cat") == _OPERATION and "Input Dims" in event["args"]:
            shapes = tuple(_shapes(event["args"]["Input Dims"]))
            start_ns = event["ts"] * 1e3
            own_ns = kernels[event["args"].get("External id", -1)]
            by_thread[event.get("pid"), event.get("tid")].append(
                _Operation((event["name"], shapes), start_ns, start_ns + event["dur"] * 1e3, own_ns)
            )
    took: dict[tuple[str, Shapes], list[float]] = defaultdict(list)
    for operations in by_thread.values():
        for one in _outermost(operations):
            took[one.key].append(one.device_ns if of_device else one.end_ns - one.start_ns)
    if not took:
        raise OperationTimesError(
            f"{path}: found no operation with the shapes of its tensors, expected a trace of "
            "torch.profiler.profile(record_shapes=True)"
        )
    return OperationTimes({key: round(median(each)) for key, each in took.items()}, of_device)


def _events(path: Path) -> list[dict[str, Any]]:
    """The complete events of a trace that have arguments."""
    try:
        data = path.read_bytes()
        trace = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
        found = trace["traceEvents"] if isinstance(trace, dict) else trace
        events = [event for event in found if event.get("ph") == "X" and "args" in event]
        return [event for event in events if {"name", "ts", "dur"} <= event.keys()]
    except OSError as error:
        said = f"found {error.strerror}" if error.strerror else "found no gzip file"
        raise OperationTimesError(f"{path}: {said}, expected a trace of PyTorch's profiler") from (
            error
        )
    except (*_NO_TRACE, zlib.error) as error:
        raise OperationTimesError(
            f"{path}: found no traceEvents, expected JSON as export_chrome_trace of PyTorch's "
            "profiler writes it"
        ) from error


def _shapes(dims: Any) -> Iterator[tuple[int, ...]]:
    """The shapes in `Input Dims`: a list of tensors has a list of theirs."""
    for each in dims:
        if not each:
            continue
        if isinstance(each[0], list):
            yield from _shapes(each)
        else:
            yield tuple(each)


def _outermost(operations: list[_Operation]) -> Iterator[_Operation]:
    """Operations of a thread, each with the kernels of what it called; those that are called by one
    of the same key are a part of that."""
    open_: list[_Operation] = []
    kept = []
    for one in sorted(operations, key=lambda each: (each.start_ns, -each.end_ns)):
        while open_ and open_[-1].end_ns <= one.start_ns:
            open_.pop()
        if all(outer.key != one.key for outer in open_):
            kept.append(one)
        for outer in open_:
            outer.device_ns += one.device_ns
        open_.append(one)
    yield from kept
