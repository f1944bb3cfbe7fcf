"""`groundwire calibrate`: fit predictors to runs and judge them on what was held out."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from analysis.calibration.breakdown import Breakdown, break_down
from analysis.calibration.calibration import Calibration, ErrorSummary, calibrate
from analysis.calibration.observations import (
    CalibrationError,
    Observation,
    observations_of,
    split_by_fabric_and_size,
    split_by_run,
    split_by_size,
)
from analysis.calibration.suite import TRAIN_FABRICS, standard_suite
from analysis.run import load_run
from emulator.commands.result_table import output_console, percent
from emulator.commands.run import KernelChoice, KernelOption, run_spec
from topologies.units import format_size, parse_size_bytes


class Suite(StrEnum):
    """`--suite`."""

    standard = "standard"


def calibrate_command(
    runs: Annotated[
        list[Path] | None, typer.Argument(metavar="[RUN...]", help="Run directories to fit.")
    ] = None,
    predictor: Annotated[
        list[str] | None,
        typer.Option(help="A predictor to fit (default: alpha-beta and flow)."),
    ] = None,
    hold_out: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="RUN",
            help="A run to judge the fit by, never used in it (default: every other size).",
        ),
    ] = None,
    suite: Annotated[
        Suite | None,
        typer.Option(
            help="Make the runs first; those that are there already are taken as they are."
        ),
    ] = None,
    largest: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Leave larger sizes out of the suite.")
    ] = None,
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where the calibration goes.")] = Path(
        "calibration.json"
    ),
    directory: Annotated[
        Path, typer.Option(metavar="DIR", help="Where the suite's run directories go.")
    ] = Path("runs/standard"),
    kernel: KernelOption = KernelChoice.auto,
    as_json: Annotated[bool, typer.Option("--json", help="Print the calibration as JSON.")] = False,
) -> int:
    """Fit predictors' parameters to runs; print errors where they were fitted and where not.

    Robust least squares with confidence intervals; parameters that the runs do not determine keep
    their ideal values, and are named. `groundwire predict --calibration FILE` takes the result.
    """
    names = predictor or ["alpha-beta", "flow"]
    if suite is not None:
        made = _make_suite(directory, kernel, largest)
        split = split_by_fabric_and_size(_load([*made, *(runs or [])]), TRAIN_FABRICS)
    elif not runs:
        raise CalibrationError("give run directories to calibrate with, or --suite standard")
    elif hold_out:
        split = split_by_run(_load(runs), _load(hold_out))
    else:
        split = split_by_size(_load(runs))
    found = calibrate(split, names)
    found.write(out)
    if as_json:
        print(found.model_dump_json(indent=1, by_alias=True))
        return 0
    console = output_console()
    for name in names:
        console.print(_parameters(name, found))
    console.print(_errors(names, found))
    for name in names:
        console.print(_cells(name, break_down(found.load(name), split)))
    console.print(
        f"fitted to {_count(split.train)}, judged on {_count(split.held_out)}: {found.rule}"
    )
    console.print(f"calibration: {out}", highlight=False, soft_wrap=True)
    return 0


def _make_suite(directory: Path, kernel: KernelChoice, largest: str | None) -> list[Path]:
    specs = standard_suite(None if largest is None else parse_size_bytes(largest))
    console = Console(stderr=True)
    made = []
    for number, spec in enumerate(specs, start=1):
        place = directory / spec.name
        if not (place / "result.json").exists():
            console.print(f"[bold]run {number} of {len(specs)}[/]: {spec.name}", highlight=False)
            run_spec(spec, kernel, place, console)
        made.append(place)
    return made


def _load(runs: list[Path]) -> list[Observation]:
    return [observation for run in runs for observation in observations_of(load_run(run))]


def _count(observations: tuple[Observation, ...]) -> str:
    return f"{len(observations)} collectives of {len({o.run for o in observations})} runs"


def _parameters(name: str, calibration: Calibration) -> Table:
    table = Table("parameter", title=f"{name}: parameters", title_justify="left")
    table.add_column("value", justify="right")
    table.add_column("95% interval", justify="right")
    table.add_column("note")
    for parameter, fitted in calibration.predictors[name].parameters.items():
        interval = "-" if fitted.fixed else f"{fitted.low:.4g} .. {fitted.high:.4g}"
        note = f"not identifiable: {fitted.fixed}" if fitted.fixed else ""
        table.add_row(parameter, f"{fitted.value:.4g}", interval, note)
    return table


def _errors(names: list[str], calibration: Calibration) -> Table:
    table = Table("predictor", "collectives", title="Errors", title_justify="left")
    for heading in ("count", "uncalibrated geomean", "worst", "calibrated geomean", "worst"):
        table.add_column(heading, justify="right")
    for name in names:
        record = calibration.predictors[name]
        for label, before, after in (
            ("fitted", record.train_uncalibrated, record.train),
            ("held out", record.held_out_uncalibrated, record.held_out),
        ):
            table.add_row(name, label, str(after.count), *_pair(before), *_pair(after))
    return table


def _pair(summary: ErrorSummary) -> tuple[str, str]:
    return _share(summary.geomean), _share(summary.worst)


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _cells(name: str, breakdown: Breakdown) -> Table:
    """Held-out error by fabric and kind, signed by size."""
    table = Table("fabric", "kind", title=f"{name}, calibrated: held out", title_justify="left")
    for size in breakdown.sizes:
        table.add_column(format_size(size), justify="right")
    for heading in ("geomean", "worst"):
        table.add_column(heading, justify="right")
    for row in breakdown.rows:
        cells = [percent(row.errors.get(size)) for size in breakdown.sizes]
        table.add_row(row.fabric, row.kind, *cells, *_pair(row.summary))
    return table
