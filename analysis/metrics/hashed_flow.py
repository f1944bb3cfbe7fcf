"""The flows between ranks and the paths that ECMP's hash gave them.

Needs no capture: the ranks log their connections' ports, and the hash is the kernel's
(`topologies.routing.ecmp_hash`).
"""

from __future__ import annotations

from dataclasses import dataclass

from analysis.metrics.traffic import TrafficMatrix
from analysis.runs.run import Run
from topologies.routing.ecmp_hash import FiveTuple, flow_path
from topologies.routing.routes import Path

HEAVY_SHARE = 0.5
"""A flow is heavy when it carries at least this share of the heaviest one's bytes."""

MOST_FLOWS = 20_000
"""Hashing takes about 0.1 ms per flow."""


@dataclass(frozen=True)
class HashedFlow:
    """All that one rank sends another over their connection, and the way it takes."""

    source: int
    destination: int
    bytes: int
    path: Path


def heavy_flows(run: Run, traffic: TrafficMatrix) -> tuple[HashedFlow, ...]:
    """The heavy flows among the two directions of every logged connection.

    None for runs that logged no connections, whose routes leave no choice, whose switches choose by
    more than a hash, whose connections have several subflows, or that have more than
    20,000 heavy flows.
    """
    if run.spec.transport.flows_per_socket > 1:
        return ()
    if run.fabric.routing != "ecmp" or not run.fabric.choice.by_headers:
        return ()
    threshold = max(1.0, HEAVY_SHARE * int(traffic.bytes.max(initial=0)))
    heavy = (traffic.bytes >= threshold).tolist()
    hosts = run.hosts
    ends = []
    for log in run.ranks:
        for connection in log.connections:
            rank, peer = log.rank, connection.peer
            if (heavy[rank][peer] or heavy[peer][rank]) and hosts[rank] != hosts[peer]:
                here, there = (rank, connection.port), (peer, connection.peer_port)
                ends += [(here, there)] * heavy[rank][peer] + [(there, here)] * heavy[peer][rank]
    if len(ends) > MOST_FLOWS:
        return ()
    return tuple(_follow(run, traffic, *pair) for pair in ends)


def _follow(
    run: Run, traffic: TrafficMatrix, source: tuple[int, int], destination: tuple[int, int]
) -> HashedFlow:
    here, there = run.hosts[source[0]], run.hosts[destination[0]]
    nodes = run.fabric.by_name
    flow = FiveTuple(nodes[here].address, nodes[there].address, source[1], destination[1])
    path = flow_path(run.routes, here, there, flow, run.spec.seed)
    amount = int(traffic.bytes[source[0], destination[0]])
    return HashedFlow(source[0], destination[0], amount, path)
