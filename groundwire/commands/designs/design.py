"""`groundwire design`: the best cluster by a model, and whether real ranks agree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from analysis.design.confirmed import Confirmation, confirmation_table, confirmation_words
from analysis.design.findings import (
    best_table,
    clusters_table,
    memory_table,
    sensitivity_table,
)
from analysis.report.tables.cells import cell, heading, is_numeric, without
from analysis.report.tables.table import Table
from emulator.session import KernelKind
from groundwire.commands.console.figures import Figures, output_console
from groundwire.commands.designs.display import DesignDisplay
from groundwire.designs.design import Design, design, design_document
from topologies.installation import ready_specs

_ROWS = 12


def design_command(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="SPEC", help=f"The design, a YAML file; {ready_specs()}designs/ has ready ones."
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The design's directory (default: runs/NAME)."),
    ] = None,
    confirm: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=0,
            max=64,
            help="Emulate the winner, the equal split and N points around the winner, on at most "
            "64 ranks, and say whether the gain holds.",
        ),
    ] = None,
    native: Annotated[
        bool,
        typer.Option("--native", help="Emulate on this machine's kernel, as root, in real time."),
    ] = False,
    workers: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Runs at once (default: a core each, by memory)."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print design.json.")] = False,
) -> int:
    """Search bandwidths, strategies and resources of a cluster for the least time, cost or both.

    The optimum is told with its active constraints and what each is worth, and with the Pareto
    front of time against cost. Exit code 1 when a run of --confirm failed, 3 when one is not valid
    or when the design is refuted.
    """
    kernel: KernelKind = "native" if native else "virtual"
    with DesignDisplay(Console(stderr=True)) as display:
        made = design(
            file,
            out=out,
            confirm_around=confirm,
            kernel=kernel,
            workers=workers,
            searching=display.searching,
            emulating=display.emulating,
        )
    if as_json:
        print(json.dumps(design_document(made), indent=1))
    else:
        _print(made)
    return _code(made.confirmation)


def _code(confirmation: Confirmation | None) -> int:
    if confirmation is None:
        return 0
    if any(row.failure is not None for row in confirmation.rows):
        return 1
    invalid = any(row.valid is False for row in confirmation.rows)
    return 3 if invalid or confirmation.refutations else 0


def _print(made: Design) -> None:
    console = output_console()
    found = made.found
    tables = [best_table(found), sensitivity_table(found), memory_table(found)]
    clusters = clusters_table(found)
    if clusters is not None:
        tables.append(without(clusters, "footprint_bytes", "cost", "strategies"))
    if made.confirmation is not None:
        tables.append(without(confirmation_table(made.confirmation), "run"))
    for table in tables:
        if table.rows:
            console.print(_shown(table))
    said = list(made.findings)
    if made.confirmation is not None:
        said += confirmation_words(made.confirmation)
    for text in said:
        console.print(text, highlight=False, markup=False)
    names = ["points.csv", "front.csv", "design.html"]
    if made.no_winner is None:
        names.append("winner.yaml")
    else:
        console.print(f"no winner.yaml: {made.no_winner}", highlight=False, markup=False)
    for name in names:
        console.print(f"{name + ':':12} {made.directory / name}", highlight=False, soft_wrap=True)


def _shown(table: Table) -> Figures:
    shown = Figures(title=table.title)
    for column in table.columns:
        if is_numeric(column):
            shown.figure(heading(column))
        else:
            shown.text(heading(column))
    for row in table.rows[:_ROWS]:
        pairs = zip(table.columns, row, strict=True)
        shown.add_row(*(cell(column, value) for column, value in pairs))
    if len(table.rows) > _ROWS:
        shown.caption = f"{len(table.rows) - _ROWS} more in design.html"
    return shown
