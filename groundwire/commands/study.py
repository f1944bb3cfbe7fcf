"""`groundwire study`: many cases of one experiment, and what they say of its factors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from analysis.report.tables.figures import share
from analysis.studies.cases import RESPONSES
from analysis.studies.charts.scales import response_text
from analysis.studies.effects import Effects, effects_of
from emulator.session import KernelKind
from groundwire.commands.console.figures import Figures, output_console
from groundwire.commands.console.study_display import StudyDisplay
from groundwire.studies.study import Study, study, study_document
from topologies.installation import in_clone


def study_command(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="The study, a YAML file" + in_clone("; studies/ has ready ones.", "."),
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The study's directory (default: runs/NAME).")
    ] = None,
    native: Annotated[
        bool,
        typer.Option("--native", help="Run on the workers' own kernels, as root, in real time."),
    ] = False,
    scheduler: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="A running Dask scheduler; default: workers here."),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Workers here (default: a core each, by memory)."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print study.json.")] = False,
) -> int:
    """Run or predict every case of a study, and say which factor matters how much.

    All cases are checked before the first one runs. Finished cases are kept: interrupted, the same
    command goes on. Exit code 1 when a case failed, else 3 when a run is not valid.
    """
    kernel: KernelKind = "native" if native else "virtual"
    with StudyDisplay(Console(stderr=True)) as display:
        done = study(
            file,
            out=out,
            kernel=kernel,
            scheduler=scheduler,
            workers=workers,
            progress=display.report,
        )
    if as_json:
        print(json.dumps(study_document(done.cases, done.findings), indent=1))
    else:
        _print(done)
    return 1 if done.failed else 3 if done.invalid else 0


def _print(done: Study) -> None:
    console = output_console()
    effects = effects_of(done.cases, done.cases.response)
    if effects is not None and effects.mains:
        console.print(_effects(effects))
    for text in done.findings:
        console.print(text, highlight=False, markup=False)
    if done.no_parquet is not None:
        console.print(f"no table.parquet: {done.no_parquet}", highlight=False, markup=False)
    for name in ("table.csv", "study.html"):
        console.print(f"{name + ':':12} {done.directory / name}", highlight=False, soft_wrap=True)


def _effects(effects: Effects) -> Figures:
    title = RESPONSES[effects.response][0]
    table = Figures("factor", title=f"What decides: {title}")
    table.figure("share")
    table.text("mean at each level")
    for main in sorted(effects.mains, key=lambda main: -main.share):
        levels = ", ".join(
            f"{level.level} {response_text(effects.response, level.mean)}" for level in main.levels
        )
        table.add_row(main.factor, share(main.share), levels)
    return table
