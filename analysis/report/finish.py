"""The last step of a run: the files that people open, from a run directory with its result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis.exporters.perfetto import write_jobs_trace, write_trace_of
from analysis.report.html import render_html
from analysis.report.run_figures import RunFigures, figures_of, figures_of_jobs
from analysis.runs.run import Run


@dataclass(frozen=True)
class FinishedRun:
    """The files that `finish_run` wrote. Several jobs have a trace together, before those of each;
    where all of them failed there is no report."""

    report: Path | None
    traces: tuple[Path, ...]


def figures_read_ahead(run: Run) -> tuple[RunFigures, ...]:
    """The figures of each part of a run, with those computed that take long and need no result:
    what the captures hold. Raises RunError, CaptureFormatError."""
    found = tuple(figures_of(own) for _, own in run.parts)
    for figures in found:
        _ = figures.flows, figures.collectives, figures.traffic
    return found


def finish_run(run: Run, known: Sequence[RunFigures] = ()) -> FinishedRun:
    """Write report.html and trace.json of each part of a run whose directory has its result.json,
    and of several jobs a report that has them side by side. `known` are the figures of all parts,
    where these are known.

    Raises RunError for a damaged run directory.
    """
    every = known or [figures_of(own) for _, own in run.parts]
    traces = []
    for figures in every:
        _write_report(figures.run, [figures])
        traces.append(write_trace_of(figures.run, figures.queues, figures.flows))
    if not traces:
        return FinishedRun(None, ())
    if run.jobs:
        _write_report(run, figures_of_jobs(run, every), run.spec.name)
        traces.insert(0, write_jobs_trace(run))
    return FinishedRun(run.directory / "report.html", tuple(traces))


def _write_report(run: Run, figures: Sequence[RunFigures], name: str | None = None) -> None:
    (run.directory / "report.html").write_text(render_html(figures, name), encoding="utf-8")
