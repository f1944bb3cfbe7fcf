"""`groundwire predict`: what a spec's collectives will take, without running them."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from analysis.predict.flow_times import FORMATS
from analysis.predict.interface import Setting, available_predictors
from analysis.predict.planned_run import PredictedIteration
from analysis.predict.simulator import Progress
from groundwire import forecast as forecasting
from groundwire.commands.console.figures import Figures, microseconds, output_console, size_scale
from groundwire.commands.console.overrides import parse_overrides
from groundwire.commands.console.progress_display import ProgressDisplay
from groundwire.commands.run import SetOption, SpecPath
from groundwire.connected import connected_setting
from groundwire.forecast import Forecast
from topologies.spec.spec import Spec, load_spec

# `external` reads another simulator's results: `groundwire compare --external`.
PREDICTOR_NAMES = (
    f"Names: {', '.join(name for name in available_predictors() if name != 'external')}."
)

_SAYS_EVERY_S = 5.0


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
    connect: Annotated[
        bool,
        typer.Option(
            "--connect",
            help="First have the ranks connect in a virtual kernel, some seconds, and no more: the "
            "ports that a run of this spec has there are known then, and the paths that ECMP "
            "chooses for them.",
        ),
    ] = False,
    interval: Annotated[
        bool,
        typer.Option(
            "--interval",
            help=f"Draw the paths that ECMP chooses {forecasting.DRAWS_OF_90_PERCENT} times more, "
            "and print from where to where the answers go: a run's lies there in 90% of cases, as "
            "far as the predictor is exact.",
        ),
    ] = False,
    fct_format: Annotated[
        str | None,
        typer.Option(
            metavar="FORMAT",
            help="Print when each message of the whole run is sent and received, by packet, and "
            "nothing else: ns3 (a line of HPCC's and ASTRA-sim's fct.txt) or htsim (a line of a "
            "flow that is over).",
        ),
    ] = None,
    set_: SetOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the predictions as JSON.")] = False,
) -> int:
    """Predict every collective of one iteration of a spec, each alone on the fabric; of a spec of
    several jobs how long each of them takes, beside the others and alone.

    ECMP choices depend on a run's ports, so here flow draws them from the spec's seed, or knows
    them with --connect.
    """
    spec = load_spec(spec_path, overrides=parse_overrides(set_ or []))
    if interval and (connect or spec.jobs):
        what = "of one job" if spec.jobs else "whose ports are not known: without --connect"
        raise typer.BadParameter(f"--interval is for a spec {what}")
    if fct_format is not None:
        _expect_flows(fct_format, predictor, interval, as_json)
    setting = _connected(spec) if connect else None
    with ProgressDisplay(Console(stderr=True)) as display:
        progress = _progress(display)
        if fct_format is not None:
            line = FORMATS[fct_format]
            for flow in forecasting.flow_times(spec, setting=setting, progress=progress):
                print(line(flow))
            return 0
        forecast = forecasting.predict(
            spec,
            predictors=predictor,
            calibration=calibration,
            setting=setting,
            draws=forecasting.DRAWS_OF_90_PERCENT if interval else 0,
            progress=progress,
        )
    if as_json:
        print(json.dumps(_document(forecast, connect), indent=1))
    else:
        _print(forecast, connect)
    return 0


def _expect_flows(
    fct_format: str, predictors: list[str] | None, interval: bool, as_json: bool
) -> None:
    if fct_format not in FORMATS:
        allowed = ", ".join(FORMATS)
        raise typer.BadParameter(f"--fct-format: found {fct_format}, allowed {allowed}")
    others = [name for name in predictors or () if name != "packet"]
    if others or interval or as_json:
        raise typer.BadParameter(
            "--fct-format prints the flows of packet alone: without --interval, --json and "
            "other predictors"
        )


def _progress(display: ProgressDisplay) -> Progress:
    """Says how far a prediction is that takes long."""
    said = time.monotonic()

    def report(now_ns: int, share: float) -> None:
        nonlocal said
        if time.monotonic() - said >= _SAYS_EVERY_S:
            said = time.monotonic()
            done = f"{share:.0%} of the messages have come"
            display.stage("predict", f"{done}, {now_ns / 1e9:.6f} s of the run")

    return report


def _connected(spec: Spec) -> Setting:
    with ProgressDisplay(Console(stderr=True)) as display:
        return connected_setting(spec, display.report)


def _document(forecast: Forecast, connected: bool) -> dict[str, object]:
    if forecast.jobs:
        jobs = [each.as_dict() for each in forecast.jobs]
        return {"name": forecast.spec.name, "jobs": jobs}
    rows = [
        {
            "name": collective.name,
            "kind": collective.call.kind,
            "size_bytes": collective.call.size_bytes,
            "ranks": collective.call.world,
            "predicted": {name: a.as_dict() for name, a in collective.predicted.items()},
        }
        for collective in forecast.collectives
    ]
    totals = {name: forecast.one_after_another_ns(name) for name in forecast.predictors}
    return {
        "name": forecast.spec.name,
        "collectives": rows,
        "iteration": totals,
        "iterations": {
            name: {"reason": whole} if isinstance(whole, str) else _iteration(whole)
            for name, whole in forecast.iterations.items()
        },
        "iteration_intervals_ns": dict(forecast.iteration_intervals_ns),
        "ignores": dict(forecast.ignores),
        "conditioned": ["ports"] if connected else [],
    }


def _iteration(whole: PredictedIteration) -> dict[str, int]:
    """Plain data, without what is not there."""
    return {name: value for name, value in asdict(whole).items() if value is not None}


def _print_jobs(forecast: Forecast) -> None:
    table = Figures("job", "predictor", title="Jobs")
    for heading in ("takes", "alone"):
        table.figure(heading, "us")
    table.figure("slow-down")
    for each in forecast.jobs:
        table.add_row(
            each.job,
            each.predictor,
            microseconds(each.duration_ns),
            microseconds(each.alone_ns),
            "-" if each.slowdown is None else f"{each.slowdown:.3f}",
        )
    console = output_console()
    console.print(table)
    reasons = (f"{e.predictor}: {e.reason}" for e in forecast.jobs if e.reason is not None)
    for text in dict.fromkeys(reasons):
        console.print(text, highlight=False)


def _print(forecast: Forecast, connected: bool) -> None:
    if forecast.jobs:
        _print_jobs(forecast)
        return
    console, names = output_console(), forecast.predictors
    size = size_scale(collective.call.size_bytes for collective in forecast.collectives)
    table = Figures("collective", title="Predicted")
    table.figure("size", size.unit)
    for name in names:
        table.figure(name, "us")
    drawn = [name for name in names if any(_width_ns(each) for each in _intervals(forecast, name))]
    for name in drawn:
        table.figure(name, "90%", "from")
        table.figure("to")
    timed = [
        name
        for name in names
        if any(collective.predicted[name].start_ns for collective in forecast.collectives)
    ]
    for name in timed:
        table.figure(name, "begins")
        table.figure("", "ends")
    for collective in forecast.collectives:
        cells = [microseconds(collective.predicted[name].duration_ns) for name in names]
        for name in drawn:
            cells += _interval(collective.predicted[name].interval_ns)
        for name in timed:
            answer = collective.predicted[name]
            cells += [microseconds(answer.start_ns), microseconds(answer.end_ns)]
        table.add_row(collective.name, size.cell(collective.call.size_bytes), *cells)
    totals = (microseconds(forecast.one_after_another_ns(name)) for name in names)
    table.add_row("one after another", "", *totals)
    wholes = [forecast.iterations[name] for name in names]
    cells = [microseconds(_duration_ns(whole)) for whole in wholes]
    for name in drawn:
        cells += _interval(forecast.iteration_intervals_ns.get(name))
    table.add_row("iteration", "", *cells)
    if any(isinstance(whole, PredictedIteration) for whole in wholes):
        exposed = (microseconds(_exposed_ns(whole)) for whole in wholes)
        table.add_row("exposed communication", "", *exposed)
    console.print(table)
    console.print(
        "from the spec and the ports that its ranks connect with; no run's posting times are known"
        if connected
        else "from the spec alone: paths through ECMP are drawn, no run's ports and posting times "
        "are known",
        highlight=False,
    )
    for name in names:
        console.print(f"{name} ignores: {forecast.ignores[name]}", highlight=False)
        if name not in drawn and any(_intervals(forecast, name)):
            console.print(f"{name} says the same for every draw of paths", highlight=False)
        whole = forecast.iterations[name]
        if isinstance(whole, str):
            console.print(f"iteration not predicted by {name}: {whole}", highlight=False)
        elif whole.error_ns is not None:
            off = f"{microseconds(whole.error_ns)} us"
            console.print(
                f"{name}: its leaps may be off by {off} of an iteration, as those that it "
                "followed all the same tell",
                highlight=False,
            )
    for refusal in forecast.refusals():
        console.print(f"not predicted: {refusal}", highlight=False)


def _intervals(forecast: Forecast, name: str) -> list[tuple[int, int] | None]:
    collectives = [one.predicted[name].interval_ns for one in forecast.collectives]
    return [*collectives, forecast.iteration_intervals_ns.get(name)]


def _width_ns(interval_ns: tuple[int, int] | None) -> int:
    return 0 if interval_ns is None else interval_ns[1] - interval_ns[0]


def _interval(interval_ns: tuple[int, int] | None) -> list[str]:
    """A dash each where all draws agree."""
    least, largest = (interval_ns if _width_ns(interval_ns) else None) or (None, None)
    return [microseconds(least), microseconds(largest)]


def _exposed_ns(whole: PredictedIteration | str) -> int | None:
    return None if isinstance(whole, str) else whole.exposed_comm_ns


def _duration_ns(whole: PredictedIteration | str) -> int | None:
    return None if isinstance(whole, str) else whole.duration_ns
