"""The result.json of several jobs that shared a fabric: each by itself, and all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import mean
from typing import Any

from analysis.predict.interface import PredictorError
from analysis.predict.planned_run import (
    JobToPredict,
    PredictedIteration,
    PredictedJob,
    predict_run,
)
from analysis.predict.run_predictions import RunPredictor
from analysis.predict.setting import setting_of
from analysis.results.notes import payload_checked
from analysis.results.run_result import (
    PORTS,
    Predictions,
    assemble,
    error_of,
    predictions_of,
    predictors_of,
    summary_of,
    unanswered,
)
from analysis.results.shared_links import SharedLink, shared_links
from analysis.results.verdict import judge_run, verdict_of_jobs
from analysis.runs.collectives import collectives_of
from analysis.runs.run import RESULT_SCHEMA, JobOfRun, JobsRun, Run, load_run
from collectives.call import CollectiveError

ALONE = "alone"
"""Below a run directory: by job, runs in which the others are idle."""


def build_jobs_results(run: JobsRun) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """result.json of the run, and by name that of each job that came to its end
    (docs/formats.md has the keys). Times are in target units. Raises RunError."""
    predicted = _Predicted(run)
    judged = {job.name: judge_run(own, shared=True) for job, own in run.finished}
    of_jobs = {
        job.name: assemble(own, predicted.of(job, own), judged[job.name])
        for job, own in run.finished
    }
    for job, _ in run.finished:
        _mark(run, job, of_jobs[job.name])
    jobs = [_job(run, job, of_jobs.get(job.name), predicted) for job in run.jobs]
    links = shared_links(run)
    for entry in jobs:
        if entry["failed"] is None:
            of_jobs[entry["name"]]["notes"] += _of_sharing(entry, links)
    rows = _merged(run, of_jobs, "collectives")
    iterations = _merged(run, of_jobs, "iterations")
    rows.sort(key=lambda row: (row["start_ns"], row["job"], row["id"]))
    verdict = verdict_of_jobs(run, list(judged.values()))
    environment = run.environment
    whole = {
        "schema": RESULT_SCHEMA,
        "name": run.spec.name,
        "kernel": environment.kernel,
        "valid": verdict.valid,
        "invalid_reasons": verdict.reasons,
        "judged": None,
        "payload_checked": payload_checked(run.spec),
        "notes": _notes(of_jobs),
        "wall_s": environment.wall_s,
        "scale": environment.scale,
        "jobs": jobs,
        "fairness": _fairness(jobs),
        "shared_links": [_link(link) for link in links],
        "collectives": rows,
        "iterations": iterations,
        "summary": summary_of(run, rows, iterations),
    }
    return whole, of_jobs


class _Predicted:
    """Predictions for all jobs together, and for each with the others idle."""

    def __init__(self, run: JobsRun) -> None:
        self._run = run
        merged, predictors = collectives_of(run), predictors_of(run)
        entries = predictions_of(run, merged, predictors)
        self._entries = {(c.group, c.id): e for c, e in zip(merged, entries, strict=True)}
        self._jobs = [
            JobToPredict(job.name, own.spec, job.first, job.start_ns) for job, own in run.finished
        ]
        self.together = {name: self._all(predictor) for name, predictor in predictors.items()}
        self.alone = {name: self._each(predictor) for name, predictor in predictors.items()}

    def _all(self, predictor: RunPredictor) -> Mapping[str, PredictedJob] | CollectiveError:
        failed = [job.name for job in self._run.jobs if job.failed is not None]
        if failed:
            return PredictorError(f"job {failed[0]} failed; until when it sent is not predicted")
        return self._predict(self._jobs, predictor)

    def _each(self, predictor: RunPredictor) -> dict[str, PredictedJob | CollectiveError]:
        found: dict[str, PredictedJob | CollectiveError] = {}
        for job in self._jobs:
            answer = self._predict([job], predictor)
            found[job.name] = answer if isinstance(answer, CollectiveError) else answer[job.name]
        return found

    def _predict(
        self, jobs: list[JobToPredict], predictor: RunPredictor
    ) -> Mapping[str, PredictedJob] | CollectiveError:
        try:
            return predict_run(jobs, predictor.setting, predictor.simulator)
        except CollectiveError as error:
            return error

    def of(self, job: JobOfRun, own: Run) -> Predictions:
        """The predictions beside a job's figures."""
        collectives = [self._entries[f"{job.name}/{c.group}", c.id] for c in collectives_of(own)]
        iterations = {name: self._iterations(name, job.name) for name in self.together}
        return Predictions(collectives, iterations)

    def _iterations(
        self, predictor: str, job: str
    ) -> Sequence[PredictedIteration] | CollectiveError:
        answer = self.together[predictor]
        return answer if isinstance(answer, CollectiveError) else answer[job].iterations

    def entry(self, predictor: str, job: str, measured_ns: int) -> dict[str, Any]:
        """A predictor's word on how long a job took, beside the others and alone."""
        together, alone = self.together[predictor], self.alone[predictor].get(job)
        if isinstance(together, CollectiveError):
            return unanswered(together)
        duration_ns = together[job].duration_ns
        entry = {
            "duration_ns": duration_ns,
            "error": error_of(duration_ns, measured_ns),
            "conditioned": [PORTS],
        }
        if isinstance(alone, PredictedJob) and alone.duration_ns:
            entry["alone_ns"] = alone.duration_ns
            entry["slowdown"] = round(duration_ns / alone.duration_ns, 6)
        return entry


