"""Use of the fabric by kind of link, and of its bisection."""

from __future__ import annotations

from dataclasses import dataclass

from analysis.metrics.limit import PhysicalLimit
from analysis.metrics.link import PortMetrics, communicating_spans, port_metrics
from analysis.metrics.spans import length_ns
from analysis.metrics.traffic import TrafficMatrix
from analysis.runs.run import Run


@dataclass(frozen=True)
class TierUse:
    """The egress ports of one kind of link in one direction (`up` is away from the hosts, `down`
    towards them, `across` between equals)."""

    link_class: str
    direction: str
    ports: tuple[PortMetrics, ...]

    @property
    def mean_utilisation(self) -> float | None:
        """None where no collective was in flight."""
        known = self._utilisations
        return sum(known) / len(known) if known else None

    @property
    def max_utilisation(self) -> float | None:
        """None where no collective was in flight."""
        return max(self._utilisations, default=None)

    @property
    def imbalance(self) -> float | None:
        """Utilisation of the busiest port over the mean; None when nothing was sent."""
        mean, most = self.mean_utilisation, self.max_utilisation
        return most / mean if mean and most is not None else None

    @property
    def _utilisations(self) -> list[float]:
        return [p.utilisation for p in self.ports if p.utilisation is not None]


@dataclass(frozen=True)
class BisectionUse:
    """Payload between the ranks' lower and upper half against what all paths between them could
    have carried while collectives were in flight (goodput; the busier direction)."""

    crossing_bytes: int
    capacity_bps: float
    utilisation: float


def tier_uses(run: Run) -> tuple[TierUse, ...]:
    """The tiers in the order of their first link."""
    ports = {metrics.record.port: metrics for metrics in port_metrics(run)}
    nodes = run.fabric.by_name
    found: dict[tuple[str, str], list[PortMetrics]] = {}
    for link in run.fabric.links:
        for here, there in ((link.a, link.b), (link.b, link.a)):
            if here.interface not in ports:
                continue
            rise = nodes[there.node].layer - nodes[here.node].layer
            direction = "up" if rise > 0 else "down" if rise < 0 else "across"
            found.setdefault((link.link_class, direction), []).append(ports[here.interface])
    return tuple(TierUse(*key, tuple(members)) for key, members in found.items())


def bisection_use(run: Run, traffic: TrafficMatrix) -> BisectionUse | None:
    """None when the fabric is too large to solve in passing, or nothing was in flight."""
    ranks = range(len(run.ranks))
    capacity_bps = PhysicalLimit(run.fabric, run.hosts).bisection_bps(ranks)
    busy_ns = length_ns(communicating_spans(run)) / run.environment.scale
    if not capacity_bps or not busy_ns:
        return None
    half = len(ranks) // 2
    crossing = max(int(traffic.bytes[:half, half:].sum()), int(traffic.bytes[half:, :half].sum()))
    return BisectionUse(crossing, capacity_bps, 8 * crossing / (capacity_bps * busy_ns / 1e9))
