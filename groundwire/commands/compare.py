"""`groundwire compare`: runs against predictors, and where the gaps come from."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from analysis.compare.comparison import Comparison
from analysis.compare.decomposition import PARTS
from analysis.runs.several import run_directories
from groundwire import comparing
from groundwire.commands.console.decompositions import decompositions_tables
from groundwire.commands.console.external_sources import external_sources
from groundwire.commands.console.figures import (
    Figures,
    OutputConsole,
    output_console,
    percent,
    share,
    size_scale,
    time_scale,
)
from groundwire.commands.console.result_table import best_first, errors_table
from groundwire.commands.predict import PREDICTOR_NAMES
from groundwire.comparing import ComparedRun


def compare_command(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN", help="Run directories, or directories with runs in them, as of a sweep."
        ),
    ],
    predictor: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A predictor to hold against the runs; can be repeated (default: the spec's). "
            f"{PREDICTOR_NAMES}",
        ),
    ] = None,
    external: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FORMAT=FILE",
            help="Results of another simulator, as csv=times.csv; can be repeated. FORMAT: "
            "astra-sim, ns3-fct, loggopsim or csv.",
        ),
    ] = None,
    calibration: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Predictors as `calibrate` fitted them.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> int:
    """Compare every collective of runs with predictors; print errors and the parts of each gap.

    Runs are not held against each other here: groundwire report RUN RUN does that.
    """
    compared = comparing.compare(
        [each for path in runs for each in run_directories(path)],
        predictors=predictor,
        external=external_sources(external or []),
        calibration=calibration,
    )
    if as_json:
        print(json.dumps([_document(each) for each in compared], indent=1))
        return 0
    console = output_console()
    for each in compared:
        _print(console, each)
    return 0


_PARTS = (
    "rendezvous: waiting for the receiver's word; sharing: links that several flows\n"
    "have to share; collisions: ECMP's uneven hashing; other: what is left, such as\n"
    "windows and losses"
)


def _print(console: OutputConsole, compared: ComparedRun) -> None:
    comparison, parts = compared.comparison, compared.parts
    console.rule(str(compared.run.directory), align="left")
    names = best_first(comparison.summary())
    console.print_fitting(
        [_errors(comparison, names, shown) for shown in range(len(names), -1, -1)]
    )
    console.print(
        "predictions know when the run posted its collectives, and the ports that ECMP hashes; "
        "another simulator's results are what its file says",
        highlight=False,
    )
    for reason, count in _refusals(comparison).items():
        console.print(f"not predicted ({count}): {reason}", highlight=False)
    console.print()
    console.print_fitting(decompositions_tables(parts))
    console.print(_PARTS, highlight=False)
    console.print()
    summary = comparison.summary()
    console.print(errors_table("Errors", {name: summary[name] for name in best_first(summary)}))
    console.print()


def _errors(comparison: Comparison, names: Sequence[str], shown: int) -> Figures:
    """`shown` predictors have their largest error beside the mean."""
    groups = comparison.groups()
    size = size_scale(group.size_bytes for group in groups)
    time = time_scale(round(group.measured_ns) for group in groups)
    table = Figures("kind", title="Errors by kind and size: mean of their sizes, and the largest")
    table.figure("size", size.unit)
    table.figure("ranks")
    table.figure("count")
    table.figure("measured", time.unit)
    for number, name in enumerate(names):
        table.figure(name, "mean")
        if number < shown:
            table.figure("", "largest")
    for group in groups:
        cells = [group.kind, size.cell(group.size_bytes), str(group.ranks), str(group.count)]
        cells.append(time.cell(round(group.measured_ns)))
        for number, name in enumerate(names):
            errors = group.errors[name]
            cells.append(share(errors["mean"]))
            if number < shown:
                cells.append(percent(errors["largest"]))
        table.add_row(*cells)
    return table


def _refusals(comparison: Comparison) -> dict[str, int]:
    found: dict[str, int] = defaultdict(int)
    for row in comparison.rows:
        for name, reason in row.refusals.items():
            found[f"{name}: {reason}"] += 1
    return found


def _document(compared: ComparedRun) -> dict[str, Any]:
    comparison, parts = compared.comparison, compared.parts
    return {
        "run": str(compared.run.directory),
        "summary": comparison.summary(),
        "groups": [asdict(group) for group in comparison.groups()],
        "collectives": [
            {
                "id": row.collective.id,
                "kind": row.collective.kind,
                "size_bytes": row.collective.size_bytes,
                "measured_ns": row.measured_ns,
                "predicted_ns": row.predicted_ns,
                "refusals": row.refusals,
            }
            for row in comparison.rows
        ],
        "decomposition": [
            {"id": part.collective.id, "measured_ns": part.measured_ns}
            | {name: getattr(part, name) for _, name in PARTS}
            for part in parts
        ],
    }
