"""The cost of failures to a program: when they were noticed, when it went on, and how much of the
time it made progress."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from analysis.runs.faults import fault_events
from analysis.runs.records import StepRecord
from analysis.runs.run import Run

_BINS = 20
_KILL = "kill "
"""How the words for a fault begin that kills (emulator/network/faults.py)."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """A failure at `at_ns`. From then on, until a rank had been started again (`detected_ns`), and
    until the first step thereafter was over (`recovered_ns`); None where that never was. `lost_ns`
    is the time from the last step's end to the failure, whose work is lost at least. Nanoseconds of
    the monotonic clock and of its differences."""

    what: str
    at_ns: int
    detected_ns: int | None
    recovered_ns: int | None
    lost_ns: int

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for result.json."""
        return {
            "what": self.what,
            "at_ns": self.at_ns,
            "detected_ns": self.detected_ns,
            "recovered_ns": self.recovered_ns,
            "lost_ns": self.lost_ns,
        }


def recoveries(
    kills: Sequence[tuple[int, str]], steps: Sequence[StepRecord], lives: Sequence[int]
) -> list[Recovery]:
    """A row for each of `kills`, (when, what) in order; `lives` are the times at which ranks were
    started again."""
    found = []
    ends = sorted(step.end_ns for step in steps)
    for (at_ns, what), (until_ns, _) in pairwise([*kills, (2**63, "")]):
        started = [ns for ns in lives if at_ns <= ns < until_ns]
        again_ns = min(started, default=at_ns)
        over = [ns for ns in ends if again_ns < ns < until_ns]
        before = [ns for ns in ends if ns <= at_ns]
        found.append(
            Recovery(
                what,
                at_ns,
                again_ns - at_ns if started else None,
                over[0] - at_ns if over else None,
                at_ns - before[-1] if before else 0,
            )
        )
    return found


def goodput(failures: Sequence[Recovery], first_ns: int, last_ns: int) -> float:
    """The share of the time from `first_ns` to `last_ns` in which no failure was being recovered
    from, and whose work was not lost. A failure without recovery lasts until `last_ns`."""
    if last_ns <= first_ns:
        return 0.0
    lost_ns = 0
    for failure in failures:
        until_ns = last_ns if failure.recovered_ns is None else failure.at_ns + failure.recovered_ns
        begin_ns = max(first_ns, failure.at_ns - failure.lost_ns)
        lost_ns += max(0, min(until_ns, last_ns) - begin_ns)
    return max(0.0, 1 - lost_ns / (last_ns - first_ns))


def recovery_section(run: Run) -> dict[str, Any] | None:
    """The section of result.json; None of a run in which nothing was killed or no rank told of its
    steps. Times are counted from the first step's begin."""
    kills = [(e.at_ns, e.what) for e in fault_events(run) if e.began and e.what.startswith(_KILL)]
    steps = [step for log in run.ranks for step in log.steps]
    if not kills or not steps:
        return None
    lives = [life.start_ns for log in run.ranks for life in log.lives]
    first_ns = min(step.start_ns for step in steps)
    last_ns = max(step.end_ns for step in steps)
    found = recoveries(kills, steps, lives)
    width_ns = max(1, (last_ns - first_ns) // _BINS)
    counts = [0] * _BINS
    for step in steps:
        counts[min(_BINS - 1, (step.end_ns - first_ns) // width_ns)] += 1
    scale = run.environment.scale
    rows = [failure.as_dict() for failure in found]
    for row in rows:
        row["at_ns"] -= first_ns
        for key in ("at_ns", "detected_ns", "recovered_ns", "lost_ns"):
            row[key] = None if row[key] is None else row[key] // scale
    return {
        "goodput": goodput(found, first_ns, last_ns),
        "failures": rows,
        "steps_over_time": {"width_ns": width_ns // scale, "steps": counts},
    }
