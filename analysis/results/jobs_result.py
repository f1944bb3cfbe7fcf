"""The result.json of several jobs that shared a fabric, beside that of each. `result.py` builds
them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import mean
from typing import Any

from analysis.predict.setting import setting_of
from analysis.results.notes import payload_checked
from analysis.results.predicted_run import PredictedRun
from analysis.results.run_result import summary_of
from analysis.results.shared_links import SharedLink, shared_links
from analysis.results.verdict import JudgedRun, verdict_of_jobs
from analysis.runs.collectives import collectives_of
from analysis.runs.run import RESULT_SCHEMA, JobOfRun, Run, load_run

ALONE = "alone"
"""Below a run directory: by job, runs in which the others are idle."""


def whole_of_jobs(
    run: Run,
    of_jobs: Mapping[str, dict[str, Any]],
    judged: Sequence[JudgedRun],
    predicted: PredictedRun,
) -> dict[str, Any]:
    """result.json of the run; those of its jobs get notes on each other. Raises RunError."""
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
    verdict = verdict_of_jobs(run, judged)
    environment = run.environment
    return {
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


def _mark(run: Run, job: JobOfRun, result: dict[str, Any]) -> None:
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


def _since(run: Run, at_ns: int) -> int:
    """Nanoseconds of target time from when starts are counted."""
    return (at_ns - (run.environment.origin_ns or 0)) // run.environment.scale


def _merged(run: Run, of_jobs: Mapping[str, dict[str, Any]], key: str) -> list[dict[str, Any]]:
    return [
        {"job": job.name} | row
        for job in run.jobs
        if job.run is not None
        for row in of_jobs[job.name][key]
    ]


def _notes(of_jobs: Mapping[str, dict[str, Any]]) -> list[str]:
    return [f"job {name}: {n}" for name, result in of_jobs.items() for n in result["notes"]]


def _job(
    run: Run, job: JobOfRun, result: dict[str, Any] | None, predicted: PredictedRun
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
    recovery = {"recovery": result["recovery"]} if "recovery" in result else {}
    return (
        entry
        | recovery
        | {
            "failed": None,
            "begun_ns": _since(run, begun_ns),
            "duration_ns": duration_ns,
            "iterations": len(iterations),
            "iteration_ns": round(mean(iterations)) if iterations else None,
            "collectives": len(result["collectives"]),
            "alone": alone,
            "slowdown": (
                round(duration_ns / alone["duration_ns"], 6)
                if alone and alone["duration_ns"]
                else None
            ),
            "predicted": {
                name: predicted.entry(name, job.name, duration_ns) for name in predicted.together
            },
        }
    )


def _alone(run: Run, job: JobOfRun) -> dict[str, Any] | None:
    """The job's times while the others were idle, if it was run so; and whether its connections
    had the same ports, and so took the same paths."""
    directory = run.directory / ALONE / job.name
    if not (directory / "environment.json").exists():
        return None
    by_itself = load_run(directory)
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
