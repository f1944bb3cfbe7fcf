"""How evenly the ports of a tier were used over time, from samples of what they sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from analysis.metrics.link import PortMetrics, communicating_spans
from analysis.metrics.spans import length_ns
from analysis.metrics.tier import tier_uses
from analysis.runs.run import Run
from analysis.runs.samples.ports import PortSeries
from topologies.fabrics.selectors import select_ports

Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]

WINDOWS = 60
"""About so many windows has the time in which collectives are in flight."""


@dataclass(frozen=True)
class TierOverTime:
    """The ports of one kind of link in one direction, window by window. `begin_ns` and `end_ns` of
    the windows are on the clock of the logs, `mean` and `busiest` are shares of the window that
    ports spent sending. All have shape (windows,)."""

    link_class: str
    direction: str
    ports: int
    begin_ns: Int64
    end_ns: Int64
    mean: Float64
    busiest: Float64

    @property
    def imbalance(self) -> Float64:
        """The busiest port over the mean, by window; NaN where nothing was sent."""
        found: Float64 = np.divide(
            self.busiest, self.mean, out=np.full(len(self.mean), np.nan), where=self.mean > 0
        )
        return found

    @property
    def mean_imbalance(self) -> float:
        """The mean over all that was sent: each window counts by its bytes."""
        weight = self.mean * (self.end_ns - self.begin_ns)
        used = weight > 0
        return float((self.imbalance[used] * weight[used]).sum() / weight[used].sum())

    @property
    def worst(self) -> tuple[int, float]:
        """When the window with the largest imbalance began, and how much that is. Windows in which
        a tenth as much was sent as in the fullest one, or less, do not count."""
        counted = np.where(self.mean > 0.1 * self.mean.max(), self.imbalance, 0.0)
        at = int(counted.argmax())
        return int(self.begin_ns[at]), float(counted[at])


def tiers_over_time(run: Run, series: Sequence[PortSeries]) -> tuple[TierOverTime, ...]:
    """The tiers of two or more ports that all were sampled, in the order of their first link; none
    for a run that sampled nothing, or in which nothing communicated."""
    spans = communicating_spans(run)
    if not series or not spans:
        return ()
    interval_ns = max(each.interval_ns for each in series)
    window_ns = max(interval_ns, length_ns(spans) / WINDOWS)
    edges = [np.linspace(a, b, max(1, round((b - a) / window_ns)) + 1) for a, b in spans]
    begin = np.concatenate([each[:-1] for each in edges])
    end = np.concatenate([each[1:] for each in edges])
    by_port = {each.port: each for each in series}
    sampled = {
        port.interface
        for selector in run.spec.counters.ports
        for port in select_ports(run.fabric, selector)
    }
    found = []
    for tier in tier_uses(run):
        names = [each.record.port for each in tier.ports]
        if len(names) < 2 or not sampled.issuperset(names) or by_port.keys().isdisjoint(names):
            continue
        used = np.stack([_used(by_port.get(p.record.port), p, begin, end) for p in tier.ports])
        if used.any():
            windows = begin.astype(np.int64), end.astype(np.int64)
            kind = tier.link_class, tier.direction, len(names)
            found.append(TierOverTime(*kind, *windows, used.mean(axis=0), used.max(axis=0)))
    return tuple(found)


def _used(series: PortSeries | None, port: PortMetrics, begin: Float64, end: Float64) -> Float64:
    """The share of each window that a port spent sending. One without a series sent nothing."""
    if series is None:
        return np.zeros(len(begin))
    at, sent = np.array(series.times_ns), np.array(series.sent_bytes, dtype=np.float64)
    # A sample tells of what was sent in the last interval before it.
    rises = np.maximum(at[1:] - series.interval_ns, at[:-1])
    times = np.insert(np.stack([rises, at[1:]], axis=1).ravel(), 0, at[0])
    total = np.insert(np.stack([sent[:-1], sent[1:]], axis=1).ravel(), 0, sent[0])
    in_window = np.interp(end, times, total) - np.interp(begin, times, total)
    could = port.record.rate_bps * (end - begin) / 8e9
    used: Float64 = in_window / could
    return used
