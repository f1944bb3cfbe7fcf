"""The graphs that a spec implies, before it runs: one iteration, communication without times."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import FunctionType
from typing import assert_never, cast

from analysis.chakra.errors import ChakraError
from analysis.chakra.graph import Graph
from analysis.chakra.sources.graph_builder import GraphBuilder
from collectives.call import CollectiveCall
from collectives.groups import groups_of
from collectives.kinds import Kind
from collectives.settings import schedule_of, settings_of
from topologies.spec.spec import Spec
from topologies.spec.workload_types import GroupName
from topologies.spec.workloads import named_parts
from workloads.models.build import has_actions, step_of
from workloads.models.planned import planned_calls
from workloads.models.step import (
    Action,
    ComputeKernel,
    Pause,
    StartCollective,
    StartMessage,
    WaitFor,
)

_OWN_GRAPHS = cast(Mapping[str, Callable[[Spec], list[Graph]]], named_parts("graphs", FunctionType))


def graphs_of_spec(spec: Spec) -> list[Graph]:
    """Every rank's graph of one iteration; computation takes what the spec's roofline says.

    Raises ChakraError for compute.device: real.
    """
    workload = spec.workload
    own = _OWN_GRAPHS.get(workload.kind)
    if own is not None:
        return own(spec)
    if workload.listed is not None:
        program = GraphBuilder(spec.compute)
        for planned in planned_calls(spec):
            program.wait(program.post(planned.name, planned.call))
        return [program.graph()] * workload.ranks
    if not has_actions(workload):
        raise ChakraError(
            spec.name,
            None,
            f"workload.kind is {workload.kind}: only a run shows what it does; run it and export "
            "the run",
        )
    if spec.compute.device == "real":
        raise ChakraError(
            spec.name,
            None,
            "compute.device is real: only a run shows how long that takes; run it and export the "
            "run",
        )
    item_bytes = workload.item_bytes
    partitions = groups_of(workload)
    graphs = []
    for rank in range(workload.ranks):
        groups = {
            name: next(tuple(part) for part in partition if rank in part)
            for name, partition in partitions.items()
        }
        graphs.append(_graph(spec, step_of(workload, rank), groups, item_bytes))
    return graphs


def _graph(
    spec: Spec,
    step: Iterable[Action],
    groups: Mapping[GroupName, tuple[int, ...]],
    item_bytes: int,
) -> Graph:
    """A rank's step; `groups` are the groups of the rank, by their ranks."""
    program = GraphBuilder(spec.compute)
    posted: dict[str, int] = {}
    for action in step:
        match action:
            case ComputeKernel(name, phase, flops, moved_bytes):
                program.compute(f"{phase}.{name}", flops, moved_bytes, item_bytes)
            case Pause(name, phase, duration_ns):
                program.pause(f"{phase}.{name}", duration_ns)
            case StartCollective():
                size_bytes, ranks = action.elements * item_bytes, groups[action.group]
                call = CollectiveCall(action.kind, size_bytes, ranks, item_bytes)
                schedule = schedule_of(settings_of(spec), call.shape, members=ranks)
                call = replace(call, schedule=schedule)
                posted[action.name] = program.post(action.name, call)
            case StartMessage():
                size_bytes, ends = action.elements * item_bytes, (action.source, action.destination)
                call = CollectiveCall(Kind.SEND_RECV, size_bytes, ends, item_bytes, peer=1)
                posted[action.name] = program.post(action.name, call)
            case WaitFor(name):
                program.wait(posted[name])
            case _:
                assert_never(action)
    return program.graph()
