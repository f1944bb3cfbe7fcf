"""Kernels of virtual GPUs, one by one: `ranks/NNN.kernels.csv` of a run directory."""

from __future__ import annotations

import csv
from bisect import bisect_right
from dataclasses import dataclass

from analysis.runs.run import RankLog, Run, RunError
from workloads.virtual_gpu.interpreter.kineto import KernelEvent

_FIELDS_BEFORE = list(KernelEvent._fields[:-2])
"""The columns of runs that did not number their launches."""
_TOGETHER_NS = 1000
"""Kernels of a stream that are this close are one stretch of a drawing."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Kernels of a stream, one behind the other, in one iteration; `first` is an operator."""

    stream: int
    iteration: int
    start_ns: int
    end_ns: int
    kernels: int
    first: str


def read_kernels(run: Run, rank: int) -> tuple[KernelEvent, ...]:
    """The kernels of a rank in order of their ends on each stream; none where it has no virtual
    GPU. Raises RunError."""
    path = run.directory / "ranks" / f"{rank:03d}.kernels.csv"
    if not path.exists():
        return ()
    found = []
    with path.open(newline="") as file:
        rows = csv.reader(file)
        if next(rows, None) not in (list(KernelEvent._fields), _FIELDS_BEFORE):
            expected = ",".join(KernelEvent._fields)
            raise RunError(f"{path}:1: expected {expected} as the first line")
        for number, row in enumerate(rows, 2):
            try:
                device, stream, operator, phase, *numbers = row
                after = numbers.pop() if len(row) == len(KernelEvent._fields) else ""
                launched_ns, start_ns, end_ns, flops, moved, *more = map(int, numbers)
                (launch,) = more or [-1]
                kernel = KernelEvent(
                    int(device), int(stream), operator, phase, launched_ns, start_ns, end_ns, flops,
                    moved, launch, tuple(map(int, after.split())),
                )  # fmt: skip
            except ValueError as error:
                raise RunError(f"{path}:{number}: {error}") from None
            found.append(kernel)
    return tuple(found)


def side_stretches(run: Run, log: RankLog) -> tuple[Stretch, ...]:
    """The work of a rank's streams other than the default one, whose work its log has
    (`computes`). Kernels behind the last iteration have a number that no iteration has. Raises
    RunError."""
    found: list[Stretch] = []
    last: dict[int, int] = {}
    ends = [each.end_ns for each in log.iterations]
    for kernel in read_kernels(run, log.rank):
        if kernel.stream == 0:
            continue
        iteration = bisect_right(ends, kernel.start_ns)
        place = last.get(kernel.stream)
        if place is not None:
            before = found[place]
            gap_ns = kernel.start_ns - before.end_ns
            if before.iteration == iteration and gap_ns <= _TOGETHER_NS * run.environment.scale:
                found[place] = Stretch(
                    before.stream, iteration, before.start_ns, kernel.end_ns, before.kernels + 1,
                    before.first,
                )  # fmt: skip
                continue
        last[kernel.stream] = len(found)
        found.append(
            Stretch(kernel.stream, iteration, kernel.start_ns, kernel.end_ns, 1, kernel.operator)
        )
    return tuple(found)
