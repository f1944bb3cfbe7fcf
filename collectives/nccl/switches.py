"""The switches of a run that take part in NCCL's collectives: NVLS by NVLink switches of servers,
CollNet by those of the network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from collectives.algorithms.aggregation import Aggregation
from collectives.algorithms.base import DoesNotFit
from collectives.algorithms.collnet import CollNet
from collectives.algorithms.multicast import Multicast
from collectives.algorithms.network_sums import HeadTree
from collectives.in_network.node import Aggregator
from collectives.in_network.of_run import nodes_of, switch_numbers, unable
from collectives.kinds import Kind
from collectives.nccl.communicator import Communicator, Tree
from collectives.nccl.division import COLLNET, MULTICAST
from collectives.nccl.tuner import Tuner
from collectives.program import PROGRAM_KINDS
from topologies.aggregation_tree import (
    OUTSIDE,
    ROOT,
    NoTree,
    aggregating_switches,
    aggregation_tree,
    given_tree,
)
from topologies.spec.aggregation.section import AggregationSection, is_selected
from topologies.spec.collectives_section import (
    AggregationOfRun,
    CollectivesOfRun,
    CollectivesSection,
    ServersOfRun,
    TreeOfGroup,
    TreeOfHeads,
)
from topologies.spec.fabric_section import RailsSpec
from topologies.spec.sections import Sections
from topologies.spec.spec import Spec
from topologies.spec.workload_section import CollectiveOperation

WHERE = (
    "on rails, over TCP, with a rank for each GPU, in sums of the spec's own ranks, without a "
    "section host, and with none aggregation but for CollNet"
)
"""The runs in which NVLink switches reduce, in words."""

WHERE_NETWORK = (
    "over TCP, with a section aggregation and a rank for each host, beside a switch of the section"
)
"""The runs in which switches of the network reduce for NCCL, in words."""

_SERVER = "server"
"""The class of NVLink switches."""

_REDUCTIONS = {"sum", "min", "max"}
"""NCCL's operations (ncclRedOp_t of src/nccl.h.in), as specs name them."""


def switches_can(spec: Sections) -> bool:
    """Whether the NVLink switches of a spec's servers can take part in a run (`WHERE`)."""
    if not isinstance(spec.fabric, RailsSpec) or _cannot(spec):
        return False
    if spec.aggregation is not None and network_cannot(spec):
        return False
    # Floats are added alone (ncclNvlsSupported of src/include/device.h).
    return {*(spec.workload.reductions or ())} <= {"sum"}


def network_cannot(spec: Sections) -> str:
    """The reason why the switches of the network take no part in NCCL's collectives; "" where they
    may."""
    section = spec.aggregation
    if section is None:
        return "there is no section aggregation"
    if reason := _cannot(spec):
        return reason
    if section.trees > 1 or section.middles is not None or section.when_lost != "fail":
        return "aggregation has trees, middles or when_lost"
    listed = () if spec.workload.listed is None else spec.workload.listed.operations
    entries = [getattr(spec.collectives, kind) for kind in PROGRAM_KINDS]
    entries += [getattr(operation, "program", {}) for operation in listed]
    if any(entry and entry.get("algorithm") == Aggregation.name for entry in entries):
        return "they do collectives of algorithm: aggregation"
    if not {*(spec.workload.reductions or ())} <= _REDUCTIONS:
        return "NCCL has sums, minima and maxima"
    return ""


def _cannot(spec: Sections) -> str:
    """The reason why no switch can take part."""
    if spec.transport.of_programs:
        return "the transport is not tcp"
    if spec.host.charged:
        return "section host charges time"
    if spec.workload.reductions is None:
        return "the workload's groups are not known beforehand"
    assert isinstance(spec, Spec)
    return "ranks share a host" if len(set(spec.plan.hosts)) < len(spec.plan.hosts) else ""


def algorithms_by_switches(spec: Sections, tuner: Tuner) -> frozenset[str]:
    """Which of NVLS and CollNet NCCL chooses for collectives of a group of the workload: of listed
    ones by their sizes, of models by any size."""
    found: set[str] = set()
    if not tuner.communicator.nvls_channels and not tuner.communicator.collnet:
        return frozenset()
    listed = spec.workload.listed
    for kind in (Kind.ALL_REDUCE, Kind.ALL_GATHER, Kind.REDUCE_SCATTER):
        if getattr(spec.collectives, kind):
            continue
        sizes = [1 << power for power in range(10, 31)]
        if listed is not None:
            operations = (o for o in listed.operations if isinstance(o, CollectiveOperation))
            sizes = [o.size_bytes for o in operations if o.kind == kind and not o.program]
        try:
            choices = [tuner.choose(kind, size) for size in sizes]
        except DoesNotFit:  # told where the collective is planned
            continue
        found |= {one.algorithm for one in choices if one.by_switches}
    if network_cannot(spec):  # it may be asked for all the same
        several = {"NVLS"} if tuner.communicator.nodes > 1 else set()
        found -= {*COLLNET, *several}
    return frozenset(found)


