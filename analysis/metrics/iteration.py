"""The parts of an iteration's time: compute, and communication exposed or overlapped, by phase."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from analysis.metrics.spans import Span, intersection, length_ns
from analysis.runs.collectives import (
    ALIGNMENT,
    collectives_of,
    exposed_by_phase,
    iterations_of,
)
from analysis.runs.run import RankLog, Run


@dataclass(frozen=True)
class RankIteration:
    """One iteration on one rank, in nanoseconds of the target fabric.

    compute + exposed of all phases + other = duration. `overlapped_ns` is, by phase, the time in
    which a collective of it was in flight while the rank computed: communication that cost nothing.
    """

    rank: int
    duration_ns: int
    compute_ns: int
    exposed_ns: dict[str, int]
    overlapped_ns: dict[str, int]

    @property
    def other_ns(self) -> int:
        """Neither computing nor blocked on a collective: the framework's own time."""
        return max(0, self.duration_ns - self.compute_ns - sum(self.exposed_ns.values()))


@dataclass(frozen=True)
class IterationBreakdown:
    """One iteration over all ranks.

    `duration_ns` is as in result.json: from the first rank's start to the last one's end, or the
    sum of the operations of a collectives benchmark. The `mean_*` figures are means over the
    ranks, so that their parts add up.
    """

    index: int
    duration_ns: int
    ranks: tuple[RankIteration, ...]

    @property
    def phases(self) -> tuple[str, ...]:
        """Phases of communication in order of appearance."""
        return tuple(dict.fromkeys(p for rank in self.ranks for p in rank.exposed_ns))

    @property
    def mean_duration_ns(self) -> float:
        return sum(rank.duration_ns for rank in self.ranks) / len(self.ranks)

    @property
    def mean_compute_ns(self) -> float:
        return sum(rank.compute_ns for rank in self.ranks) / len(self.ranks)

    @property
    def mean_other_ns(self) -> float:
        return sum(rank.other_ns for rank in self.ranks) / len(self.ranks)

    def mean_exposed_ns(self, phase: str) -> float:
        return sum(rank.exposed_ns.get(phase, 0) for rank in self.ranks) / len(self.ranks)

    def mean_overlapped_ns(self, phase: str) -> float:
        return sum(rank.overlapped_ns.get(phase, 0) for rank in self.ranks) / len(self.ranks)


def iteration_breakdowns(run: Run) -> tuple[IterationBreakdown, ...]:
    """The breakdown of every iteration in which something was communicated or logged, by index.

    The collectives benchmark logs no iterations, as it brings its ranks to a common start before
    each operation: its iterations last as long as their operations together.
    """
    scale = run.environment.scale
    collectives = collectives_of(run)
    found = []
    for index in iterations_of(run, collectives):
        spans = [i for log in run.ranks for i in log.iterations if i.index == index]
        if spans:
            duration_ns = max(s.end_ns for s in spans) - min(s.start_ns for s in spans)
        else:
            duration_ns = sum(c.duration_ns for c in collectives if c.iteration == index)
        ranks = tuple(_of_rank(log, index, scale) for log in run.ranks)
        found.append(IterationBreakdown(index, duration_ns // scale, ranks))
    return tuple(found)


def _of_rank(log: RankLog, index: int, scale: int) -> RankIteration:
    computing = [(c.start_ns, c.end_ns) for c in log.computes if c.iteration == index]
    in_flight: dict[str, list[Span]] = defaultdict(list)
    posted = sorted(
        (c for c in log.collectives if c.iteration == index and c.phase != ALIGNMENT),
        key=lambda c: c.start_ns,
    )
    for record in posted:
        in_flight[record.phase].append((record.start_ns, record.end_ns))
    span = next((i for i in log.iterations if i.index == index), None)
    if span is not None:
        duration_ns = span.end_ns - span.start_ns
    else:
        duration_ns = length_ns([*computing, *(s for spans in in_flight.values() for s in spans)])
    return RankIteration(
        rank=log.rank,
        duration_ns=duration_ns // scale,
        compute_ns=length_ns(computing) // scale,
        exposed_ns={
            phase: waited // scale for phase, waited in exposed_by_phase(log, index).items()
        },
        overlapped_ns={
            phase: length_ns(intersection(spans, computing)) // scale
            for phase, spans in in_flight.items()
        },
    )
