"""result.json, written into its run directory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from analysis.results.jobs_result import whole_of_jobs
from analysis.results.predicted_run import PredictedRun
from analysis.results.run_result import assemble, error_summary
from analysis.results.verdict import judge_run
from analysis.runs.run import Run

__all__ = ["build_result", "error_summary", "write_result"]


def build_results(run: Run) -> Iterator[tuple[Run, dict[str, Any]]]:
    """result.json of each part of a run, and last that of the run (docs/formats.md has the keys).
    Times are in target units. Raises RunError."""
    predicted = PredictedRun(run)
    judged = {name: judge_run(own, shared=bool(run.jobs)) for name, own in run.parts}
    results = {
        name: assemble(own, predicted.of(name, own), judged[name]) for name, own in run.parts
    }
    whole = None
    if run.jobs:
        whole = whole_of_jobs(run, results, list(judged.values()), predicted)
    yield from ((own, results[name]) for name, own in run.parts)
    if whole is not None:
        yield run, whole


def build_result(run: Run) -> dict[str, Any]:
    """result.json of a run. Raises RunError."""
    *_, (_, result) = build_results(run)
    return result


def write_result(run: Run) -> dict[str, Any]:
    """Build result.json of a run and of its parts, write each into its directory, and return that
    of the run. Raises RunError."""
    result: dict[str, Any] = {}
    for own, result in build_results(run):
        # A half-written one, of a full disk or a kill, must not look like a result.
        unfinished = own.directory / "result.json.unfinished"
        unfinished.write_text(json.dumps(result, indent=1) + "\n")
        unfinished.replace(own.directory / "result.json")
    return result
