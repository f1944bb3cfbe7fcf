"""The collectives that a spec will run, before it runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from collectives.call import CollectiveCall, CollectiveError
from collectives.groups import groups_of
from collectives.kinds import Kind, barrier_shape, rounded_elements
from collectives.settings import schedule_of, settings_of
from topologies.spec.spec import Spec
from topologies.spec.workload_section import (
    CollectivesWorkload,
    Incast,
    Permutation,
    RootedCollective,
    SendRecv,
    WorkloadSpec,
)
from workloads.models.build import has_actions, step_of
from workloads.models.step import StartCollective, StartMessage


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """A collective of every iteration; `name` is its id in a run without the iteration."""

    name: str
    call: CollectiveCall


def planned_calls(spec: Spec) -> tuple[PlannedCall, ...]:
    """The collectives of one iteration, in order of posting.

    Raises CollectiveError for workloads whose collectives only a run shows.
    """
    workload = spec.workload
    if workload.listed is not None:
        return tuple(_of_benchmark(spec, workload.listed))
    if has_actions(workload):
        return tuple(_of_model(spec, workload))
    raise CollectiveError(
        f"workload.kind: {workload.kind} is not predicted ahead; run it, then compare"
    )


def _with_schedule(
    spec: Spec, call: CollectiveCall, entry: Mapping[str, Any] | None = None
) -> CollectiveCall:
    """The call with its schedule by the spec."""
    return replace(call, schedule=schedule_of(settings_of(spec), call.shape, entry, call.ranks))


def _of_benchmark(spec: Spec, workload: CollectivesWorkload) -> Iterator[PlannedCall]:
    ranks = tuple(range(workload.ranks))
    item_bytes = workload.item_bytes
    for index, operation in enumerate(workload.operations):
        # As the benchmark rounds.
        kind = Kind(operation.kind)
        entry = getattr(operation, "program", None)
        if kind is Kind.BARRIER and entry:
            shape = barrier_shape(len(ranks))
            call = CollectiveCall(shape.kind, shape.size_bytes, ranks, shape.element_bytes)
            yield PlannedCall(f"{operation.kind}.{index}", _with_schedule(spec, call, entry))
            continue
        elements = rounded_elements(kind, operation.size_bytes, len(ranks), item_bytes)
        call = CollectiveCall(
            kind,
            elements * item_bytes,
            ranks,
            item_bytes,
            root=operation.root
            if isinstance(operation, RootedCollective | SendRecv | Incast)
            else 0,
            degree=operation.degree if isinstance(operation, Incast) else None,
            peer=operation.peer if isinstance(operation, SendRecv) else None,
            shift=operation.shift if isinstance(operation, Permutation) else None,
        )
        call = _with_schedule(spec, call, entry)
        yield PlannedCall(f"{operation.kind}.{index}", call)


def _of_model(spec: Spec, workload: WorkloadSpec) -> Iterator[PlannedCall]:
    """Each name once: what several groups do alike stands for the group with the lowest rank."""
    item_bytes = workload.item_bytes
    groups = groups_of(workload)
    named: set[str] = set()
    for rank in range(workload.ranks):
        for action in step_of(workload, rank):
            if not isinstance(action, StartCollective | StartMessage) or action.name in named:
                continue
            named.add(action.name)
            size_bytes = action.elements * item_bytes
            if isinstance(action, StartMessage):
                ends = action.source, action.destination
                call = CollectiveCall(Kind.SEND_RECV, size_bytes, ends, item_bytes, peer=1)
            else:
                ranks = next(tuple(group) for group in groups[action.group] if rank in group)
                call = CollectiveCall(action.kind, size_bytes, ranks, item_bytes)
                call = _with_schedule(spec, call)
            yield PlannedCall(action.name, call)
