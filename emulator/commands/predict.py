"""`groundwire predict`: what a spec's collectives will take, without running them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from analysis.calibration.calibration import read_calibration
from analysis.predictors.interface import (
    Predictor,
    PredictorError,
    available_predictors,
    load_predictor,
)
from analysis.predictors.planned import planned_calls, setting_of_spec
from emulator.commands.overrides import parse_overrides
from emulator.commands.result_table import microseconds, output_console
from emulator.commands.run import SetOption, SpecPath
from topologies.spec import load_spec
from topologies.units import format_size

# `external` reads another simulator's results: `groundwire compare --external`.
PREDICTOR_NAMES = (
    f"Names: {', '.join(name for name in available_predictors() if name != 'external')}."
)


def predict_command(
    spec_path: SpecPath,
    predictor: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help=f"A predictor to ask; can be repeated (default: the spec's). {PREDICTOR_NAMES}",
        ),
    ] = None,
    calibration: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Predictors as `calibrate` fitted them.")
    ] = None,
    set_: SetOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the predictions as JSON.")] = False,
) -> int:
    """Predict every collective of one iteration of a spec, each alone on the fabric.

    ECMP choices depend on a run's ports, so here flow draws them from the spec's seed.
    """
    spec = load_spec(spec_path).with_overrides(parse_overrides(set_ or []), source="--set")
    names = predictor or list(spec.predict)
    known = None if calibration is None else read_calibration(calibration)
    loaded: dict[str, Predictor] = {
        name: load_predictor(name) if known is None else known.load(name) for name in names
    }
    setting, calls = setting_of_spec(spec), planned_calls(spec)
    rows = []
    for planned in calls:
        row: dict[str, object] = {
            "name": planned.name,
            "kind": planned.call.kind,
            "size_bytes": planned.call.size_bytes,
            "ranks": planned.call.world,
        }
        predicted: dict[str, dict[str, object]] = {}
        for name, one in loaded.items():
            try:
                predicted[name] = {"duration_ns": round(one.predict(setting, planned.call))}
            except PredictorError as error:
                predicted[name] = {"duration_ns": None, "reason": str(error)}
        rows.append(row | {"predicted": predicted})
    totals = {
        name: _total([row["predicted"][name]["duration_ns"] for row in rows])  # type: ignore[index]
        for name in names
    }
    ignores = {name: one.ignores for name, one in loaded.items()}
    document = {"name": spec.name, "collectives": rows, "iteration": totals, "ignores": ignores}
    if as_json:
        print(json.dumps(document, indent=1))
        return 0
    console = output_console()
    table = Table("collective", title="Predicted, us", title_justify="left")
    table.add_column("size", justify="right")
    for name in names:
        table.add_column(name, justify="right")
    for planned, row in zip(calls, rows, strict=True):
        cells = [microseconds(row["predicted"][n]["duration_ns"]) for n in names]  # type: ignore[index]
        table.add_row(planned.name, format_size(planned.call.size_bytes), *cells)
    table.add_row("one after another", "", *(microseconds(totals[name]) for name in names))
    console.print(table)
    for name in names:
        console.print(f"{name} ignores: {ignores[name]}", highlight=False)
    reasons = {
        f"{name}: {entry['reason']}": None
        for row in rows
        for name, entry in row["predicted"].items()  # type: ignore[attr-defined]
        if "reason" in entry
    }
    for reason in reasons:
        console.print(f"not predicted: {reason}", highlight=False)
    return 0


def _total(durations: list[object]) -> int | None:
    """Communication of one iteration, one collective after another; None when one is unknown."""
    known = [duration for duration in durations if isinstance(duration, int)]
    return sum(known) if len(known) == len(durations) else None
