"""The last step of a run: the files that people open, from a run directory with its result."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from analysis.exporters.perfetto import write_jobs_trace, write_trace_of
from analysis.report.html import render_html
from analysis.report.run_figures import RunFigures, figures_of, figures_of_jobs
from analysis.runs.run import JobsRun, Run


@dataclass(frozen=True)
class FinishedRun:
    """The files that `finish_run` wrote. Several jobs have a trace together, before those of each;
    where all of them failed there is no report."""

    report: Path | None
    traces: tuple[Path, ...]


def figures_read_ahead(run: Run) -> RunFigures:
    """The figures of a run of one workload, with those computed that take long and need no result:
    what the captures hold. Raises RunError, CaptureFormatError."""
    figures = figures_of(run)
    _ = figures.flows, figures.collectives, figures.traffic
    return figures


def finish_run(run: Run, figures: RunFigures | None = None) -> FinishedRun:
    """Write report.html and trace.json of a run whose directory has its result.json; of several
    jobs those of each, and a report that has them side by side. `figures` are those of a run of one
    workload, when they are known.

    Raises RunError for a damaged run directory.
    """
    if isinstance(run, JobsRun):
        finished = [finish_run(own) for _, own in run.finished]
        if not finished:
            return FinishedRun(None, ())
        report = run.directory / "report.html"
        page = render_html(figures_of_jobs(run), run.spec.name)
        report.write_text(page, encoding="utf-8")
        own = tuple(trace for each in finished for trace in each.traces)
        return FinishedRun(report, (write_jobs_trace(run), *own))
    figures = figures or figures_of(run)
    report = run.directory / "report.html"
    report.write_text(render_html([figures]), encoding="utf-8")
    trace = write_trace_of(figures.run, figures.queues, figures.flows)
    return FinishedRun(report, (trace,))
