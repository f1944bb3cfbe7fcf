"""`groundwire calibrate`: fit predictors to runs and judge them on what was held out."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from analysis.calibration.breakdown import Breakdown, break_down
from analysis.calibration.calibration import Calibration, ErrorSummary, calibrate
from analysis.calibration.external import with_external
from analysis.calibration.markdown import BEGIN, END, insert, render, text_around_tables
from analysis.calibration.observations import (
    CalibrationError,
    Observation,
    observations_of,
    split_by_fabric_and_size,
    split_by_run,
    split_by_size,
)
from analysis.calibration.suite import TRAIN_FABRICS, standard_suite
from analysis.compare.decomposition import decompose
from analysis.predict.interface import load_predictor
from analysis.runs.run import Run, load_run
from groundwire.commands.console.decompositions import decompositions_tables
from groundwire.commands.console.external_sources import external_sources
from groundwire.commands.console.figures import Figures, output_console, percent, share
from groundwire.commands.console.suite_runs import make_runs
from groundwire.commands.predict import PREDICTOR_NAMES
from groundwire.commands.run import KernelChoice, KernelOption
from topologies.units import format_size, parse_size_bytes


class Suite(StrEnum):
    """`--suite`."""

    standard = "standard"


def calibrate_command(
    runs: Annotated[
        list[Path] | None, typer.Argument(metavar="RUN", help="Run directories to fit.")
    ] = None,
    predictor: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A predictor to fit; can be repeated (default: alpha-beta and flow). "
            f"{PREDICTOR_NAMES}",
        ),
    ] = None,
    hold_out: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="RUN",
            help="A run that judges the fit and takes no part in it; can be repeated "
            "(default: every other size).",
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
    table: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the errors as Markdown, too: into a new file, or between the lines "
            f"{BEGIN} and {END} of one that is there.",
        ),
    ] = None,
    external: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FORMAT=FILE",
            help="Results of another simulator, to be judged and fitted as a predictor is; can be "
            "repeated. A directory has a file for each run, by its name. FORMAT: astra-sim, "
            "ns3-fct, loggopsim or csv.",
        ),
    ] = None,
    kernel: KernelOption = KernelChoice.auto,
    as_json: Annotated[bool, typer.Option("--json", help="Print the calibration as JSON.")] = False,
) -> int:
    """Fit predictors' parameters to runs; print errors where they were fitted and where not.

    `--external` fits what another simulator's latency, end hosts and bandwidth would have to be.
    Robust least squares with confidence intervals; parameters that the runs do not determine keep
    their ideal values, and are named. `groundwire predict --calibration FILE` takes the result.
    """
    sources = external_sources(external or [])
    predictors = predictor or ([] if sources else ["alpha-beta", "flow"])
    names = [*predictors, *sources]
    progress = Console(stderr=True)
    _check_before_runs(predictors, out, table)
    if suite is not None:
        if hold_out:
            raise CalibrationError("--hold-out is for named runs: the suite has its own rule")
        specs = standard_suite(None if largest is None else _size_bytes(largest))
        if not specs:
            raise CalibrationError(f"--largest {largest} leaves no run of the {suite} suite")
        made = make_runs(specs, directory, kernel, progress)
        loaded = _load([*made, *(runs or [])])
        split = split_by_fabric_and_size(_observations(loaded), TRAIN_FABRICS)
    elif not runs:
        raise CalibrationError("give run directories to calibrate with, or --suite standard")
    elif hold_out:
        twice = {path.resolve() for path in runs} & {path.resolve() for path in hold_out}
        if twice:
            raise CalibrationError(f"{min(twice)}: given both to fit and to judge the fit by")
        loaded, judges = _load(runs), _load(hold_out)
        split = split_by_run(_observations(loaded), _observations(judges))
        loaded += judges
    else:
        loaded = _load(runs)
        split = split_by_size(_observations(loaded))
    progress.print(
        f"fitting {', '.join(names)} to {_count(split.train)}, judging by {_count(split.held_out)}",
        highlight=False,
    )
    load = with_external(sources, (*split.train, *split.held_out))
    found = calibrate(split, names, load)
    found.write(out)
    if table is not None:
        insert(table, render(found, split, {run.spec.name: run for run in loaded}, load))
    if as_json:
        print(found.model_dump_json(indent=1, by_alias=True))
        return 0
    console = output_console()
    for name in names:
        console.print(_parameters(name, found))
    console.print(_errors(names, found))
    for name in names:
        console.print(_cells(name, break_down(found.load(name, load), split)))
    if sources:
        console.print_fitting(
            decompositions_tables([part for run in loaded for part in decompose(run)])
        )
    console.print(
        f"fitted to {_count(split.train)}, judged on {_count(split.held_out)}: {found.rule}"
    )
    console.print(f"calibration: {out}", highlight=False, soft_wrap=True)
    return 0


def _check_before_runs(names: list[str], out: Path, table: Path | None) -> None:
    """Find mistakes before minutes of runs, and not after."""
    for name in names:
        load_predictor(name)
    out.parent.mkdir(parents=True, exist_ok=True)
    if out.is_dir():
        raise CalibrationError(f"{out}: found a directory; expected a file to write")
    if table is not None and table.exists():
        text_around_tables(table)


def _size_bytes(text: str) -> int:
    try:
        return parse_size_bytes(text)
    except ValueError as error:
        raise typer.BadParameter(f"--largest: found {text!r}, {error}") from None


def _load(directories: list[Path]) -> list[Run]:
    return [load_run(directory) for directory in directories]


def _observations(runs: list[Run]) -> list[Observation]:
    return [observation for run in runs for observation in observations_of(run)]


def _count(observations: tuple[Observation, ...]) -> str:
    return f"{len(observations)} collectives of {len({o.run for o in observations})} runs"


def _parameters(name: str, calibration: Calibration) -> Figures:
    table = Figures("parameter", title=f"{name}: parameters")
    table.figure("value")
    table.figure("95% interval")
    table.text("note")
    for parameter, fitted in calibration.predictors[name].parameters.items():
        interval = "-" if fitted.fixed else f"{fitted.low:.4g} .. {fitted.high:.4g}"
        note = f"kept: {fitted.fixed}" if fitted.fixed else ""
        table.add_row(parameter, f"{fitted.value:.4g}", interval, note)
    return table


def _errors(names: list[str], calibration: Calibration) -> Figures:
    table = Figures("predictor", "collectives", title="Errors")
    for heading in (
        ("count",),
        ("uncalibrated", "geomean"),
        ("", "worst"),
        ("calibrated", "geomean"),
        ("", "worst"),
    ):
        table.figure(*heading)
    for name in names:
        record = calibration.predictors[name]
        for label, before, after in (
            ("fitted", record.train_uncalibrated, record.train),
            ("held out", record.held_out_uncalibrated, record.held_out),
        ):
            table.add_row(name, label, str(after.count), *_pair(before), *_pair(after))
    return table


def _pair(summary: ErrorSummary) -> tuple[str, str]:
    return share(summary.geomean), share(summary.worst)


def _cells(name: str, breakdown: Breakdown) -> Figures:
    """Held-out error by fabric and kind, signed by size."""
    table = Figures("fabric", "kind", title=f"{name}, calibrated: held out")
    for heading in (*map(format_size, breakdown.sizes), "geomean", "worst"):
        table.figure(heading)
    for row in breakdown.rows:
        cells = [percent(row.errors.get(size)) for size in breakdown.sizes]
        table.add_row(row.fabric, row.kind, *cells, *_pair(row.summary))
    return table
