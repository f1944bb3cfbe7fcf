"""From run directories to a report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from analysis.report.html import render_html
from analysis.report.run_figures import RunFigures
from analysis.run import Run, load_run


def run_figures(directories: Sequence[Path]) -> tuple[RunFigures, ...]:
    """Load runs and label them by their directories' names, as short as tells them apart.

    Raises RunError or SpecError.
    """
    return figures_of([load_run(directory) for directory in directories])


def figures_of(runs: Sequence[Run]) -> tuple[RunFigures, ...]:
    """Label loaded runs."""
    labels = _labels([run.directory.resolve() for run in runs])
    return tuple(RunFigures(run, label) for run, label in zip(runs, labels, strict=True))


def write_report(directory: Path) -> Path:
    """Write a run directory's own report.html and return its path. Raises RunError."""
    path = directory / "report.html"
    path.write_text(render_html(run_figures([directory])), encoding="utf-8")
    return path


def _labels(paths: Sequence[Path]) -> list[str]:
    for parts in range(1, max(len(path.parts) for path in paths) + 1):
        labels = ["/".join(path.parts[-parts:]) for path in paths]
        if len(set(labels)) == len(labels):
            return labels
    return [f"{path.name} ({number})" for number, path in enumerate(paths, start=1)]
