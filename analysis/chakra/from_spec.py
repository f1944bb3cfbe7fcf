"""The graphs that a spec implies, before it runs: one iteration, communication without times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from analysis.chakra.errors import ChakraError
from analysis.chakra.files import read_graphs
from analysis.chakra.graph import Graph
from analysis.chakra.program import Program
from analysis.predictors.interface import CollectiveCall
from analysis.predictors.planned import planned_calls
from topologies.compute_spec import ComputeSpec
from topologies.spec import Spec
from topologies.step import Action, Collective, GroupName, Kernel, Message, Wait
from topologies.workload_spec import ITEM_BYTES, ChakraWorkload, CollectivesWorkload
from topologies.workload_step import groups_of, step_of


def graphs_of_spec(spec: Spec) -> list[Graph]:
    """Every rank's graph of one iteration; computation takes what the spec's roofline says.

    Raises ChakraError for compute.device: real.
    """
    workload = spec.workload
    if isinstance(workload, ChakraWorkload):
        return read_graphs(workload.path)
    if isinstance(workload, CollectivesWorkload):
        program = Program(spec.compute)
        for planned in planned_calls(spec):
            program.wait(program.post(planned.name, planned.call))
        return [program.graph()] * workload.ranks
    if spec.compute.device == "real":
        raise ChakraError(
            spec.name,
            None,
            "compute.device is real: only a run shows how long that takes; run it and export the "
            "run",
        )
    item_bytes = ITEM_BYTES[workload.dtype]
    partitions = groups_of(workload)
    graphs = []
    for rank in range(workload.ranks):
        groups = {
            name: next(tuple(part) for part in partition if rank in part)
            for name, partition in partitions.items()
        }
        graphs.append(_graph(step_of(workload, rank), groups, item_bytes, spec.compute))
    return graphs


def _graph(
    step: Iterable[Action],
    groups: Mapping[GroupName, tuple[int, ...]],
    item_bytes: int,
    roofline: ComputeSpec,
) -> Graph:
    """A rank's step; `groups` are the ranks of those that it is in."""
    program = Program(roofline)
    posted: dict[str, int] = {}
    for action in step:
        match action:
            case Kernel(name, phase, flops, moved_bytes):
                program.compute(f"{phase}.{name}", flops, moved_bytes, item_bytes)
            case Collective():
                size_bytes, ranks = action.elements * item_bytes, groups[action.group]
                call = CollectiveCall(action.kind, size_bytes, ranks, item_bytes)
                posted[action.name] = program.post(action.name, call)
            case Message():
                size_bytes, ends = action.elements * item_bytes, (action.source, action.destination)
                call = CollectiveCall("send_recv", size_bytes, ends, item_bytes, peer=1)
                posted[action.name] = program.post(action.name, call)
            case Wait(name):
                program.wait(posted[name])
    return program.graph()
