"""The verdict on a run: what its kernel noticed, and what its times say against themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analysis.results.impossible import impossible_times
from analysis.results.judged import QUOTED, JudgedTimes, judged_times
from analysis.runs.records import VerdictRecord
from analysis.runs.run import Run

_PORTS = "queue_lateness"
_UNJUDGED = (
    "nothing of it could be judged: no time of a collective was measured, and no port had enough "
    "to send for long enough to show its rate (a twin, larger messages, or the virtual kernel)"
)


@dataclass(frozen=True)
class JudgedRun:
    """The verdict, and how a native run's times were judged: None on the virtual kernel, and where
    they cannot have been at all. `outweighed` are reasons to doubt the times, which the run's twin
    shows to be right all the same."""

    verdict: VerdictRecord
    times: JudgedTimes | None
    outweighed: tuple[str, ...] = ()


def verdict_of(run: Run) -> VerdictRecord:
    """Whether the run's figures can be believed, and why not. Raises RunError."""
    if run.jobs:
        return verdict_of_jobs(run, [judge_run(own, shared=True) for _, own in run.finished])
    return judge_run(run).verdict


def verdict_of_jobs(run: Run, judged: Sequence[JudgedRun]) -> VerdictRecord:
    """The verdict on a run of several jobs. `judged` are those that came to their end: all of their
    reasons count, and one more for each job that failed. Without it the others had less company
    than the spec says."""
    reasons = [f"job failed: {job.failed.said}" for job in run.jobs if job.failed is not None]
    reasons += [reason for each in judged for reason in each.verdict.reasons]
    valid = all(each.verdict.valid for each in judged) and not reasons
    return VerdictRecord(valid=valid, reasons=list(dict.fromkeys(reasons)))


def judge_run(run: Run, shared: bool = False) -> JudgedRun:
    """The verdict on a run, and what it says of its times. It is `shared` where it is a job's, and
    other jobs were on the same fabric.

    The run's own verdict (environment.json), one reason more when times were measured that cannot
    have been, and natively those for which times are not the fabric's. A threat to times is no
    reason where a twin shows that they are right. Raises RunError.
    """
    noticed = run.environment.verdict
    reasons = list(noticed.reasons)
    simulated = run.environment.simulated
    if simulated is not None and simulated.early_posts:
        reasons.append(
            f"{simulated.early_posts} parts of collectives came before what the simulated network "
            "had followed by then"
        )
    impossible = impossible_times(run)
    if impossible:
        slowed = f", slowed down {run.environment.scale} times" if run.environment.scale > 1 else ""
        quoted = "; ".join(str(each) for each in impossible[:QUOTED])
        more = len(impossible) - QUOTED
        reasons.append(
            f"times were measured that no fabric of this spec{slowed} can have made, so the clock "
            f"or the links were wrong: {quoted}" + (f"; and {more:,} more" if more > 0 else "")
        )
    times = judged_times(run, shared) if not impossible else None
    outweighed: tuple[str, ...] = ()
    if times is not None:
        if times.by == "twin" and not times.reasons:
            outweighed = tuple(reason for reason in reasons if reason in noticed.of_time)
            reasons = [reason for reason in reasons if reason not in outweighed]
        reasons += times.reasons
        if not (times.judged or reasons) and noticed.samples.get(_PORTS, 0) is None:
            reasons.append(_UNJUDGED)
    valid = not reasons and (noticed.valid or bool(outweighed))
    return JudgedRun(VerdictRecord(valid=valid, reasons=reasons), times, outweighed)
