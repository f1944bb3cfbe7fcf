"""A collective measured: by rank, its stragglers, its bandwidths, its share of the limit."""

from __future__ import annotations

from dataclasses import dataclass

from analysis.metrics.limit import PhysicalLimit
from analysis.predict.interface import Transport
from analysis.runs.collectives import MeasuredCollective, collectives_of
from analysis.runs.run import Run


@dataclass(frozen=True)
class CollectiveMetrics:
    """Times and rates in units of the target fabric.

    `post_spread_ns` is how much later the last rank posted than the first (the stragglers' doing),
    `end_spread_ns` how much later the last rank completed. `limit_ns` is the physical limit
    (`PhysicalLimit`), and `limit_share` what share of the measured time it is: 1 is as fast as the
    wires allow. Bandwidths are None where they cannot be (`Doubt`).
    """

    collective: MeasuredCollective
    duration_ns: int
    post_spread_ns: int
    end_spread_ns: int
    last_to_post: int
    last_to_end: int
    algbw_gbps: float | None
    busbw_gbps: float | None
    limit_ns: float
    limit_share: float | None


def collective_metrics(run: Run) -> tuple[CollectiveMetrics, ...]:
    """The metrics of every collective of a run, by start. Raises RunError."""
    carrier = Transport.of(run.spec).carrier
    over_tcp = PhysicalLimit(run.fabric, run.hosts)
    of_programs = over_tcp
    if carrier is not None:
        of_programs = PhysicalLimit(run.fabric, run.hosts, carrier)

    def limit_ns(collective: MeasuredCollective) -> float:
        limit = over_tcp if collective.algorithm is None else of_programs
        return limit.duration_ns(collective)

    return tuple(
        _measure(collective, run.environment.scale, limit_ns(collective))
        for collective in collectives_of(run)
    )


def _measure(collective: MeasuredCollective, scale: int, limit_ns: float) -> CollectiveMetrics:
    records = collective.by_rank
    starts = {rank: record.start_ns for rank, record in records.items()}
    ends = {rank: record.end_ns for rank, record in records.items()}
    duration_ns = collective.duration_ns // scale
    return CollectiveMetrics(
        collective=collective,
        duration_ns=duration_ns,
        post_spread_ns=(max(starts.values()) - min(starts.values())) // scale,
        end_spread_ns=(max(ends.values()) - min(ends.values())) // scale,
        last_to_post=max(starts, key=lambda rank: (starts[rank], -rank)),
        last_to_end=max(ends, key=lambda rank: (ends[rank], -rank)),
        algbw_gbps=_target(collective.algbw_gbps, scale),
        busbw_gbps=_target(collective.busbw_gbps, scale),
        limit_ns=limit_ns,
        limit_share=limit_ns / duration_ns if limit_ns and duration_ns else None,
    )


def _target(gbps: float | None, scale: int) -> float | None:
    return None if gbps is None else gbps * scale
