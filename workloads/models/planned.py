"""The collectives that a spec will run, before it runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from collectives.call import CollectiveCall, CollectiveError
from collectives.groups import groups_of
from collectives.kinds import Kind, barrier_shape, rounded_elements
from collectives.program import Program
from collectives.schedule.program import ProgramSchedule
from collectives.settings import schedule_of, settings_of
from topologies.spec.collectives_section import CollectivesSection
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
        return tuple(_of_benchmark(workload.listed, settings_of(spec)))
    if has_actions(workload):
        return tuple(_of_model(workload, settings_of(spec)))
    raise CollectiveError(
        f"workload.kind: {workload.kind} is not predicted ahead; run it, then compare"
    )


def programs_ahead(workload: WorkloadSpec, settings: CollectivesSection) -> tuple[Program, ...]:
    """The programs of a workload's collectives, of all groups, where these are known ahead; each
    once. This process, and those that are forked from it, then have made them (`schedule_of`)."""
    calls: Iterable[CollectiveCall] = ()
    if workload.listed is not None:
        calls = (planned.call for planned in _of_benchmark(workload.listed, settings))
    elif settings.backend != "gloo" and has_actions(workload):
        calls = (_with_schedule(settings, call) for _, call in _of_groups(workload))
    found: dict[int, Program] = {}
    for call in calls:
        if isinstance(call.schedule, ProgramSchedule):
            found |= {id(chunk.program): chunk.program for chunk in call.schedule.chunks}
    return tuple(found.values())


def _with_schedule(
    settings: CollectivesSection, call: CollectiveCall, entry: Mapping[str, Any] | None = None
) -> CollectiveCall:
    """The call with its schedule by the section."""
    return replace(call, schedule=schedule_of(settings, call.shape, entry, call.ranks))


def _of_benchmark(
    workload: CollectivesWorkload, settings: CollectivesSection
) -> Iterator[PlannedCall]:
    ranks = tuple(range(workload.ranks))
    item_bytes = workload.item_bytes
    for index, operation in enumerate(workload.operations):
        # As the benchmark rounds.
        kind = Kind(operation.kind)
        entry = getattr(operation, "program", None)
        if kind is Kind.BARRIER and entry:
            shape = barrier_shape(len(ranks))
            call = CollectiveCall(shape.kind, shape.size_bytes, ranks, shape.element_bytes)
            yield PlannedCall(f"{operation.kind}.{index}", _with_schedule(settings, call, entry))
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
        call = _with_schedule(settings, call, entry)
        yield PlannedCall(f"{operation.kind}.{index}", call)


def _of_model(workload: WorkloadSpec, settings: CollectivesSection) -> Iterator[PlannedCall]:
    """Each name once: what several groups do alike stands for the group with the lowest rank."""
    named: set[str] = set()
    for name, call in _of_groups(workload):
        if name not in named:
            named.add(name)
            yield PlannedCall(name, _with_schedule(settings, call))


def _of_groups(workload: WorkloadSpec) -> Iterator[tuple[str, CollectiveCall]]:
    """The name of each collective and message of a model, once for each group."""
    item_bytes = workload.item_bytes
    groups = groups_of(workload)
    found: set[tuple[str, tuple[int, ...]]] = set()
    for rank in range(workload.ranks):
        for action in step_of(workload, rank):
            ranks: tuple[int, ...]
            if isinstance(action, StartMessage):
                kind, ranks, peer = Kind.SEND_RECV, (action.source, action.destination), 1
            elif isinstance(action, StartCollective):
                ranks = next(tuple(group) for group in groups[action.group] if rank in group)
                kind, peer = action.kind, None
            else:
                continue
            if (action.name, ranks) not in found:
                found.add((action.name, ranks))
                size_bytes = action.elements * item_bytes
                yield action.name, CollectiveCall(kind, size_bytes, ranks, item_bytes, peer=peer)
