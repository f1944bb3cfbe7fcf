"""`groundwire report`: run directories in, a report out."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from analysis.exporters.nccl_style import render_nccl_style
from analysis.report import render_html, render_markdown, write_csv
from analysis.report.pictures import write_pictures
from analysis.report.run_figures import RunFigures, run_figures
from analysis.report.tables.table import Table
from analysis.runs.several import run_directories
from groundwire.commands.console.report_style import ReportStyle

_MOST_BESIDE = 16


class ReportRefused(ValueError):
    """Options that do not go together."""


class ReportFormat(StrEnum):
    """`--format`."""

    html = "html"
    md = "md"
    csv = "csv"
    svg = "svg"
    perfetto = "perfetto"


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN",
            help="Run directories, or directories with runs in them, as of a sweep; several runs "
            "are put side by side.",
        ),
    ],
    format_: Annotated[
        ReportFormat,
        typer.Option(
            "--format",
            help="html: one self-contained page; md: markdown; csv: a folder, a file per table; "
            "svg: a folder, a picture per drawing; perfetto: a trace in Perfetto's own format, of "
            "each run.",
        ),
    ] = ReportFormat.html,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Where to write (default: report.html in the one directory given, else in this "
            "one; md goes to standard output; csv to the folder tables there, svg to pictures; "
            "perfetto to RUN/trace.pftrace of each run).",
        ),
    ] = None,
    style: Annotated[
        ReportStyle,
        typer.Option(help="nccl-tests: print the collectives as nccl-tests does, and no report."),
    ] = ReportStyle.groundwire,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print all tables of all runs as JSON, and no report.")
    ] = False,
) -> int:
    """Make a report of one run, or of several side by side.

    The page shows the verdict and what the run comes down to, where the time went, a timeline of
    the ranks, the fabric with its links' use, measured against predicted times, queues, flows, who
    sent to whom, and sortable tables. Exit code 3 says that one of the runs is not valid.
    """
    directories = [each for path in runs for each in run_directories(path)]
    if len(directories) > _MOST_BESIDE and format_ is ReportFormat.html and not as_json:
        raise ReportRefused(
            f"expected at most {_MOST_BESIDE} runs side by side, found {len(directories)}: name "
            "some of them, or take --format csv, which has all"
        )
    figures = run_figures(directories)
    if as_json:
        content = {f.label: {k: _plain(t) for k, t in f.tables.items()} for f in figures}
        print(json.dumps(content, indent=1))
    elif style is ReportStyle.nccl_tests:
        print("\n".join(render_nccl_style(each.run) for each in figures), end="")
    elif format_ is ReportFormat.md:
        text = render_markdown(figures)
        if out is None:
            print(text, end="")
        else:
            _write(out, text)
    elif format_ is ReportFormat.csv:
        for path in write_csv(figures, out or _beside(runs, "tables")):
            print(path)
    elif format_ is ReportFormat.svg:
        for path in write_pictures(figures, out or _beside(runs, "pictures")):
            print(path)
    elif format_ is ReportFormat.perfetto:
        _write_traces(figures, out)
    else:
        _write(out or _beside(runs, "report.html"), render_html(figures))
    invalid = [each.label for each in figures if not each.result["valid"]]
    for label in invalid:
        print(f"{label}: the run is not valid", file=sys.stderr)
    return 3 if invalid else 0


def _write_traces(figures: Sequence[RunFigures], out: Path | None) -> None:
    from analysis.exporters.perfetto_protobuf import write_protobuf_trace

    if out is not None and len(figures) > 1:
        raise ReportRefused(
            f"--out {out}: expected no file, as each of {len(figures)} runs has a trace of its own"
        )
    for each in figures:
        path = out or each.run.directory / "trace.pftrace"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_protobuf_trace(path, each.run, each.queues, each.flows)
        print(path)


def _plain(table: Table) -> list[dict[str, object]]:
    return [dict(record) for record in table.records()]


def _beside(runs: list[Path], name: str) -> Path:
    return runs[0] / name if len(runs) == 1 else Path(name)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", errors="backslashreplace")  # of names that are no text
    print(path)
