"""The collectives of a run, assembled from what each rank saw of them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from analysis.records import CollectiveRecord
from analysis.run import Run, RunError

ALIGNMENT = "align"
"""Phase of the collectives that only bring the ranks to a common start; they are no result."""

_SPLIT = frozenset({"all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"})


def bus_factor(kind: str, ranks: int) -> float:
    """busbw / algbw, as nccl-tests defines it (doc/PERFORMANCE.md there); 1 for what it leaves."""
    if kind == "all_reduce":
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if kind in _SPLIT else 1.0


@dataclass(frozen=True)
class Collective:
    """One collective of a run. It starts when its last rank has posted it and ends when its last
    rank has completed it; `by_rank` has each rank's own record."""

    id: str
    kind: str
    phase: str
    group: str
    tag: int | None
    size_bytes: int
    element_bytes: int
    iteration: int
    ranks: tuple[int, ...]
    root: int
    degree: int | None
    peer: int | None
    shift: int | None
    start_ns: int
    end_ns: int
    by_rank: dict[int, CollectiveRecord]

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns

    @property
    def algbw_gbps(self) -> float:
        """Size over time, decimal gigabits per second."""
        return self.size_bytes * 8 / self.duration_ns if self.duration_ns else 0.0

    @property
    def busbw_gbps(self) -> float:
        return self.algbw_gbps * bus_factor(self.kind, len(self.ranks))


def collectives_of(run: Run) -> tuple[Collective, ...]:
    """All collectives but alignments, by start. Raises RunError when a rank's record is missing."""
    seen: dict[tuple[str, str], dict[int, CollectiveRecord]] = defaultdict(dict)
    for log in run.ranks:
        for record in log.collectives:
            if record.phase != ALIGNMENT:
                seen[record.group, record.id][log.rank] = record
    found = [_assemble(run, by_rank) for by_rank in seen.values()]
    return tuple(sorted(found, key=lambda c: (c.start_ns, c.group, c.id)))


def _assemble(run: Run, by_rank: dict[int, CollectiveRecord]) -> Collective:
    first = next(iter(by_rank.values()))
    ranks = tuple(range(len(run.ranks))) if first.ranks is None else tuple(first.ranks)
    missing = sorted(set(ranks) - set(by_rank))
    if missing:
        raise RunError(
            f"{run.directory}: collective {first.id} is missing in the log of rank {missing[0]}"
        )
    return Collective(
        first.id,
        first.kind,
        first.phase,
        first.group,
        first.tag,
        first.size_bytes,
        first.element_bytes,
        first.iteration,
        ranks,
        first.root,
        first.degree,
        first.peer,
        first.shift,
        max(record.start_ns for record in by_rank.values()),
        max(record.end_ns for record in by_rank.values()),
        by_rank,
    )
