"""The jobs of a result as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from groundwire.commands.console.cells import microseconds, percent


def print_jobs(result: dict[str, Any], predictors: Sequence[str], console: Console) -> None:
    """Print how long each job took, and what predictors say of it beside the others and alone."""
    table = Table(title="Jobs (times in us)", title_justify="left")
    table.add_column("job", no_wrap=True)
    for heading in ("ranks", "start", "took", "iteration"):
        table.add_column(heading, justify="right")
    for name in predictors:
        for heading in (name, "error", "slow-down"):
            table.add_column(heading, justify="right")
    for job in result["jobs"]:
        cells = [job["name"], str(job["ranks"]), microseconds(job["start_ns"])]
        if job["failed"] is not None:
            at = microseconds(job["failed"]["at_ns"])
            table.add_row(*cells, f"[bold red]failed[/] at {at}")
            continue
        cells += [microseconds(job["duration_ns"]), microseconds(job["iteration_ns"])]
        for name in predictors:
            predicted = job["predicted"][name]
            slower = predicted.get("slowdown")
            cells += [microseconds(predicted["duration_ns"]), percent(predicted["error"])]
            cells.append("-" if slower is None else f"{slower:.3f}")
        table.add_row(*cells)
    console.print(table)
    for job in result["jobs"]:
        if job["failed"] is not None:
            console.print(f"[bold red]job failed[/]: {job['failed']['said']}", highlight=False)
