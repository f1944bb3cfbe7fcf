"""Collectives that are in flight together: how they slow each other down.

Predictors know one collective on an idle fabric. A process group runs as many at once as it has
worker threads and the others wait their turn (ProcessGroupGloo's threads, 2 by default). Those that
run share the links, as `link_load` has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analysis.predict.link_load import LinkLoad, slowdowns

WORKERS = 2
"""ProcessGroupGloo::Options::threads as torch creates the group (ProcessGroupGloo.hpp)."""


@dataclass(frozen=True, slots=True)
class InFlight:
    """A posted collective: alone it takes `alone_ns` and loads its links for a part of that."""

    group: str
    start_ns: int
    alone_ns: float
    load: LinkLoad


def overlapped_durations_ns(posted: Sequence[InFlight], workers: int = WORKERS) -> list[float]:
    """From each one's start to its end. Groups slow each other down where they share links."""
    waiting = sorted(range(len(posted)), key=lambda i: (posted[i].start_ns, i))
    left = [p.alone_ns for p in posted]
    duration = [0.0] * len(posted)
    running: list[int] = []
    now = 0.0
    while waiting or running:
        running += _admit(posted, waiting, running, now, workers)
        upcoming = [float(posted[i].start_ns) for i in waiting if posted[i].start_ns > now]
        if not running:
            now = min(upcoming)
            continue
        found = slowdowns([posted[i].load for i in running])
        slowdown = dict(zip(running, found, strict=True))
        step = min([left[i] * slowdown[i] for i in running] + [at - now for at in upcoming[:1]])
        now += step
        for i in list(running):
            left[i] -= step / slowdown[i]
            if left[i] <= 1e-6:
                running.remove(i)
                duration[i] = now - posted[i].start_ns
    return duration


def _admit(
    posted: Sequence[InFlight], waiting: list[int], running: list[int], now: float, workers: int
) -> list[int]:
    """Take from `waiting` what its group has a worker for, in order of posting."""
    busy: dict[str, int] = {}
    for i in running:
        busy[posted[i].group] = busy.get(posted[i].group, 0) + 1
    admitted = []
    for i in list(waiting):
        group = posted[i].group
        if posted[i].start_ns > now:
            break
        if busy.get(group, 0) < workers:
            busy[group] = busy.get(group, 0) + 1
            waiting.remove(i)
            admitted.append(i)
    return admitted
