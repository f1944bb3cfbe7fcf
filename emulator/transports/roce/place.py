"""The places of a run's ranks on RDMA: their devices, addresses and library."""

from __future__ import annotations

from pathlib import Path

from emulator.network.network import Network
from emulator.rdma.compiled import verbs_library
from topologies.fabrics.fabric import Fabric
from topologies.routing.routes import Routes
from topologies.spec.spec import Spec
from topologies.spec.transports.roce.section import RoceTransport
from workloads.execution.verbs.place import RocePlace


def roce_place(
    spec: Spec, transport: RoceTransport, network: Network, host: str, logs: Path
) -> RocePlace:
    """How a rank on a host gets at RDMA; `logs` are those of the ranks.
    Raises VirtualKernelError."""
    plan, between = spec.plan, spec.between_ranks
    return RocePlace(
        verbs_library(),
        network.devices[host],
        ports_towards(network.fabric, plan.routes, host, plan.hosts),
        str(network.fabric.by_name[host].address),
        logs,
        transport.path_mtu_bytes,
        transport.timeout_exponent,
        transport.retry_count,
        between.count,
        between.splits,
    )


def ports_towards(
    fabric: Fabric, routes: Routes, host: str, others: tuple[str, ...]
) -> tuple[int, ...]:
    """By which port of a host packets leave for each of the others, by number; its first one where
    no packet leaves, as the other is itself or cannot be reached."""
    links = [link.index for link in fabric.links_of[host]]
    if len(links) == 1:
        return (0,) * len(others)
    towards = {}
    for other in set(others):
        hops = routes.next_hops(host, other) if other != host else ()
        towards[other] = links.index(hops[0].link) if hops else 0
    return tuple(towards[other] for other in others)