def _mark(run: JobsRun, job: JobOfRun, result: dict[str, Any]) -> None:
    """The figures of a job that came after another had failed, and so had less company."""
    scale = run.environment.scale
    for other in run.jobs:
        if other.failed is None:
            continue
        at_ns = other.failed.at_ns // scale
        late = [row for row in result["collectives"] if row["end_ns"] > at_ns]
        for row in late:
            row.setdefault("after_failure_of", []).append(other.name)
        result["notes"].append(
            f"job {other.name} failed at {_since(run, other.failed.at_ns):,} ns: "
            f"{len(late)} of {len(result['collectives'])} collectives ended after that"
        )


def _since(run: JobsRun, at_ns: int) -> int:
    """Nanoseconds of target time from when starts are counted."""
    return (at_ns - (run.environment.origin_ns or 0)) // run.environment.scale


def _merged(run: JobsRun, of_jobs: Mapping[str, dict[str, Any]], key: str) -> list[dict[str, Any]]:
    return [
        {"job": job.name} | row
        for job in run.jobs
        if job.run is not None
        for row in of_jobs[job.name][key]
    ]


def _notes(of_jobs: Mapping[str, dict[str, Any]]) -> list[str]:
    return [f"job {name}: {n}" for name, result in of_jobs.items() for n in result["notes"]]


def _job(
    run: JobsRun, job: JobOfRun, result: dict[str, Any] | None, predicted: _Predicted
) -> dict[str, Any]:
    spec = next(each for each in run.spec.jobs if each.name == job.name)
    entry: dict[str, Any] = {
        "name": job.name,
        "kind": spec.workload.kind,
        "ranks": spec.workload.ranks,
        "hosts": list(job.record.hosts),
        "start_ns": job.start_ns,
        "retransmits": job.record.retransmits,
    }
    if job.run is None or result is None:
        assert job.failed is not None
        failed = {"at_ns": _since(run, job.failed.at_ns)} | job.failed.model_dump(exclude={"at_ns"})
        return entry | {"failed": failed}
    begun_ns, ended_ns = _span_ns(job.run)
    duration_ns = (ended_ns - begun_ns) // run.environment.scale
    alone = _alone(run, job)
    iterations = [row["duration_ns"] for row in result["iterations"]]
    return entry | {
        "failed": None,
        "begun_ns": _since(run, begun_ns),
        "duration_ns": duration_ns,
        "iterations": len(iterations),
        "iteration_ns": round(mean(iterations)) if iterations else None,
        "collectives": len(result["collectives"]),
        "alone": alone,
        "slowdown": (
            round(duration_ns / alone["duration_ns"], 6) if alone and alone["duration_ns"] else None
        ),
        "predicted": {
            name: predicted.entry(name, job.name, duration_ns) for name in predicted.together
        },
    }