def switches_of_run(
    spec: Spec,
    servers: ServersOfRun,
    groups: Mapping[tuple[int, ...], tuple[Tuner, frozenset[str]]],
) -> AggregationOfRun:
    """The trees of each group, which has these algorithms by switches: a GPU is below the switch of
    its server, where that reduces, and as a head of CollNet below one of the network. NVLink
    switches reduce at the bandwidth and with the latency that NCCL's model gives NVLS in a server,
    others as the section says. Raises NoTree."""
    trees = [_tree(spec, servers, members, *group) for members, group in groups.items()]
    multicast = [tuner for tuner, algorithms in groups.values() if algorithms & {*MULTICAST}]
    of_servers: dict[str, str] = {}
    if multicast:
        of_servers = {
            "rate": f"{round(min(one.multicast_gbytes for one in multicast) * 8e9)}bps",
            "latency": f"{max(one.multicast_latency_ns for one in multicast)}ns",
        }
    given: dict[str, object] = {"switches": [_SERVER], **of_servers}
    if spec.aggregation is not None:
        given = spec.aggregation.model_dump(mode="json", by_alias=True)
        if multicast:
            given["nodes"] = {**spec.aggregation.nodes, _SERVER: of_servers}
    section = AggregationSection.model_validate(given)
    return AggregationOfRun(section=section, trees=tuple(trees), pipelined=(_SERVER,))


@dataclass(slots=True)
class _Edges:
    """The edges of a group's trees, by names of switches and numbers of ranks."""

    of_ranks: dict[int, list[str]]
    of_switches: dict[str, list[str]]

    def add(self, child: int | str, parent: str | None) -> None:
        """An edge, once; a switch without a parent is a root."""
        if parent is not None:
            self.of_switches.setdefault(parent, [])
        if isinstance(child, int):
            above = self.of_ranks.setdefault(child, [])
        else:
            above = self.of_switches.setdefault(child, [])
        if parent is not None and parent not in above:
            above.append(parent)


def _tree(
    spec: Spec,
    servers: ServersOfRun,
    members: tuple[int, ...],
    tuner: Tuner,
    algorithms: frozenset[str],
) -> TreeOfGroup:
    plan, comm = spec.plan, tuner.communicator
    hosts = tuple(plan.hosts[rank] for rank in members)
    edges = _Edges({}, {})
    if algorithms & {*MULTICAST}:
        for place, rank in enumerate(members):
            edges.add(place, f"{_SERVER}{servers.places[rank][0]}")
    found = []
    slots = 1
    for heads in _sets_of_heads(comm, algorithms):
        assert spec.aggregation is not None
        switches, above = _network(spec, spec.aggregation, tuple(hosts[head] for head in heads))
        children: list[int | str] = [*heads, *switches]
        parents = [
            (child, None if parent == ROOT else switches[parent - len(heads)])
            for child, parent in zip(children, above, strict=True)
        ]
        for child, name in parents:
            edges.add(child, name)
        found.append((heads, parents))
        slots = min(spec.aggregation.of(switch).slots or 0 for switch in switches)
    numbers = switch_numbers(plan)
    names = tuple(sorted(edges.of_switches, key=numbers.__getitem__))
    participant = {name: len(members) + at for at, name in enumerate(names)}
    places = {node.name: number for number, node in enumerate(plan.fabric.nodes)}
    above_each = [edges.of_ranks.get(place, []) for place in range(len(members))]
    above_each += [edges.of_switches[name] for name in names]
    outside = [OUTSIDE] * len(members) + [ROOT] * len(names)
    return TreeOfGroup(
        members=members,
        switches=names,
        parents=tuple(
            participant[above[0]] if above else none
            for above, none in zip(above_each, outside, strict=True)
        ),
        numbers=tuple(numbers[name] for name in names),
        places=tuple(places[name] for name in (*hosts, *names)),
        slots=slots,
        fewest=names[0],
        beside=tuple(
            (child, participant[name])
            for child, above in enumerate(above_each)
            for name in above[1:]
        ),
        of_heads=tuple(
            TreeOfHeads(
                heads=heads,
                parents=tuple(
                    (
                        child if isinstance(child, int) else participant[child],
                        ROOT if name is None else participant[name],
                    )
                    for child, name in parents
                ),
            )
            for heads, parents in found
        ),
    )


