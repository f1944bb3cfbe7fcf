"""`groundwire run`: a spec in, a table and a run directory out."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from analysis.chakra.files import read_graphs
from analysis.exporters.nccl_style import render_nccl_style
from analysis.exporters.replay import replay_files
from analysis.finish import finish_run
from analysis.result import write_result
from analysis.run import load_run
from emulator.commands.overrides import parse_overrides
from emulator.commands.progress_display import ProgressDisplay
from emulator.commands.report import ReportStyle
from emulator.commands.result_table import output_console, print_result
from emulator.full_directory import told_when_full
from emulator.session import KernelKind, run_session
from topologies.spec import Spec, load_spec
from topologies.workload_spec import ChakraWorkload


class KernelChoice(StrEnum):
    """`--kernel`."""

    auto = "auto"
    native = "native"
    virtual = "virtual"


_KINDS: dict[KernelChoice, KernelKind | None] = {
    KernelChoice.auto: None,
    KernelChoice.native: "native",
    KernelChoice.virtual: "virtual",
}

SpecPath = Annotated[
    Path, typer.Argument(metavar="SPEC", help="The spec, a YAML file; topologies/ has ready ones.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a key of the spec; can be repeated: "
        "--set fabric.hosts=8 --set workload.ranks=8.",
    ),
]
KernelOption = Annotated[
    KernelChoice,
    typer.Option(
        help="native: this machine's own kernel, in real time, needs root. virtual: a "
        "user-mode Linux in exact virtual time, needs no root. auto: native when root and the "
        "kernel has what the spec needs, else virtual."
    ),
]
OutOption = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Run directory to make (default: runs/NAME-TIME)."),
]

JsonOption = Annotated[
    bool, typer.Option("--json", help="Print result.json instead of the tables.")
]
StyleOption = Annotated[
    ReportStyle, typer.Option(help="nccl-tests: print the collectives as nccl-tests does.")
]


def run(
    spec_path: SpecPath,
    kernel: KernelOption = KernelChoice.auto,
    out: OutOption = None,
    set_: SetOption = None,
    as_json: JsonOption = False,
    style: StyleOption = ReportStyle.groundwire,
) -> int:
    """Run a spec: build the fabric, run the ranks on it, measure, and compare with predictions.

    Prints each collective with its size, measured and predicted time and error, each iteration with
    its compute and exposed communication, and where the run directory is. Exit code 3 says that the
    run is done but that the machine could not keep up, so the figures are not valid.
    """
    spec = load_spec(spec_path).with_overrides(parse_overrides(set_ or []), source="--set")
    return run_and_print(spec, kernel, out, as_json=as_json, style=style)


def run_and_print(
    spec: Spec, kernel: KernelChoice, out: Path | None, *, as_json: bool, style: ReportStyle
) -> int:
    """Run a spec and print its result; returns the exit code."""
    directory = out or default_directory(spec)
    result = run_spec(spec, kernel, directory, Console(stderr=True))
    if as_json:
        print(json.dumps(result, indent=1))
    elif style is ReportStyle.nccl_tests:
        print(render_nccl_style(load_run(directory)), end="")
    else:
        print_result(result, directory, output_console())
    return 0 if result["valid"] else 3


def default_directory(spec: Spec) -> Path:
    """`runs/NAME-TIME` below the current directory."""
    return Path("runs") / f"{spec.name}-{datetime.now():%Y%m%d-%H%M%S}"


def run_spec(
    spec: Spec, kernel: KernelChoice, directory: Path, console: Console
) -> dict[str, object]:
    """Run one spec with progress on `console`; returns its result, also written to `directory`."""
    try:
        with told_when_full(directory), ProgressDisplay(console) as display:
            run_session(spec, _KINDS[kernel], directory, display.report, _inputs(spec))
            display.stage("predict", "comparing with the predictions")
            result = write_result(directory)
            display.stage("report", "writing the report")
            finish_run(directory)
    except KeyboardInterrupt:
        with suppress(OSError):  # the terminal may have gone
            console.print(_left_unfinished(directory), highlight=False, soft_wrap=True)
        raise
    return result


def _left_unfinished(directory: Path) -> str:
    if (directory / "result.json").exists():
        return f"{directory} has its result; `groundwire report {directory}` makes the report"
    return f"{directory} has no result"


def _inputs(spec: Spec) -> dict[str, str]:
    """The files that the workload reads: a trace's programs, read and checked here."""
    if not isinstance(spec.workload, ChakraWorkload):
        return {}
    graphs = read_graphs(spec.workload.path)
    return {f"replay/{name}": content for name, content in replay_files(graphs).items()}
