"""`groundwire sweep`: one spec, several values of some keys, one table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from groundwire import sweeping
from groundwire.commands.console.figures import Figures, output_console, percent, time_scale
from groundwire.commands.console.overrides import parse_overrides
from groundwire.commands.console.progress_display import SweepProgress
from groundwire.commands.console.study_display import StudyDisplay
from groundwire.commands.run import KERNELS, KernelChoice, KernelOption, SpecPath
from groundwire.sweeping import SweepCase


def sweep(
    spec_path: SpecPath,
    set_: Annotated[
        list[str],
        typer.Option(
            "--set",
            metavar="KEY=A,B,C",
            help="Values of a key; several --set make a grid: "
            "--set fabric.hosts=4,8 --set fabric.link.mtu=1500,9000.",
        ),
    ],
    kernel: KernelOption = KernelChoice.auto,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Where the run directories go (default: runs/NAME-sweep-TIME)."
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="So many runs at once, by Dask."),
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Runs on the workers of a running Dask scheduler."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> int:
    """Run a spec once for every combination of the values given, and tabulate.

    All combinations and run directories are checked before the first one runs. From four runs on
    the virtual kernel does one per core at once, as memory allows; --workers 1 does one after
    another. Runs at once are jobs as those of `groundwire study`: one that fails ends no other. One
    that fails among runs one after another ends the sweep; the table then has the runs before it.
    A value that holds commas of
    its own is put in braces or brackets, as YAML:
    --set 'fabric.queue={kind: droptail, buffer: 1MB},{...}'.
    """
    axes = {key: _values(text) for key, text in parse_overrides(set_).items()}
    console = Console(stderr=True)
    done: list[SweepCase] = []
    try:
        if workers is None and scheduler is None:
            workers = sweeping.workers_here(
                spec_path, axes, kernel=KERNELS[kernel], out=out, source="--set"
            )
            if workers > 1:
                console.print(f"{workers} runs at once, each on a core of its own")
        if workers == 1 and scheduler is None:
            with SweepProgress(console) as progress:
                done += sweeping.sweep(
                    spec_path,
                    axes,
                    kernel=KERNELS[kernel],
                    out=out,
                    progress=progress.report,
                    source="--set",
                )
        else:
            with StudyDisplay(console) as display:
                done += sweeping.sweep_at_once(
                    spec_path,
                    axes,
                    workers=workers,
                    scheduler=scheduler,
                    kernel=KERNELS[kernel],
                    out=out,
                    progress=display.report,
                    source="--set",
                )
    finally:  # what has been measured is told, also when a run fails or is interrupted
        if done and as_json:
            print(json.dumps([_document(case) for case in done], indent=1))
        elif done:
            output = output_console()
            output.print_fitting([_table(list(axes), done, times) for times in (True, False)])
            where = done[0].run.directory.parent
            output.print(f"runs: {where}", highlight=False, soft_wrap=True)
    return 0 if all(case.run.result["valid"] for case in done) else 3


def _document(case: SweepCase) -> dict[str, object]:
    run = case.run
    return {"set": dict(case.overrides), "run": str(run.directory), "result": run.result}


def _values(text: str) -> list[str]:
    """Split at the commas that stand outside of brackets."""
    values, depth, start = [], 0, 0
    for at, character in enumerate(text):
        if character in "[{(":
            depth += 1
        elif character in "]})":
            depth -= 1
        elif character == "," and depth == 0:
            values.append(text[start:at])
            start = at + 1
    return [*values, text[start:]]


_COUNTED = (
    ("drops", "drops"),
    ("marks", "ecn_marks"),
    ("pauses", "pauses"),
    ("retransmits", "retransmits"),
)


def _table(keys: list[str], cases: list[SweepCase], times: bool) -> Figures:
    """A row for each case, with the mean of its iterations and what each predictor says of that,
    the error alone without `times`. A column that no case has counted is left out."""
    predictors = list(
        dict.fromkeys(name for case in cases for name in case.run.result["summary"]["error"])
    )
    counted = [
        (heading, key)
        for heading, key in _COUNTED
        if any(case.run.result["summary"][key] for case in cases)
    ]
    measured = [_mean(case, "duration_ns") for case in cases]
    time = time_scale(measured)
    title = "Iterations: their mean, and the error of what is predicted for it"
    table = Figures("run", *keys, title=title)
    table.figure("iteration", time.unit)
    for name in predictors:
        if times:
            table.figure(name, time.unit)
        table.figure("" if times else name, "error")
    table.figure("exposed", time.unit)
    for heading, _ in counted:
        table.figure(heading)
    table.figure("valid")
    for case, duration_ns in zip(cases, measured, strict=True):
        cells = [case.run.directory.name, *(str(case.overrides[key]) for key in keys)]
        cells.append(time.cell(duration_ns))
        for name in predictors:
            predicted_ns = _predicted_ns(case, name)
            error = predicted_ns / duration_ns - 1 if predicted_ns and duration_ns else None
            cells += [time.cell(predicted_ns)] if times else []
            cells.append(percent(error))
        cells.append(time.cell(_mean(case, "exposed_comm_ns")))
        cells += [str(case.run.result["summary"][key]) for _, key in counted]
        table.add_row(*cells, "yes" if case.run.result["valid"] else "NO")
    return table


def _mean(case: SweepCase, key: str) -> int | None:
    told = [iteration[key] for iteration in case.run.result["iterations"]]
    values = [value for value in told if value is not None]
    return sum(values) // len(values) if values else None


def _predicted_ns(case: SweepCase, predictor: str) -> int | None:
    """None where an iteration has no answer."""
    iterations = case.run.result["iterations"]
    values = [row["predicted"].get(predictor, {}).get("duration_ns") for row in iterations]
    known = [value for value in values if value is not None]
    return sum(known) // len(known) if known and len(known) == len(values) else None
