"""A result as tables: collectives with their predictions, iterations, the verdict."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from analysis.runs.partition import in_words
from groundwire.commands.console.cells import microseconds, percent, share
from groundwire.commands.console.jobs_table import print_jobs
from groundwire.commands.console.plain_text import unstyled
from topologies.units import format_size

_WIDTH_IN_FILES = 120


class _Output(Console):
    def print(self, *objects: Any, **options: Any) -> None:
        """Where the width does not suffice for a table, figures go on in the next line: a part of a
        figure would be another one."""
        for table in objects:
            if isinstance(table, Table):
                for column in table.columns:
                    column.overflow = "fold"
        super().print(*objects, **options)

    def on_broken_pipe(self) -> None:
        """Whoever read has gone, as `head` does; the command ends with the code that is due."""
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def output_console() -> Console:
    """Standard output; wide enough for the tables where it is a file or a pipe, not a terminal."""
    console = _Output()
    return console if console.is_terminal else _Output(width=_WIDTH_IN_FILES)


def print_result(result: dict[str, Any], directory: Path, console: Console) -> None:
    """Print the tables of a result and where its run directory is."""
    predictors = list(result["summary"]["error"])
    console.print(_collectives(result["collectives"], predictors))
    if any(row.get("exact_ns") is not None for row in result["collectives"]):
        console.print(_twin(result["collectives"]))
    if result["iterations"]:
        console.print(_iterations(result["iterations"], predictors))
    if "jobs" in result:
        print_jobs(result, predictors, console)
    console.print(errors_table("Prediction error", result["summary"]["error"]))
    console.print(
        "predictions of collectives know when the run posted them, and the ports that ECMP hashes; "
        "those of iterations know the ports",
        highlight=False,
    )
    for name in predictors:
        models = [row["predicted"][name].get("model") for row in result["collectives"]]
        for line in models_used(name, models):
            console.print(line, highlight=False)
    summary = result["summary"]
    counted = ("retries", "sequence_naks", "not_ready_naks", "cnps_received")
    naks = "".join(
        f", {name.replace('_', ' ')} {summary[name]}" for name in counted if name in summary
    )
    console.print(
        f"drops {summary['drops']}, ECN marks {summary['ecn_marks']}, "
        f"pauses {summary['pauses']}, retransmits {summary['retransmits']}{naks}",
        highlight=False,
    )
    if "partition" in result:
        console.print(f"partition: {in_words(result['partition'])}", highlight=False)
    console.print(_verdict(result), highlight=False)
    for note in result.get("notes", ()):
        console.print(f"note: {unstyled(note)}", highlight=False)
    places = {"run directory": directory, "report": directory / "report.html"}
    for name, place in places.items():
        if place.exists():
            text = f"{name + ':':15}{unstyled(str(place))}"
            console.print(text, highlight=False, soft_wrap=True)


def models_used(predictor: str, models: Iterable[str | None]) -> list[str]:
    """A line that says which of its models a predictor answered with; none where it has one."""
    counts = Counter(model for model in models if model is not None)
    if not counts:
        return []
    said = ", ".join(f"{model} ({count})" for model, count in sorted(counts.items()))
    return [f"{predictor} answered by: {said}"]


def _named(row: Mapping[str, Any], name: str) -> str:
    """With the job before it, where there are several."""
    return f"{row['job']}/{name}" if "job" in row else name


def _collectives(rows: Sequence[dict[str, Any]], predictors: Sequence[str]) -> Table:
    table = Table(title="Collectives (times in us)", title_justify="left")
    table.add_column("collective", no_wrap=True, overflow="fold")
    for heading in ("size", "measured"):
        table.add_column(heading, justify="right")
    for name in predictors:
        table.add_column(name, justify="right")
        table.add_column("error", justify="right")
    table.add_column("busbw Gb/s", justify="right")
    for row in rows:
        cells = [
            _named(row, row["id"]),
            format_size(row["size_bytes"]),
            microseconds(row["duration_ns"]),
        ]
        for name in predictors:
            predicted = row["predicted"][name]
            cells += [microseconds(predicted["duration_ns"]), percent(predicted["error"])]
        table.add_row(*cells, f"{row['busbw_gbps']:.2f}")
    return table


def _twin(rows: Sequence[dict[str, Any]]) -> Table:
    table = Table("collective", title="Beside the exact twin (times in us)", title_justify="left")
    for heading in ("native", "exact", "difference"):
        table.add_column(heading, justify="right")
    for row in rows:
        native_ns, exact_ns = row["duration_ns"], row["exact_ns"]
        difference = native_ns / exact_ns - 1 if exact_ns else None
        cells = (microseconds(native_ns), microseconds(exact_ns), percent(difference))
        table.add_row(_named(row, row["id"]), *cells)
    return table


def _iterations(rows: Sequence[dict[str, Any]], predictors: Sequence[str]) -> Table:
    table = Table("iteration", title="Iterations (times in us)", title_justify="left")
    for heading in ("duration", "compute", "exposed communication", "share exposed"):
        table.add_column(heading, justify="right")
    for name in predictors:
        table.add_column(name, justify="right")
        table.add_column("error", justify="right")
    for row in rows:
        share = row["exposed_comm_ns"] / row["duration_ns"] if row["duration_ns"] else 0.0
        table.add_row(
            _named(row, str(row["index"])),
            microseconds(row["duration_ns"]),
            microseconds(row["compute_ns"]),
            microseconds(row["exposed_comm_ns"]),
            f"{share:.1%}",
            *(
                cell
                for name in predictors
                for cell in (
                    microseconds(row["predicted"][name]["duration_ns"]),
                    percent(row["predicted"][name]["error"]),
                )
            ),
        )
    return table


def errors_table(title: str, summary: Mapping[str, Mapping[str, float | int | None]]) -> Table:
    """`summary` as in result.json: by predictor."""
    table = Table("predictor", title=title, title_justify="left")
    for heading in ("geomean", "worst", "collectives"):
        table.add_column(heading, justify="right")
    for name, errors in summary.items():
        table.add_row(name, share(errors["geomean"]), share(errors["worst"]), str(errors["count"]))
    return table


def _verdict(result: dict[str, Any]) -> str:
    if result["valid"]:
        kernel = result["kernel"]
        time = "exact virtual time" if kernel == "virtual" else _why_valid(result.get("judged"))
        return (
            f"[bold green]VALID[/] ({kernel} kernel: {time}; {result['wall_s']:.1f} s of wall time)"
        )
    reasons = "".join(f"\n  - {unstyled(reason)}" for reason in result["invalid_reasons"])
    return f"[bold red]INVALID[/]: do not use these figures{reasons}"


def _why_valid(judged: dict[str, Any] | None) -> str:
    if judged is None or judged["by"] != "twin":
        return "the machine kept up"
    worst = max(judged["slower"], judged["faster"])
    doubts = len(judged["outweighed"])
    despite = f", whatever {doubts} figures of the machine say" if doubts else ""
    return f"within {worst:.1%} of its exact twin{despite}"
