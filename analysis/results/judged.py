"""Whether the times of a native run are those of its fabric: judged by what came out.

With a twin (the same spec's run on the virtual kernel, in `twin/` of the run directory) each
collective is held against the twin's. Without one, all that were in flight together are held
against what they take at least and at most on an undisturbed fabric (`expected`). Those figures are
right where no losses, marks or windows decide; where these do, only a twin can tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from analysis.predict.setting import setting_of
from analysis.results.expected import Expectation, ExpectedTime
from analysis.runs.collectives import alignments_of, collectives_of
from analysis.runs.run import Run, load_run
from collectives.call import CollectiveError

TWIN = "twin"
"""The run directory of the twin, in that of the run."""

TWIN_LIMIT = 0.05
"""The most that a valid run's collectives may differ from the exact ones."""
EXPECTED_LIMIT = 0.044
"""The same where the exact time is not known but lies between what is expected at least and at
most: on the virtual kernel these were wrong by 0.6% at most, where nothing was lost
(benchmarks/results/2026-11-23-native-truth.md)."""

QUOTED = 3
"""So many of a list are named, and the others are counted."""


@dataclass(frozen=True, slots=True)
class JudgedTimes:
    """The comparison, and how far off it was: the share by which a collective took longer
    (`slower`) or shorter (`faster`) than it should, of the worst. `judged` collectives were
    compared, of which `wrong` are beyond the limit."""

    by: Literal["bytes", "twin"]
    judged: int
    wrong: int
    slower: float
    faster: float
    reasons: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for result.json; the reasons are the verdict's."""
        return {key: value for key, value in asdict(self).items() if key != "reasons"}


@dataclass(frozen=True, slots=True)
class TimeDifference:
    """A collective, or a whole iteration, natively and on the virtual kernel; nanoseconds of target
    time."""

    id: str
    iteration: int
    native_ns: int
    exact_ns: int

    @property
    def share(self) -> float:
        """By which the native one took longer."""
        return self.native_ns / self.exact_ns - 1 if self.exact_ns else 0.0


def twin_of(run: Run) -> Run | None:
    """The run's twin, if it has one that came to its end. Raises RunError for a damaged one."""
    directory = run.directory / TWIN
    return load_run(directory) if (directory / "environment.json").exists() else None


def exact_times(run: Run, twin: Run) -> dict[tuple[str, str], int]:
    """(group, id) -> nanoseconds that a collective of a run took on the run's twin."""
    known = {(c.group, c.id) for c in collectives_of(run)}
    scale = twin.environment.scale
    return {
        (c.group, c.id): c.duration_ns // scale
        for c in collectives_of(twin)
        if (c.group, c.id) in known
    }


def differences(run: Run, twin: Run) -> tuple[TimeDifference, ...]:
    """Every collective of a native run beside the same one of its twin, in order of start, and the
    iterations of workloads that log them."""
    exact, scale = exact_times(run, twin), run.environment.scale
    found = [
        TimeDifference(c.id, c.iteration, c.duration_ns // scale, exact[c.group, c.id])
        for c in collectives_of(run)
        if (c.group, c.id) in exact
    ]
    exactly = _iteration_times(twin)
    found += [
        TimeDifference(f"iteration {index}", index, native_ns, exactly[index])
        for index, native_ns in _iteration_times(run).items()
        if index in exactly
    ]
    return tuple(found)


def _iteration_times(run: Run) -> dict[int, int]:
    """Iteration -> nanoseconds of target time, from its first rank's start to its last one's end.
    Empty where the workload logs none."""
    spans = [span for log in run.ranks for span in log.iterations]
    return {
        index: (
            max(s.end_ns for s in spans if s.index == index)
            - min(s.start_ns for s in spans if s.index == index)
        )
        // run.environment.scale
        for index in sorted({span.index for span in spans})
    }


def judged_times(run: Run, shared: bool = False) -> JudgedTimes | None:
    """The times of a native run, judged; None for the virtual kernel, whose time is exact. With a
    fabric that is shared with other jobs only a twin tells what they should be."""
    if run.environment.kernel == "virtual":
        return None
    twin = twin_of(run)
    if twin is not None and twin.environment.verdict.valid:
        return _by_twin(differences(run, twin))
    if shared:
        reason = "jobs shared the fabric, and only a twin tells what they should take (--twin)"
        return JudgedTimes("bytes", 0, len(collectives_of(run)), 0.0, 0.0, (reason,))
    return _by_bytes(run)


def _by_twin(found: Sequence[TimeDifference]) -> JudgedTimes:
    wrong = [d for d in found if abs(d.share) > TWIN_LIMIT]
    worst = sorted(wrong, key=lambda d: -abs(d.share))[:QUOTED]
    quoted = "; ".join(
        f"{d.id} took {d.native_ns:,} ns, exactly it takes {d.exact_ns:,} ns ({d.share:+.1%})"
        for d in worst
    )
    reasons = (
        (
            f"{len(wrong)} of {len(found)} times differ by more than {TWIN_LIMIT:.0%} from "
            f"the run's twin on the virtual kernel: {quoted}",
        )
        if wrong
        else ()
    )
    return JudgedTimes(
        "twin",
        len(found),
        len(wrong),
        round(max((d.share for d in found), default=0.0), 6),
        round(-min((d.share for d in found), default=0.0), 6),
        reasons,
    )


def _by_bytes(run: Run) -> JudgedTimes:
    # Nobody knows how much goes where of collectives in which programs send unequal parts.
    collectives = tuple(each for each in collectives_of(run) if not each.unknown)
    try:
        expected = Expectation(
            setting_of(run),
            collectives,
            run.port_counters,
            run.environment.scale,
            alignments_of(run),
        ).of_all()
    except CollectiveError as unknown:
        reason = f"its times could not be judged ({unknown}); run it with --twin"
        return JudgedTimes("bytes", 0, len(collectives), 0.0, 0.0, (reason,))
    slow = [e for e in expected if e.slower > EXPECTED_LIMIT]
    fast = [e for e in expected if e.faster > EXPECTED_LIMIT]
    reasons = []
    if slow:
        worst = sorted(slow, key=lambda e: -e.slower)[:QUOTED]
        reasons.append(
            f"{len(slow)} of {len(expected)} collectives took more than {EXPECTED_LIMIT:.1%} "
            f"longer than their bytes take at their slowest link: {_quote(worst)}. The "
            "machine was too slow, or the transport (losses, marks, windows): only a twin on the "
            "virtual kernel tells which (--twin)"
        )
    if fast:
        worst = sorted(fast, key=lambda e: -e.faster)[:QUOTED]
        reasons.append(
            f"{len(fast)} of {len(expected)} collectives were over more than {EXPECTED_LIMIT:.1%} "
            f"sooner than on such a fabric: {_quote(worst)}. Idle links let through at once the "
            "tokens that make up for late timers, and without netem a first frame too: messages "
            "are too short for that (larger ones, or the virtual kernel)"
        )
    return JudgedTimes(
        "bytes",
        len(expected),
        len({id(e) for e in (*slow, *fast)}),
        round(max((e.slower for e in expected), default=0.0), 6),
        round(max((e.faster for e in expected), default=0.0), 6),
        tuple(reasons),
    )


def _quote(expected: Sequence[ExpectedTime]) -> str:
    return "; ".join(
        f"{e.collectives[0].id} took {e.measured_ns:,} ns, expected are {e.least_ns:,.0f} to "
        f"{e.most_ns:,.0f} ns"
        for e in expected
    )
