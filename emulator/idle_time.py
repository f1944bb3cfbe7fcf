"""The longest time in which nothing runs though all is well: what a spec has its ranks wait for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from topologies.spec.spec import Spec
from topologies.spec.workload_section import (
    ITEM_BYTES,
    ChakraWorkload,
    CollectivesWorkload,
    CommandWorkload,
)
from workloads.models.build import step_of
from workloads.models.replay import DIRECTORY, ReplayCompute, read_program
from workloads.models.step import ComputeKernel, Pause


def longest_idle_ns(spec: Spec, run_directory: Path) -> int:
    """Nanoseconds, at most: from the start until the last job begins, and the longest computation
    of a rank. Programs of users are not known. What a trace computes is in the replay programs of
    the run directory: raises OSError when they are not there, pydantic.ValidationError.
    """
    begins_ns = max((job.start_ns for job in spec.jobs), default=0)
    longest_ns = 0
    for name, part in spec.parts.items():
        place = run_directory / "jobs" / name if spec.jobs else run_directory
        longest_ns = max(longest_ns, *_computations_ns(part, place), 0)
    return begins_ns + longest_ns


def _computations_ns(spec: Spec, place: Path) -> Iterator[int]:
    workload, compute = spec.workload, spec.compute
    if isinstance(workload, CollectivesWorkload | CommandWorkload):
        return
    if isinstance(workload, ChakraWorkload):
        for rank in range(workload.ranks):
            for node in read_program(place / DIRECTORY, rank):
                if isinstance(node, ReplayCompute):
                    yield node.duration_ns * compute.slowdown
        return
    item_bytes = ITEM_BYTES[workload.dtype]
    for rank in range(workload.ranks):
        for action in step_of(workload, rank):
            if isinstance(action, Pause):
                yield action.duration_ns * compute.slowdown
            elif isinstance(action, ComputeKernel) and compute.device != "real":
                yield compute.time_ns(action.flops, action.moved_bytes, item_bytes)
