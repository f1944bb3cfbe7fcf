"""Which phase of which chunk uses a dimension next.

The order is fixed before anything runs, by playing the schedule through with the bytes of each
phase and the rates of the dimensions. All ranks compute the same order. As each waits only for
phases that started earlier in that play, and for a slot only until chunks are done that were done
earlier in it, ranks that keep to the order cannot wait for each other in a circle, however late
each of them is.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction


class WithinDimension(StrEnum):
    """Which of the chunks that wait for a dimension goes next."""

    FIFO = "fifo"
    SMALLEST_FIRST = "smallest-first"


@dataclass(frozen=True, slots=True)
class Turn:
    """A phase of a chunk."""

    chunk: int
    phase: int


@dataclass(frozen=True, slots=True)
class Job:
    """A phase as far as a dimension is concerned: the bytes that a rank moves on it and its rate,
    in any unit. `shrinks` is whether the data shrinks or grows by it (a reduce-scatter or an
    all-gather): the others are not overtaken by smaller ones."""

    phase: int
    dimension: int
    size_bytes: int
    rate: int
    shrinks: bool


@dataclass(frozen=True, slots=True)
class Played:
    """The order of phases by dimension, and how long the play took: bytes over the rates' unit."""

    turns: dict[int, tuple[Turn, ...]]
    duration: Fraction


def play(
    jobs: Mapping[int, Sequence[Job]],
    in_flight: int,
    active_per_dimension: int,
    within: WithinDimension,
) -> Played:
    """Play a schedule through, each dimension with `active_per_dimension` phases at once that do
    not slow each other down. `jobs` has the phases of every chunk in
    their order; they start in the mapping's, `in_flight` of them at first, and one as another is
    done.

    Smallest first is ASTRA-sim's: a chunk goes before the first one waiting whose data is larger,
    and one in its last phase to the end; what has started stays.
    """
    state = _Play(jobs, active_per_dimension, within)
    chunks = [chunk for chunk in jobs if jobs[chunk]]
    for chunk in chunks[:in_flight]:
        state.arrive(chunk)
    later = iter(chunks[in_flight:])
    while state.running:
        if state.finish_next() is not None:
            following = next(later, None)
            if following is not None:
                state.arrive(following)
    turns = {dimension: tuple(order) for dimension, order in sorted(state.order.items())}
    return Played(turns, state.now)


class _Play:
    """A schedule that is being played."""

    def __init__(
        self, jobs: Mapping[int, Sequence[Job]], active: int, within: WithinDimension
    ) -> None:
        self._jobs = jobs
        self._active = active
        self._within = within
        self.now = Fraction(0)
        self._next = dict.fromkeys(jobs, 0)
        self._queues: dict[int, list[int]] = {}
        self._busy: dict[int, int] = {}
        self._started = 0
        self.order: dict[int, list[Turn]] = {}
        self.running: list[tuple[Fraction, int, int]] = []

    def arrive(self, chunk: int) -> None:
        """A chunk waits for the dimension of its next phase."""
        job = self._jobs[chunk][self._next[chunk]]
        queue = self._queues.setdefault(job.dimension, [])
        place = len(queue)
        last = self._next[chunk] == len(self._jobs[chunk]) - 1
        if self._within is WithinDimension.SMALLEST_FIRST and job.shrinks and not last:
            larger = (
                i
                for i, other in enumerate(queue)
                if self._jobs[other][self._next[other]].size_bytes > job.size_bytes
            )
            place = next(larger, place)
        queue.insert(place, chunk)
        self._start(job.dimension)

    def finish_next(self) -> int | None:
        """The phase that ends first ends. Its chunk, if that is done."""
        self.now, _, chunk = heapq.heappop(self.running)
        job = self._jobs[chunk][self._next[chunk]]
        self._busy[job.dimension] -= 1
        self._next[chunk] += 1
        done = self._next[chunk] == len(self._jobs[chunk])
        if not done:
            self.arrive(chunk)
        self._start(job.dimension)
        return chunk if done else None

    def _start(self, dimension: int) -> None:
        queue = self._queues[dimension]
        while queue and self._busy.get(dimension, 0) < self._active:
            chunk = queue.pop(0)
            job = self._jobs[chunk][self._next[chunk]]
            self._busy[dimension] = self._busy.get(dimension, 0) + 1
            self.order.setdefault(dimension, []).append(Turn(chunk, job.phase))
            end = self.now + Fraction(job.size_bytes, job.rate)
            heapq.heappush(self.running, (end, self._started, chunk))
            self._started += 1
