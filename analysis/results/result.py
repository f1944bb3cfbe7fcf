"""result.json, written into its run directory."""

from __future__ import annotations

import json
from typing import Any

from analysis.results.jobs_result import build_jobs_results
from analysis.results.run_result import build_result, error_summary
from analysis.runs.run import JobsRun, Run

__all__ = ["build_result", "error_summary", "write_result"]


def write_result(run: Run) -> dict[str, Any]:
    """Build result.json of a run, write it into its directory and return it; of several jobs, that
    of each as well. Raises RunError."""
    if not isinstance(run, JobsRun):
        return _write(run, build_result(run))
    whole, of_jobs = build_jobs_results(run)
    for job, own in run.finished:
        _write(own, of_jobs[job.name])
    return _write(run, whole)


def _write(run: Run, result: dict[str, Any]) -> dict[str, Any]:
    # A half-written one, of a full disk or a kill, must not look like a result.
    unfinished = run.directory / "result.json.unfinished"
    unfinished.write_text(json.dumps(result, indent=1) + "\n")
    unfinished.replace(run.directory / "result.json")
    return result
