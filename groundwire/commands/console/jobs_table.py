"""The jobs of a result as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from groundwire.commands.console.figures import Figures, OutputConsole, microseconds, percent
from groundwire.commands.console.plain_text import unstyled
from topologies.units import format_size

_SHOWN = 10


def print_jobs(result: dict[str, Any], predictors: Sequence[str], console: OutputConsole) -> None:
    """Print how long each job took, and what predictors say of it beside the others and alone."""
    measured = any(job.get("slowdown") is not None for job in result["jobs"])
    table = Figures("job", title="Jobs")
    table.figure("ranks")
    for heading in ("start", "took", "iteration", *(("alone",) if measured else ())):
        table.figure(heading, "us")
    if measured:
        table.figure("slow-", "down")
    for name in predictors:
        table.figure(name, "error")
        table.figure("slow-", "down")
    for job in result["jobs"]:
        cells = [job["name"], str(job["ranks"]), microseconds(job["start_ns"])]
        if job["failed"] is not None:
            at = microseconds(job["failed"]["at_ns"])
            table.add_row(*cells, f"[bold red]failed[/] at {at}")
            continue
        cells += [microseconds(job["duration_ns"]), microseconds(job["iteration_ns"])]
        if measured:
            alone, slower = job["alone"], job["slowdown"]
            cells += [microseconds(alone and alone["duration_ns"]), _times(slower)]
        for name in predictors:
            predicted = job["predicted"][name]
            cells.append(percent(predicted["error"]))
            cells.append(_times(predicted.get("slowdown")))
        table.add_row(*cells)
    console.print(table)
    if result["fairness"] is not None:
        console.print(f"fairness (Jain) {result['fairness']:.3f}", highlight=False)
    if result["shared_links"]:
        console.print(_shared(result["shared_links"]))
    for job in result["jobs"]:
        if job["failed"] is not None:
            said = unstyled(job["failed"]["said"])
            console.print(f"[bold red]job failed[/]: {said}", highlight=False)


def _times(factor: float | None) -> str:
    return "-" if factor is None else f"{factor:.3f}"


def _shared(links: Sequence[dict[str, Any]]) -> Figures:
    title = "Links that jobs shared"
    if len(links) > _SHOWN:
        title += f", {_SHOWN} of {len(links)}"
    table = Figures("link", "bytes", "waited behind, by flow (us)", title=title)
    for link in links[:_SHOWN]:
        sent = ", ".join(f"{job} {format_size(size)}" for job, size in link["bytes"].items())
        waits = ", ".join(
            f"{w['job']} behind {w['behind']} {microseconds(w['waited_ns'])}" for w in link["waits"]
        )
        table.add_row(f"{link['node']} to {link['peer']}", sent, waits or "-")
    return table
