"""The bytes that programs sent along each dimension of the ranks, over time, which schedules
balance.

The ranks' logs say when each phase of a chunk began and ended, and its program which bytes a rank
sends in it. Between the two ends of a phase its bytes are taken to flow evenly.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from analysis.metrics.spans import length_ns, union
from analysis.runs.collectives import MeasuredCollective, collectives_of
from analysis.runs.run import Run
from collectives.schedule.schedule import Chunk

Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True)
class DimensionUse:
    """A dimension, the innermost being 0. Each phase of a chunk at a rank has an entry in
    `start_ns`, `end_ns` (on the clock of the logs) and `sent_bytes` (payload), shape (phases,).
    `rate` is the dimension's rate relative to the first one's, as the spec has it."""

    dimension: int
    rate: float
    start_ns: Int64
    end_ns: Int64
    sent_bytes: Int64

    @property
    def payload_bytes(self) -> int:
        """The bytes that all ranks sent along it."""
        return int(self.sent_bytes.sum())

    @property
    def load(self) -> float:
        """Its payload over its relative rate, which Themis balances."""
        return self.payload_bytes / self.rate

    @cached_property
    def busy_ns(self) -> int:
        """The time in which at least one rank had a phase along it."""
        spans = zip(self.start_ns.tolist(), self.end_ns.tolist(), strict=True)
        return length_ns(union(spans))

    def sent_until(self, time_ns: Float64) -> Float64:
        """Payload that all ranks have sent until each of some times, in order. Shape (times,)."""
        # A phase without duration is one of a nanosecond.
        lasted = np.maximum(self.end_ns - self.start_ns, 1)
        slope = self.sent_bytes / lasted
        at = np.concatenate([self.start_ns, self.start_ns + lasted])
        change = np.concatenate([slope, -slope])
        order = np.argsort(at, kind="stable")
        at, rate = at[order], np.cumsum(change[order])
        sent = np.concatenate([[0.0], np.cumsum(rate[:-1] * np.diff(at))])
        found: Float64 = np.interp(time_ns, at, sent)
        return found


def dimension_uses(run: Run) -> tuple[DimensionUse, ...]:
    """Every dimension that phases of programs went along; none where no algorithm has dimensions.
    Raises RunError."""
    measured = {(c.group, c.id): c for c in collectives_of(run) if c.schedule.chunks}
    entries: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    if any(_has_dimensions(collective) for collective in measured.values()):
        for dimension, *entry in _entries(run, measured):
            start_ns, end_ns, sent = entry
            entries[dimension].append((start_ns, end_ns, sent))
    rates = run.spec.collectives.dimension_rates
    found = []
    for dimension in sorted(entries):
        start_ns, end_ns, sent = np.array(entries[dimension], dtype=np.int64).T
        rate = rates[dimension] / rates[0] if dimension < len(rates) else 1.0
        found.append(DimensionUse(dimension, rate, start_ns, end_ns, sent))
    return tuple(found)


def _has_dimensions(collective: MeasuredCollective) -> bool:
    return any(
        phase.dimension is not None
        for chunk in collective.schedule.chunks
        for phase in chunk.program.phases
    )


def _entries(
    run: Run, measured: Mapping[tuple[str, str], MeasuredCollective]
) -> Iterator[tuple[int, int, int, int]]:
    """(dimension, start, end, bytes) of each phase of each chunk at each rank."""
    known: dict[tuple[int, int], _Sent] = {}
    for log in run.ranks:
        for record in log.chunks:
            collective = measured.get((record.group, record.id))
            if collective is None:
                continue
            chunk = collective.schedule.chunks[record.chunk]
            key = id(chunk.program), chunk.elements
            if key not in known:
                known[key] = _Sent(chunk, collective.element_bytes)
            member = collective.ranks.index(log.rank)
            for name, start_ns, end_ns in record.phases:
                dimension = known[key].dimension.get(name)
                if dimension is not None:
                    yield dimension, start_ns, end_ns, known[key].by(member, name)


class _Sent:
    """The dimension of each phase of a chunk by its name, and what each rank sends in it."""

    def __init__(self, chunk: Chunk, element_bytes: int) -> None:
        program = chunk.program
        self.dimension = {phase.name: phase.dimension for phase in program.phases}
        # Logs name phases: those of one name share what they send.
        self._alike = Counter(phase.name for phase in program.phases)
        self._sent: Counter[tuple[int, str]] = Counter()
        for message in program.messages():
            size_bytes = program.elements_of(message.blocks, chunk.elements) * element_bytes
            self._sent[message.source, program.phases[message.phase].name] += size_bytes

    def by(self, member: int, name: str) -> int:
        return self._sent[member, name] // self._alike[name]
