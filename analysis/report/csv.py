"""The tables of runs as comma-separated files: raw values, units in the column names."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from analysis.report.run_figures import RunFigures


def render_csv(runs: Sequence[RunFigures], name: str) -> str:
    """One table of all runs, the run's label as first column."""
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n")
    header: tuple[str, ...] = ()
    rows = []
    for figures in runs:
        each = figures.tables.get(name)
        if each is None:
            continue
        header = header if len(header) > len(each.keys) else ("run", *each.keys)
        rows += [{"run": figures.label, **record} for record in each.records()]
    writer.writerow(header)
    writer.writerows([row.get(key, "") for key in header] for row in rows)
    return target.getvalue()


def write_csv(runs: Sequence[RunFigures], directory: Path) -> tuple[Path, ...]:
    """A file per table in `directory`, which is made where needed; returns their paths."""
    directory.mkdir(parents=True, exist_ok=True)
    found = []
    for name in dict.fromkeys(name for run in runs for name in run.tables):
        path = directory / f"{name}.csv"
        text = render_csv(runs, name)
        path.write_text(text, encoding="utf-8", errors="backslashreplace")
        found.append(path)
    return tuple(found)
