"""Equal-cost groups: how evenly the ports that a node may choose between were used."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import exp, log

from analysis.metrics.hashed_flow import heavy_flows
from analysis.metrics.link import PortMetrics, port_metrics
from analysis.metrics.traffic import traffic_matrix
from analysis.runs.run import Run


@dataclass(frozen=True)
class EcmpGroup:
    """The ports of one node that are equal choices towards some destinations.

    `heavy_flows` counts by port the flows that carried at least half as much as the run's
    heaviest one; None when the ranks did not log their connections.
    """

    node: str
    ports: tuple[PortMetrics, ...]
    heavy_flows: tuple[int, ...] | None

    @property
    def bytes(self) -> tuple[int, ...]:
        return tuple(port.record.bytes for port in self.ports)

    @property
    def imbalance(self) -> float | None:
        """Load of the busiest port over the mean: 1 is even, the number of ports is the worst.
        None when nothing was sent."""
        total = sum(self.bytes)
        return max(self.bytes) * len(self.bytes) / total if total else None

    @property
    def paths_used(self) -> float | None:
        """How many ports an even spread of the same entropy would use: from 1 to all of them (the
        exponential of Shannon's entropy of the bytes). None when nothing was sent."""
        total = sum(self.bytes)
        if not total:
            return None
        shares = [each / total for each in self.bytes if each]
        return exp(-sum(share * log(share) for share in shares))

    @property
    def collisions(self) -> int | None:
        """Heavy flows that share a port though an even spread would have found them another."""
        if self.heavy_flows is None:
            return None
        even = -(-sum(self.heavy_flows) // len(self.ports))
        return sum(max(0, flows - even) for flows in self.heavy_flows)


def ecmp_groups(run: Run) -> tuple[EcmpGroup, ...]:
    """Every group of two or more equal-cost ports, in the order of the fabric's nodes."""
    ports = {metrics.record.port: metrics for metrics in port_metrics(run)}
    flows = heavy_flows(run, traffic_matrix(run))
    load = Counter(hop.interface for flow in flows for hop in flow.path)
    found: dict[tuple[str, ...], EcmpGroup] = {}
    for node, routes in run.routes.tables.items():
        for route in routes:
            names = tuple(hop.interface for hop in route.next_hops)
            if len(names) > 1 and names not in found and all(name in ports for name in names):
                found[names] = EcmpGroup(
                    node,
                    tuple(ports[name] for name in names),
                    tuple(load[name] for name in names) if flows else None,
                )
    return tuple(found.values())
