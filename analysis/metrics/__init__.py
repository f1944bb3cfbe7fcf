"""The figures of a run: per collective, iteration, link, fabric, flow and rank pair.

It reads what was measured, and predicts nothing. Three names to know: `collective_metrics`,
`iteration_breakdowns` and `port_metrics`.
"""

from analysis.metrics.collective import CollectiveMetrics, collective_metrics
from analysis.metrics.ecmp import EcmpGroup, ecmp_groups
from analysis.metrics.hashed_flow import HashedFlow, heavy_flows
from analysis.metrics.iteration import IterationBreakdown, iteration_breakdowns
from analysis.metrics.link import PortMetrics, port_metrics
from analysis.metrics.tier import BisectionUse, TierUse, bisection_use, tier_uses
from analysis.metrics.traffic import TrafficMatrix, traffic_matrix

__all__ = [
    "BisectionUse",
    "CollectiveMetrics",
    "EcmpGroup",
    "HashedFlow",
    "IterationBreakdown",
    "PortMetrics",
    "TierUse",
    "TrafficMatrix",
    "bisection_use",
    "collective_metrics",
    "ecmp_groups",
    "heavy_flows",
    "iteration_breakdowns",
    "port_metrics",
    "tier_uses",
    "traffic_matrix",
]
