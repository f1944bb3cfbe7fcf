"""Small fabrics without delays, which every kernel with namespaces can make."""

from __future__ import annotations

from emulator.native.kernel import can_watch_ports
from emulator.network.network import Network, NetworkOptions
from emulator.ports.arrangement import RateOnlyArrangement
from emulator.ports.token_depth import LATENESS_NS
from topologies.fabrics.build import build_fabric
from topologies.fabrics.fabric import Fabric
from topologies.routing.routes import compute_routes
from topologies.spec.fabric_section import FatTreeSpec, FlatSpec, TorusSpec


def fat_tree(rate: str = "1Gbps", k: int = 4) -> Fabric:
    return build_fabric(
        FatTreeSpec.model_validate(
            {"kind": "fat-tree", "k": k, "link": {"rate": rate, "delay": 0, "mtu": 1500}}
        )
    )


def flat(
    hosts: int = 2, rate: str = "1Gbps", mtu: int = 1500, delay: str | int = 0, **queue: object
) -> Fabric:
    section: dict[str, object] = {
        "kind": "flat",
        "hosts": hosts,
        "link": {"rate": rate, "delay": delay, "mtu": mtu},
    }
    if queue:
        section |= {"queue": queue, "queues": {"hosts": queue}}
    return build_fabric(FlatSpec.model_validate(section))


def torus() -> Fabric:
    return build_fabric(
        TorusSpec.model_validate(
            {
                "kind": "torus",
                "dims": [3, 3],
                "link": {"rate": "1Gbps", "delay": 0, "mtu": 1500},
            }
        )
    )


def network(fabric: Fabric, **options: object) -> Network:
    """The fabric with rates only: what every kernel with namespaces can do. Its ports are watched
    where the kernel can."""
    options.setdefault("arrangement", RateOnlyArrangement(lateness_ns=LATENESS_NS))
    options.setdefault("watched", can_watch_ports())
    return Network(fabric, compute_routes(fabric), NetworkOptions(**options))  # type: ignore[arg-type]


def delayed(hosts: int, rate: str, delay: str, **queue: object) -> Fabric:
    """One switch, links with a delay."""
    section: dict[str, object] = {
        "kind": "flat",
        "hosts": hosts,
        "link": {"rate": rate, "delay": delay, "mtu": 1500},
    }
    if queue:
        section |= {"queue": queue, "queues": {"hosts": queue}}
    return build_fabric(FlatSpec.model_validate(section))
