"""`groundwire compare`: runs against predictors, and where the gaps come from."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from analysis.calibration.calibration import read_calibration
from analysis.compare.comparison import Comparison, compare
from analysis.compare.decomposition import PARTS, Decomposition, decompose
from analysis.predictors.interface import Predictor, available_predictors, load_predictor
from analysis.run import load_run
from emulator.commands.predict import PREDICTOR_NAMES
from emulator.commands.result_table import (
    errors_table,
    microseconds,
    output_console,
    percent,
    share,
)
from topologies.units import format_size

_NOTHING = 5e-4
"""A smaller share than this prints as 0.0%."""


def compare_command(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Run directories.")],
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
    """Hold every collective of runs against predictors; print errors and what gaps are made of."""
    known = None if calibration is None else read_calibration(calibration)
    sources = _sources(external or [])

    def load(name: str) -> Predictor:
        if name in sources:
            return load_predictor("external", sources[name])
        return load_predictor(name) if known is None else known.load(name)

    console = output_console()
    documents = []
    for path in runs:
        run = load_run(path)
        names = list(predictor or [n for n in run.spec.predict if n in available_predictors()])
        names += [name for name in sources if name not in names]
        comparison = compare(run, names, load)
        parts = decompose(run)
        if as_json:
            documents.append(_document(path, comparison, parts))
        else:
            _print(console, path, comparison, parts)
    if as_json:
        print(json.dumps(documents, indent=1))
    return 0


def _sources(texts: list[str]) -> dict[str, dict[str, str]]:
    """What to call each `--external` -> format and path. Raises typer.BadParameter."""
    split = [(text, *text.partition("=")) for text in texts]
    formats = [format_ for _, format_, _, _ in split]
    found = {}
    for text, format_, _, path in split:
        if not path:
            raise typer.BadParameter(
                f"--external: found {text!r}, expected FORMAT=FILE such as csv=times.csv"
            )
        name = format_ if formats.count(format_) == 1 else text
        found[name] = {"format": format_, "path": path}
    return found


def _print(
    console: Console, path: Path, comparison: Comparison, parts: list[Decomposition]
) -> None:
    console.rule(str(path), align="left")
    console.print(_errors(comparison))
    for reason, count in _refusals(comparison).items():
        console.print(f"not predicted ({count}): {reason}", highlight=False)
    console.print(_decompositions(parts))
    console.print(errors_table("Errors", comparison.summary()))


def _errors(comparison: Comparison) -> Table:
    table = Table("kind", title="Errors by kind and size", title_justify="left")
    for heading in ("size", "ranks", "count", "measured us"):
        table.add_column(heading, justify="right")
    for name in comparison.predictors:
        for heading in (name, "geomean", "worst"):
            table.add_column(heading, justify="right")
    for group in comparison.groups():
        cells = [group.kind, format_size(group.size_bytes), str(group.ranks), str(group.count)]
        cells.append(microseconds(round(group.measured_ns)))
        for name in comparison.predictors:
            errors = group.errors[name]
            cells += [percent(group.bias[name]), share(errors["geomean"]), share(errors["worst"])]
        table.add_row(*cells)
    return table


def _refusals(comparison: Comparison) -> dict[str, int]:
    found: dict[str, int] = defaultdict(int)
    for row in comparison.rows:
        for name, reason in row.refusals.items():
            found[f"{name}: {reason}"] += 1
    return found


def _decompositions(parts: list[Decomposition]) -> Table:
    """Means by kind and size, as shares of the measured time. A part that no collective has is left
    out."""
    present = [
        (heading, name)
        for heading, name in PARTS
        if any(abs(getattr(part, name) or 0) > _NOTHING * part.measured_ns for part in parts)
    ]
    table = Table(
        "kind",
        title="What the measured time is made of",
        title_justify="left",
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    for heading in ("size", "measured us", *(heading for heading, _ in present)):
        table.add_column(heading, justify="right")
    groups: dict[tuple[str, int, int], list[Decomposition]] = defaultdict(list)
    for part in parts:
        c = part.collective
        groups[c.kind, c.size_bytes, len(c.ranks)].append(part)
    for (kind, size_bytes, _), members in sorted(groups.items()):
        measured = sum(member.measured_ns for member in members) / len(members)
        cells = [kind, format_size(size_bytes), microseconds(round(measured))]
        for _, name in present:
            values = [v for member in members if (v := getattr(member, name)) is not None]
            if not values:
                cells.append("-")
                continue
            mean = sum(values) / len(values)
            cells.append(f"{mean / measured if measured else 0.0:.1%}")
        table.add_row(*cells)
    return table


def _document(path: Path, comparison: Comparison, parts: list[Decomposition]) -> dict[str, Any]:
    return {
        "run": str(path),
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
