"""`groundwire predict`: what a spec's collectives will take, without running them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from analysis.calibration.calibration import read_calibration
from analysis.predictors.interface import (
    CollectiveCall,
    Predictor,
    PredictorError,
    Setting,
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
    answers = [{name: _answer(one, setting, c.call) for name, one in loaded.items()} for c in calls]
    totals = {name: _total([answer[name]["duration_ns"] for answer in answers]) for name in names}
    ignores = {name: one.ignores for name, one in loaded.items()}
    if as_json:
        rows = [
            {
                "name": planned.name,
                "kind": planned.call.kind,
                "size_bytes": planned.call.size_bytes,
                "ranks": planned.call.world,
                "predicted": answer,
            }
            for planned, answer in zip(calls, answers, strict=True)
        ]
        document = {"name": spec.name, "collectives": rows, "iteration": totals, "ignores": ignores}
        print(json.dumps(document, indent=1))
        return 0
    console = output_console()
    table = Table("collective", title="Predicted, us", title_justify="left")
    table.add_column("size", justify="right")
    for name in names:
        table.add_column(name, justify="right")
    for planned, answer in zip(calls, answers, strict=True):
        cells = [microseconds(answer[name]["duration_ns"]) for name in names]
        table.add_row(planned.name, format_size(planned.call.size_bytes), *cells)
    table.add_row("one after another", "", *(microseconds(totals[name]) for name in names))
    console.print(table)
    for name in names:
        console.print(f"{name} ignores: {ignores[name]}", highlight=False)
    refusals = [
        f"{name}: {answer['reason']}"
        for each in answers
        for name, answer in each.items()
        if "reason" in answer
    ]
    for refusal in dict.fromkeys(refusals):
        console.print(f"not predicted: {refusal}", highlight=False)
    return 0


def _answer(predictor: Predictor, setting: Setting, call: CollectiveCall) -> dict[str, Any]:
    try:
        return {"duration_ns": round(predictor.predict(setting, call))}
    except PredictorError as error:
        return {"duration_ns": None, "reason": str(error)}


def _total(durations: list[int | None]) -> int | None:
    """Communication of one iteration, one collective after another; None when one is unknown."""
    known = [duration for duration in durations if duration is not None]
    return sum(known) if len(known) == len(durations) else None
