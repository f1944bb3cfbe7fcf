"""The last step of a run: the files that people open, from a run directory with its result."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from analysis.exporters.perfetto import write_trace_of
from analysis.report.html import render_html
from analysis.report.run_figures import figures_of
from analysis.runs.run import Run


@dataclass(frozen=True)
class FinishedRun:
    """What `finish_run` wrote."""

    report: Path
    trace: Path


def finish_run(run: Run) -> FinishedRun:
    """Write report.html and trace.json of a run whose directory has its result.json.

    Raises RunError for a damaged run directory.
    """
    figures = figures_of(run)
    report = run.directory / "report.html"
    report.write_text(render_html([figures]), encoding="utf-8")
    return FinishedRun(report, write_trace_of(figures.run, figures.queues, figures.flows))