def _sets_of_heads(comm: Communicator, algorithms: frozenset[str]) -> tuple[tuple[int, ...], ...]:
    """The heads that the network adds up for, each set once."""
    found: list[tuple[int, ...]] = []
    if "CollNetDirect" in algorithms:
        found += comm.collnet_heads
    if "CollNetChain" in algorithms:
        found += (tuple(chain[0] for chain in of_servers) for of_servers in comm.chains)
    if "NVLS" in algorithms and comm.nodes > 1:
        found += comm.nvls_heads
    return tuple(dict.fromkeys(found))


def _network(
    spec: Spec, section: AggregationSection, hosts: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The switches of the tree over the hosts of heads, and the participant above each of hosts and
    switches. Raises NoTree, also where one of them does not reduce what the workload has."""
    fabric = spec.plan.fabric
    switches = aggregating_switches(fabric, section.switches)
    if isinstance(spec.fabric, RailsSpec):
        switches = tuple(name for name in switches if not is_selected(name, (_SERVER,)))
    if section.parents:
        tree = given_tree(fabric, hosts, switches, section.parents)
    else:
        tree = aggregation_tree(fabric, hosts, switches, section.root)
    workload = spec.workload
    operations = tuple(sorted({*(workload.reductions or ())}))
    if reason := unable(section, tree.switches, (workload.dtype,), operations):
        raise NoTree(reason)
    for switch in tree.switches:
        if not section.of(switch).slots:
            raise NoTree(f"{switch} has no slots")
    return tree.switches, tree.parents


@dataclass(frozen=True, slots=True)
class Switches:
    """The switches of a group, in the order of participants, the trees of CollNet's heads, and the
    bytes of the pieces that these pass on. `of_servers` are places of NVLink switches among them.
    """

    nodes: tuple[Aggregator, ...]
    of_servers: tuple[int, ...]
    trees: tuple[HeadTree, ...]
    piece_bytes: int


def switches_of(section: CollectivesSection) -> Switches | None:
    """The switches of a group (`collectives.in_network.of_run.of_group`) that reduce for NCCL; None
    where none do."""
    of_run = section.aggregation if isinstance(section, CollectivesOfRun) else None
    if of_run is None or not of_run.pipelined or not of_run.trees:
        return None
    nodes = nodes_of(section)
    return Switches(
        nodes,
        tuple(at for at, one in enumerate(nodes) if is_selected(one.name, of_run.pipelined)),
        tuple(HeadTree(one.heads, one.parents) for one in of_run.trees[0].of_heads),
        of_run.section.piece_bytes,
    )


def multicast_of(comm: Communicator, switches: Switches | None, algorithm: str) -> Multicast:
    """The part of a group's servers' switches, one for each server. Raises DoesNotFit where there
    are none."""
    if switches is None or len(switches.of_servers) < comm.nodes:
        allowed = f"0, or NCCL_ALGO: Ring,Tree; switches reduce {WHERE}"
        raise DoesNotFit("env.NCCL_NVLS_ENABLE", "NVLS in a run whose switches do not", allowed)
    by_network = algorithm == "NVLS" and comm.nodes > 1
    return Multicast(
        comm.ranks,
        switches.nodes,
        switches.of_servers,
        comm.nvls_heads,
        () if by_network else _trees(comm),
        _checked(switches) if by_network else (),
        switches.piece_bytes,
    )


def collnet_of(comm: Communicator, switches: Switches | None, algorithm: str) -> CollNet:
    """The part of the network's switches in sums of a group's servers. Raises DoesNotFit where
    there are none."""
    trees = _checked(switches)
    assert switches is not None
    return CollNet(
        comm.ranks,
        switches.nodes,
        trees,
        switches.piece_bytes,
        comm.collnet_heads if algorithm == "CollNetDirect" else (),
        comm.chains if algorithm == "CollNetChain" else (),
    )


def _checked(switches: Switches | None) -> tuple[HeadTree, ...]:
    if switches is None or not switches.trees:
        allowed = f"0, or NCCL_ALGO: Ring,Tree; switches of the network reduce {WHERE_NETWORK}"
        found = "CollNet in a run whose switches do not"
        raise DoesNotFit("env.NCCL_COLLNET_ENABLE", found, allowed)
    return switches.trees


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
