"""Which host runs which rank."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256

from topologies.fabric import Fabric


def place(
    placement: str | Mapping[int, str], fabric: Fabric, ranks: int, seed: int
) -> tuple[str, ...]:
    """Host names by rank, each host at most once.

    `linear`: the fabric's order of hosts. `random`: an order drawn from the seed (by SHA-256, so
    that it is the same everywhere). `strided`: the last coordinate varies slowest, so that
    neighbouring ranks are in different pods, leaves or rows. A mapping gives each rank's host.
    Raises ValueError for more ranks than hosts, an unknown policy, or a mapping that lacks a rank,
    names an unknown host or names one twice.
    """
    hosts = fabric.hosts
    if ranks > len(hosts):
        raise ValueError(f"{ranks} ranks need {ranks} hosts, the fabric has {len(hosts)}")
    if isinstance(placement, Mapping):
        chosen = tuple(placement.get(rank, "") for rank in range(ranks))
        known = {host.name for host in hosts}
        wrong = [rank for rank, host in enumerate(chosen) if host not in known]
        if wrong:
            raise ValueError(f"rank {wrong[0]} has no host of this fabric")
        if len(set(chosen)) < ranks:
            raise ValueError("a host runs at most one rank")
        return chosen
    if placement == "linear":
        order = list(hosts)
    elif placement == "random":
        order = sorted(hosts, key=lambda host: sha256(f"{seed}/{host.name}".encode()).digest())
    elif placement == "strided":
        order = sorted(hosts, key=lambda host: host.coordinates[::-1])
    else:
        raise ValueError(f"unknown placement {placement!r}: linear, random or strided")
    return tuple(host.name for host in order[:ranks])
