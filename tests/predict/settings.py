"""Small fabrics for the predictors' tests."""

from __future__ import annotations

from analysis.predict.interface import Setting
from collectives.call import CollectiveCall
from collectives.schedule.exchange import ExchangeSchedule
from collectives.schedule.gloo import GLOO
from topologies.fabrics.build import build_fabric
from topologies.routing.routes import compute_routes
from topologies.spec.spec import parse_spec

FABRICS = {
    "flat": "{kind: flat, hosts: 8, %s}",
    "fat-tree": "{kind: fat-tree, k: 4, %s}",
    "leaf-spine": "{kind: leaf-spine, leaves: 2, spines: 2, hosts_per_leaf: 4, %s}",
    "torus": "{kind: torus, dims: [4, 4], %s}",
    "mesh": "{kind: mesh, dims: [4, 4], %s}",
}


def make_setting(
    kind: str = "flat",
    rate: str = "100Gbps",
    delay: str = "500ns",
    mtu: int = 9000,
    fabric: str | None = None,
    seed: int = 1,
) -> Setting:
    """Every host runs a rank, in order."""
    link = f"link: {{rate: {rate}, delay: {delay}, mtu: {mtu}}}"
    text = (fabric or FABRICS[kind]) % link
    workload = "{kind: collectives, ranks: 2, operations: [{kind: barrier}]}"
    built = build_fabric(parse_spec(f"name: test\nfabric: {text}\nworkload: {workload}\n").fabric)
    hosts = tuple(host.name for host in built.hosts)
    return Setting(built, compute_routes(built), hosts, seed=seed)


def make_call(
    setting: Setting, kind: str, size_bytes: int, ranks: int | None = None
) -> CollectiveCall:
    """A collective of the first `ranks` ranks (all when None)."""
    world = len(setting.hosts) if ranks is None else ranks
    ring = tuple((rank, (rank + 1) % world, size_bytes) for rank in range(world))
    schedule = ExchangeSchedule(ring) if kind == "exchange" else GLOO
    return CollectiveCall(kind, size_bytes, tuple(range(world)), schedule=schedule)
