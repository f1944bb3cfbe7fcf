"""The servers of a run as NCCL sees them, and its tuner for a group of ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from functools import lru_cache
from typing import Any

from collectives.algorithms.base import DoesNotFit
from collectives.groups import used_groups
from collectives.nccl.communicator import Asked, Communicator, Graphs, graphs_of, know
from collectives.nccl.environment import Environment
from collectives.nccl.graph import Graph, Pattern
from collectives.nccl.server import GPU_MODELS, Nic, PathType, Server
from collectives.nccl.switches import (
    algorithms_by_switches,
    network_cannot,
    switches_can,
    switches_of_run,
)
from collectives.nccl.topology_file import read_topology
from collectives.nccl.tuner import Tuner
from collectives.nccl.tuner_file import read_tuner_file
from topologies.aggregation_tree import NoTree
from topologies.spec.collectives_section import (
    CollectivesOfRun,
    CollectivesSection,
    ServersOfRun,
)
from topologies.spec.fabric_section import RailsSpec
from topologies.spec.sections import Sections
from topologies.spec.spec import Spec


def servers_of_run(spec: Sections) -> ServersOfRun | None:
    """The servers that a spec's ranks are on. None where NCCL does not run, or where the spec has
    mistakes that are told elsewhere.

    In `rails` a server's hosts are its GPUs. A host of any other fabric is a server with one GPU,
    whose NIC has the rate of its fastest port.
    """
    if spec.collectives.backend != "nccl":
        return None
    assert isinstance(spec, Spec)
    try:
        plan = spec.plan
    except (ValueError, KeyError):
        return None
    fabric, section = plan.fabric, spec.fabric
    if not isinstance(section, RailsSpec):
        hosts = list(dict.fromkeys(plan.hosts))
        places = tuple((hosts.index(host), 0) for host in plan.hosts)
        fastest = [max(link.rate_bps for link in fabric.links_of[host]) for host in hosts]
        return ServersOfRun(
            places=places, gpus_per_server=1, nvlink_bps=0, nic_bps=min(fastest, default=0)
        )
    places = tuple(_place(fabric.by_name[host].coordinates) for host in plan.hosts)
    rates = {
        kind: min((link.rate_bps for link in fabric.links if link.link_class == kind), default=0)
        for kind in ("scale-up", "nic")
    }
    preset = section.preset
    return ServersOfRun(
        places=places,
        gpus_per_server=section.hosts_per_server,
        nvlink_bps=rates["scale-up"],
        nic_bps=rates["nic"],
        gpus_per_switch=1 if preset is None else preset.gpus_per_switch,
    )


def with_servers(spec: Sections, section: CollectivesOfRun) -> CollectivesOfRun:
    """The section of a run with its servers, and with what NCCL's search finds for the groups of
    the workload. Raises DoesNotFit for a variable, a version or a file that is wrong."""
    servers = servers_of_run(spec)
    if servers is None:
        return section
    asked = section.model_copy(update=_known_to_nccl(spec, section))
    reason = network_cannot(spec)
    try:
        return _with_switches(spec, asked, servers, reason)
    except NoTree as error:
        if section.env.get("NCCL_COLLNET_ENABLE", "0") != "0":
            raise DoesNotFit("env.NCCL_COLLNET_ENABLE", "1", f"0: {error}") from None
        return _with_switches(spec, asked, servers, str(error))


def _with_switches(
    spec: Sections, section: CollectivesOfRun, servers: ServersOfRun, no_collnet: str
) -> CollectivesOfRun:
    """The section with servers and their switches, where those of the network take part unless
    there is a reason against it. Raises DoesNotFit, and NoTree where they cannot be joined."""
    possible = switches_can(spec)
    env = {
        "NCCL_NVLS_ENABLE": "2" if possible else "0",
        "NCCL_COLLNET_ENABLE": "0" if no_collnet else "1",
    } | section.env
    servers = servers.model_copy(update={"no_collnet": no_collnet})
    found = section.model_copy(update={"servers": servers, "env": env})
    groups = [tuple(range(spec.workload.ranks)), *used_groups(spec.workload)]
    searched: dict[str, list[dict[str, Any]]] = {}
    for members in dict.fromkeys(groups):
        comm = communicator_of(found, members)
        for key, asked in _searches(comm):
            if key not in searched:
                graphs = graphs_of(*asked)
                every = (getattr(graphs, one.name) for one in fields(Graphs))
                searched[key] = [asdict(one) for one in every]
        _ = comm.of_servers  # refuses a file of graphs that are not of these servers
    servers = servers.model_copy(update={"searched": searched})
    found = found.model_copy(update={"servers": servers})
    if not possible and no_collnet:
        return found
    tuners = {members: tuner_of(found, members) for members in dict.fromkeys(groups)}
    asking = {
        members: (one, algorithms)
        for members, one in tuners.items()
        if (algorithms := algorithms_by_switches(spec, one))
    }
    if not asking:
        return found
    assert isinstance(spec, Spec)
    trees = switches_of_run(spec, servers, asking)
    return found.model_copy(update={"aggregation": trees})


def tuner_of(section: CollectivesSection, members: Sequence[int]) -> Tuner:
    """NCCL's tuner for a group of ranks. Raises DoesNotFit."""
    file = None if section.tuner is None else read_tuner_file(section.tuner)
    return Tuner(communicator_of(section, members), section.version, file)


