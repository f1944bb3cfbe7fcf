"""Which host runs which rank."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from hashlib import sha256

from topologies.fabrics.fabric import Fabric

OPTIMIZE = "optimize"
"""A policy that is searched before a run (`analysis.predict.placement_search`)."""


def place(
    placement: str | Mapping[int, str],
    fabric: Fabric,
    ranks: int,
    seed: int,
    ranks_per_host: int = 1,
    taken: Collection[str] = (),
) -> tuple[str, ...]:
    """Host names by rank. Each host has `ranks_per_host` neighbouring ranks, or none.

    A policy leaves out the hosts that are `taken`.

    `linear`: the fabric's order of hosts. `random`: an order drawn from the seed (by SHA-256, so
    that it is the same everywhere). `strided`: the last coordinate varies slowest, so that
    neighbouring ranks are in different pods, leaves or rows. `optimize` is linear until hosts have
    been searched. A mapping gives each rank's host.
    Raises ValueError for more ranks than the hosts have room for, an unknown policy, or a mapping
    that lacks a rank, names an unknown host, or one host for ranks that are no neighbours.
    """
    given = isinstance(placement, Mapping)
    hosts = [host for host in fabric.hosts if given or host.name not in taken]
    needed = -(-ranks // ranks_per_host)
    if needed > len(hosts):
        left = "has" if len(hosts) == len(fabric.hosts) else "has left"
        raise ValueError(f"{ranks} ranks need {needed} hosts, the fabric {left} {len(hosts)}")
    if isinstance(placement, Mapping):
        chosen = tuple(placement.get(rank, "") for rank in range(ranks))
        known = {host.name for host in hosts}
        wrong = [rank for rank, host in enumerate(chosen) if host not in known]
        if wrong:
            raise ValueError(f"rank {wrong[0]} has no host of this fabric")
        together = [set(chosen[i : i + ranks_per_host]) for i in range(0, ranks, ranks_per_host)]
        if any(len(names) > 1 for names in together) or len(set(chosen)) < needed:
            of_each = "one rank" if ranks_per_host == 1 else f"{ranks_per_host} neighbouring ranks"
            raise ValueError(f"a host runs at most {of_each}")
        return chosen
    if placement in ("linear", OPTIMIZE):
        order = list(hosts)
    elif placement == "random":
        order = sorted(hosts, key=lambda host: sha256(f"{seed}/{host.name}".encode()).digest())
    elif placement == "strided":
        order = sorted(hosts, key=lambda host: host.coordinates[::-1])
    else:
        raise ValueError(f"unknown placement {placement!r}: linear, random or strided")
    return tuple(order[rank // ranks_per_host].name for rank in range(ranks))
