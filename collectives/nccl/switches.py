"""The NVLink switches of a run's servers, where they take part: NVLS."""

from __future__ import annotations

from collections.abc import Mapping

from collectives.algorithms.base import DoesNotFit
from collectives.algorithms.multicast import Multicast
from collectives.in_network.node import Aggregator
from collectives.in_network.of_run import switch_numbers
from collectives.kinds import Kind
from collectives.nccl.communicator import Communicator, Tree
from collectives.nccl.tuner import Tuner
from topologies.aggregation_tree import ROOT
from topologies.spec.aggregation.section import AggregationSection
from topologies.spec.collectives_section import (
    AggregationOfRun,
    ServersOfRun,
    TreeOfGroup,
)
from topologies.spec.fabric_section import RailsSpec
from topologies.spec.sections import Sections
from topologies.spec.spec import Spec
from topologies.spec.workload_section import CollectiveOperation

WHERE = (
    "on rails, over TCP, with a rank for each GPU, in sums of the spec's own ranks, without "
    "sections aggregation and host"
)
"""The runs in which NVLink switches reduce, in words."""


def switches_can(spec: Sections) -> bool:
    """Whether the NVLink switches of a spec's servers can take part in a run (`WHERE`)."""
    if not isinstance(spec.fabric, RailsSpec) or spec.transport.of_programs:
        return False
    if spec.aggregation is not None or spec.host.charged:
        return False
    reductions = spec.workload.reductions
    # Floats are added alone (ncclNvlsSupported of src/include/device.h).
    if reductions is None or not {*reductions} <= {"sum"}:
        return False
    assert isinstance(spec, Spec)
    return len(set(spec.plan.hosts)) == len(spec.plan.hosts)


def asks_for_switches(spec: Sections, tuner: Tuner) -> bool:
    """Whether NCCL chooses NVLS for a collective of a group of the workload: of listed ones by
    their sizes, of models by any size."""
    if not tuner.communicator.nvls_channels:
        return False
    listed = spec.workload.listed
    for kind in (Kind.ALL_REDUCE, Kind.ALL_GATHER, Kind.REDUCE_SCATTER):
        if getattr(spec.collectives, kind):
            continue
        sizes = [1 << power for power in range(10, 31)]
        if listed is not None:
            operations = (o for o in listed.operations if isinstance(o, CollectiveOperation))
            sizes = [o.size_bytes for o in operations if o.kind == kind and not o.program]
        try:
            if any(tuner.choose(kind, size).by_switches for size in sizes):
                return True
        except DoesNotFit:  # told where the collective is planned
            continue
    return False


def switches_of_run(
    spec: Spec, servers: ServersOfRun, groups: Mapping[tuple[int, ...], Tuner]
) -> AggregationOfRun:
    """The trees of each group: a GPU is below the switch of its server. Switches reduce at the
    bandwidth and with the latency that NCCL's model gives NVLS in a server."""
    plan = spec.plan
    numbers = switch_numbers(plan)
    places = {node.name: number for number, node in enumerate(plan.fabric.nodes)}
    trees = []
    for members in groups:
        on = list(dict.fromkeys(servers.places[rank][0] for rank in members))
        names = tuple(f"server{number}" for number in on)
        hosts = tuple(plan.hosts[rank] for rank in members)
        above = (len(members) + on.index(servers.places[rank][0]) for rank in members)
        trees.append(
            TreeOfGroup(
                members=members,
                switches=names,
                parents=(*above, *(ROOT for _ in names)),
                numbers=tuple(numbers[name] for name in names),
                places=tuple(places[name] for name in (*hosts, *names)),
                slots=1,
                fewest=names[0],
            )
        )
    section = AggregationSection.model_validate(
        {
            "switches": ["server"],
            "rate": f"{round(min(one.multicast_gbytes for one in groups.values()) * 8e9)}bps",
            "latency": f"{max(one.multicast_latency_ns for one in groups.values())}ns",
        }
    )
    return AggregationOfRun(section=section, trees=tuple(trees), pipelined=True)


def multicast_of(comm: Communicator, switches: tuple[Aggregator, ...]) -> Multicast:
    """The part of a group's servers' switches, one for each server. Raises DoesNotFit where there
    are none."""
    if not switches:
        allowed = f"0, or NCCL_ALGO: Ring,Tree; switches reduce {WHERE}"
        raise DoesNotFit("env.NCCL_NVLS_ENABLE", "NVLS in a run whose switches do not", allowed)
    return Multicast(comm.ranks, switches, comm.nvls_heads, _trees(comm))


def _trees(comm: Communicator) -> tuple[Tree, ...]:
    """The two trees over heads; none on one server."""
    of_ranks = [comm.nvls_trees(rank) for rank in range(comm.size)]
    if not all(of_ranks):
        return ()
    found = []
    for which in (0, 1):
        parents = tuple(trees[which][1] for trees in of_ranks)
        children = tuple(
            tuple(child for child in trees[which][0] if 0 <= child < comm.size)
            for trees in of_ranks
        )
        found.append(Tree(parents, children))
    return tuple(found)