def communicator_of(section: CollectivesSection, members: Sequence[int]) -> Communicator:
    """NCCL's communicator of a group of ranks, numbered by their place in it. Raises DoesNotFit."""
    servers = section.servers if isinstance(section, CollectivesOfRun) else None
    if servers is None:
        found = "nccl where the fabric is not known"
        raise DoesNotFit("backend", found, "gloo, programs; or nccl in a spec")
    environment = environment_of(_items(section.env))
    by_server: dict[int, list[tuple[int, int]]] = {}
    for place, rank in enumerate(members):
        server, gpu = servers.places[rank]
        by_server.setdefault(server, []).append((gpu, place))
    found_servers, ranks = [], []
    for held in by_server.values():
        held.sort()
        found_servers.append(_server(section, servers, tuple(gpu for gpu, _ in held), environment))
        ranks.append(tuple(place for _, place in held))
    multicast = all(len(one.gpus) > 1 and one.model.multicast for one in found_servers)
    nvls = multicast and environment.number("NCCL_NVLS_ENABLE", 0) > 0
    sharp = environment.number("NCCL_COLLNET_ENABLE", 0) > 0
    comm = Communicator(
        tuple(found_servers), tuple(ranks), environment, nvls, sharp, servers.no_collnet
    )
    for key, asked in _searches(comm):
        if key in servers.searched:
            know(asked, Graphs(*(_graph(one) for one in servers.searched[key])))
    return comm


def _items(env: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(env.items()))


@lru_cache(maxsize=16)
def environment_of(given: tuple[tuple[str, str], ...]) -> Environment:
    """Variables, checked. Raises DoesNotFit."""
    return Environment(dict(given))


def _server(
    section: CollectivesSection,
    servers: ServersOfRun,
    gpus: tuple[int, ...],
    environment: Environment,
) -> Server:
    model = GPU_MODELS[section.gpu or "h100"]
    if len(set(gpus)) != len(gpus):
        # Several ranks of one host have a GPU each.
        gpus = tuple(range(len(gpus)))
    pxn = not environment.number("NCCL_PXN_DISABLE", 0)
    if "NCCL_TOPO_FILE" in section.env:
        path = section.env["NCCL_TOPO_FILE"]
        told = read_topology(path)
        if max(gpus) >= told.all_gpus:
            found = f"{path}: {told.all_gpus} GPUs"
            allowed = f"{max(gpus) + 1} or more, as the ranks of a server have"
            raise DoesNotFit("env.NCCL_TOPO_FILE", found, allowed)
        return replace(told, gpus=gpus, gdr=section.network == "ib", pxn=pxn)
    nic_gbytes = servers.nic_bps / 8e9
    latency_us = section.net_latency_ns / 1000
    nics = tuple(
        Nic(number, nic_gbytes, number, latency_us) for number in range(servers.gpus_per_server)
    )
    nvlink = servers.nvlink_bps / 8e9 or model.nvlinks * model.nvlink_gbytes
    return Server(
        model,
        gpus,
        nics,
        nvlink,
        section.cpu or "intel",
        servers.gpus_per_switch,
        PathType.PXB if servers.gpus_per_switch > 1 else PathType.PIX,
        gdr=section.network == "ib",
        all_gpus=max(servers.gpus_per_server, len(gpus)),
        pxn=pxn,
    )


def _known_to_nccl(spec: Sections, section: CollectivesOfRun) -> dict[str, object]:
    """The GPU and the processors of the fabric's servers, where the section has none."""
    preset = spec.fabric.preset if isinstance(spec.fabric, RailsSpec) else None
    if preset is None:
        return {}
    return {"gpu": section.gpu or preset.gpu, "cpu": section.cpu or preset.cpu}


def _place(coordinates: tuple[int, ...]) -> tuple[int, int]:
    server, gpu = coordinates
    return server, gpu


def _searches(comm: Communicator) -> list[tuple[str, Asked]]:
    """The graphs that are searched for a communicator, each with a name."""
    cross = comm.environment.number("NCCL_CROSS_NIC", 2)
    several = comm.nodes > 1
    return [
        (
            f"{','.join(map(str, server.gpus))};{several}"
            + ";nvls" * comm.nvls
            + ";collnet" * comm.sharp,
            (server, several, cross, comm.nvls, comm.sharp),
        )
        for server in comm.servers
    ]


def _graph(plain: dict[str, Any]) -> Graph:
    found = Graph(**plain)
    found.pattern = Pattern(found.pattern)
    found.type_intra, found.type_inter = PathType(found.type_intra), PathType(found.type_inter)
    return found
