"""Collectives that are in flight together: how they slow each other down.

Predictors know one collective on an idle fabric. A process group runs as many at once as it has
worker threads and the others wait their turn (ProcessGroupGloo's threads, 2 by default); messages
between two ranks take no thread. Those that run share the links, as `link_load` has it.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.predict.engines.wire import Floats, Ints
from analysis.predict.interface import PredictorError
from analysis.predict.link_load import LinkLoad, LinkLoads

WORKERS = 2
"""ProcessGroupGloo::Options::threads as torch creates the group (ProcessGroupGloo.hpp)."""

_FINISHED_NS = 1e-6
"""The rest of a collective that has come to its end, but for rounding."""

_MOST_WORK = 50_000_000
"""The most progresses of a collective between two events that are told; more take about 10 s."""


@dataclass(frozen=True, slots=True)
class InFlight:
    """A posted collective: alone it takes `alone_ns` and loads its links for a part of that.
    `takes_worker` is whether it waits for a thread of its group. By `over_ns` it is known to have
    been over: whatever is left of it then has nobody wait for it or share its links."""

    group: str
    start_ns: int
    alone_ns: float
    load: LinkLoad
    takes_worker: bool = True
    over_ns: int | None = None


def overlapped_durations_ns(posted: Sequence[InFlight], workers: int = WORKERS) -> list[float]:
    """From each one's start to its end. Groups slow each other down where they share links.

    Raises PredictorError where too many are in flight at once.
    """
    order = sorted(range(len(posted)), key=lambda i: (posted[i].start_ns, i))
    origin_ns = posted[order[0]].start_ns if order else 0
    start = [p.start_ns - origin_ns for p in posted]
    loads = LinkLoads([p.load for p in posted])
    duration = [0.0] * len(posted)
    waiting: dict[str, deque[int]] = defaultdict(deque)
    busy: Counter[str] = Counter()
    running = np.zeros(0, dtype=np.int64)
    left = np.zeros(0)
    ends = deque(
        sorted((p.over_ns - origin_ns, i) for i, p in enumerate(posted) if p.over_ns is not None)
    )
    place, now, work = 0, 0.0, 0

    def free_worker(number: int) -> list[int]:
        """Those that may begin as this one has ended."""
        group = posted[number].group
        if not posted[number].takes_worker:
            return []
        if waiting[group]:
            return [waiting[group].popleft()]
        busy[group] -= 1
        return []

    while place < len(order) or len(running):
        begun: list[int] = []
        while place < len(order) and start[order[place]] <= now:
            number = order[place]
            place += 1
            group = posted[number].group
            if not posted[number].takes_worker:
                begun.append(number)
            elif busy[group] < workers:
                busy[group] += 1
                begun.append(number)
            else:
                waiting[group].append(number)
        running, left = _with(posted, begun, running, left)
        while ends and ends[0][0] <= now:
            number = ends.popleft()[1]
            still = running == number
            if still.any():
                duration[number] = now - start[number] + float(left[still][0])
                running, left = running[~still], left[~still]
                running, left = _with(posted, free_worker(number), running, left)
            elif number in waiting[posted[number].group]:
                waiting[posted[number].group].remove(number)
                duration[number] = now - start[number] + posted[number].alone_ns
        upcoming = float(start[order[place]]) if place < len(order) else np.inf
        if not len(running):
            now = upcoming
            continue
        work += len(running)
        if work > _MOST_WORK:
            raise PredictorError(
                f"{len(running):,} collectives and messages are in flight together, too many to "
                "follow"
            )
        slower = loads.slowdowns(running)
        known = float(ends[0][0]) if ends else np.inf
        step = min(float((left * slower).min()), min(upcoming, known) - now)
        now += step
        left = left - step / slower
        over = left <= _FINISHED_NS
        begun = []
        for number in running[over].tolist():
            duration[number] = now - start[number]
            begun += free_worker(number)
        running, left = _with(posted, begun, running[~over], left[~over])
    return duration


def _with(
    posted: Sequence[InFlight], begun: list[int], running: Ints, left: Floats
) -> tuple[Ints, Floats]:
    """The collectives that run, and the rest of each, when these have begun as well."""
    if not begun:
        return running, left
    alone = np.array([posted[i].alone_ns for i in begun])
    return np.append(running, np.array(begun, dtype=np.int64)), np.append(left, alone)