def _alone(run: JobsRun, job: JobOfRun) -> dict[str, Any] | None:
    """The job's times while the others were idle, if it was run so; and whether its connections
    had the same ports, and so took the same paths."""
    directory = run.directory / ALONE / job.name
    if not (directory / "environment.json").exists():
        return None
    by_itself = load_run(directory)
    assert isinstance(by_itself, JobsRun)
    found = next((own for other, own in by_itself.finished if other.name == job.name), None)
    if found is None or job.run is None:
        return None
    begun_ns, ended_ns = _span_ns(found)
    same = setting_of(found).ports == setting_of(job.run).ports
    duration_ns = (ended_ns - begun_ns) // by_itself.environment.scale
    return {"duration_ns": duration_ns, "same_paths": same}


def _fairness(jobs: Sequence[Mapping[str, Any]]) -> float | None:
    """Jain's index (Jain, Chiu and Hawe, DEC-TR-301, 1984) of what share of its own speed each job
    has: 1 when all are slowed down alike, 1/n when one has everything. None where not all jobs were
    run alone, too."""
    shares = [1 / job["slowdown"] for job in jobs if job.get("slowdown")]
    if len(shares) < max(2, len(jobs)):
        return None
    squares = sum(share * share for share in shares)
    return round(float(sum(shares) ** 2 / (len(shares) * squares)), 6)


def _of_sharing(job: Mapping[str, Any], links: Sequence[SharedLink]) -> list[str]:
    """Notes for a reader of a job's figures on the other jobs."""
    found = [] if job["slowdown"] is None else [_of_slowdown(job)]
    mine = [link for link in links if job["name"] in link.bytes_by_job]
    waits = [(w, link) for link in mine for w in link.waits if w.job == job["name"]]
    if waits:
        worst, link = max(waits, key=lambda each: each[0].waited_ns)
        found.append(
            f"it shares {len(mine)} links with other jobs; most it waits from {link.node} to "
            f"{link.peer}, where its messages wait {worst.waited_ns / 1000:,.2f} us behind "
            f"{worst.behind}'s"
        )
    return found


def _of_slowdown(job: Mapping[str, Any]) -> str:
    alone = job["alone"]
    said = f"alone it takes {alone['duration_ns'] / 1000:,.2f} us, so it is slowed down by "
    said += f"{job['slowdown']:.3f}"
    expected = [
        f"{name} expects {entry['slowdown']:.3f}"
        for name, entry in job["predicted"].items()
        if "slowdown" in entry
    ]
    same = "" if alone["same_paths"] else "; its connections had other ports, maybe other paths"
    return said + (f" ({', '.join(expected)})" if expected else "") + same


def _link(link: SharedLink) -> dict[str, Any]:
    return {
        "link": link.link,
        "node": link.node,
        "peer": link.peer,
        "rate_bps": link.rate_bps,
        "bytes": link.bytes_by_job,
        "waits": [asdict(wait) for wait in link.waits],
    }


def _span_ns(run: Run) -> tuple[int, int]:
    """From a job's first iteration to the end of its last one; of what logs none, from its first
    collective to the end of its last."""
    spans = [(i.start_ns, i.end_ns) for log in run.ranks for i in log.iterations]
    if not spans:
        posted = [r for c in collectives_of(run) for r in c.by_rank.values()]
        spans = [(record.start_ns, record.end_ns) for record in posted]
    if not spans:
        return 0, 0
    return min(start for start, _ in spans), max(end for _, end in spans)
