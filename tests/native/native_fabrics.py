"""Small fabrics without delays, which every kernel with namespaces can make."""

from __future__ import annotations

from emulator.network import Network, NetworkOptions
from emulator.ports import RateOnlyArrangement
from topologies.build import build_fabric
from topologies.fabric import Fabric
from topologies.fabric_spec import FatTreeSpec, FlatSpec, TorusSpec
from topologies.routing import compute_routes


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
    """The fabric with rates only: what every kernel with namespaces can do."""
    options.setdefault("arrangement", RateOnlyArrangement())
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
