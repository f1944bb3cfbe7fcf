"""`groundwire run`: a spec in, a table and a run directory out."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack, suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer
from rich.console import Console

from emulator.linux.signals import is_interrupt
from emulator.session import KernelKind, Stop, hangs_of
from groundwire import pipeline
from groundwire.commands.console.overrides import parse_overrides
from groundwire.commands.console.progress_display import ProgressDisplay
from groundwire.commands.console.report_style import ReportStyle
from topologies.installation import ready_specs
from topologies.spec.spec import Spec, load_spec

if TYPE_CHECKING:
    from analysis.runs.run import Run
    from groundwire.commands.live_view import LiveView


class KernelChoice(StrEnum):
    """`--kernel`."""

    auto = "auto"
    native = "native"
    virtual = "virtual"


KERNELS: dict[KernelChoice, KernelKind | None] = {
    KernelChoice.auto: None,
    KernelChoice.native: "native",
    KernelChoice.virtual: "virtual",
}

SpecPath = Annotated[
    Path,
    typer.Argument(metavar="SPEC", help=f"The spec, a YAML file; {ready_specs()} has ready ones."),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a key of the spec; can be repeated: "
        "--set fabric.hosts=8 --set workload.ranks=8. Entries of lists go by number: "
        "--set faults.0.at=2ms.",
    ),
]
KernelOption = Annotated[
    KernelChoice,
    typer.Option(
        help="native: this machine's own kernel, in real time, needs root. virtual: a "
        "user-mode Linux in exact virtual time, needs no root. auto: native as root on a "
        "kernel that can run the spec, else virtual."
    ),
]
OutOption = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Run directory to make (default: runs/NAME-TIME)."),
]
ForceOption = Annotated[
    bool,
    typer.Option("--force", help="Replace the run that --out has already, with all that is in it."),
]
JsonOption = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Print result.json instead of the tables; of a run that fails, the reason, and the "
        "ranks that waited for each other.",
    ),
]
StyleOption = Annotated[
    ReportStyle, typer.Option(help="nccl-tests: print the collectives as nccl-tests does.")
]
StallOption = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        min=1,
        help="End a run on the virtual kernel whose time has stood still for so long, as an error "
        "that names the last thread that ran (default: 300).",
    ),
]
HangOption = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="End the run as an error when a rank has waited for one operation for so long in the "
        "run's own time (60s), and name the ranks that wait for others; as --set hang_after.",
    ),
]
TwinOption = Annotated[
    bool,
    typer.Option(
        "--twin",
        help="After a native run, run the same spec on the virtual kernel, show both times of "
        "every collective, and judge the native ones by the exact ones.",
    ),
]
AloneOption = Annotated[
    bool,
    typer.Option(
        "--alone",
        help="Run each of several jobs once more with the others idle, and say by how much it is "
        "slowed down, and how fair that is.",
    ),
]
LiveOption = Annotated[
    bool,
    typer.Option(
        "--live",
        help="Serve the run's page while it goes, on this machine alone: its progress, its clock, "
        "its ports over time. It ends in the page of `groundwire view`, until Ctrl-C.",
    ),
]
TopoOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="A Mininet topology as the fabric, as `mn --topo tree,depth=2`."
    ),
]
CustomOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="A file of Mininet topologies, as `mn --custom`."),
]


def run(
    spec_path: SpecPath,
    kernel: KernelOption = KernelChoice.auto,
    out: OutOption = None,
    set_: SetOption = None,
    as_json: JsonOption = False,
    style: StyleOption = ReportStyle.groundwire,
    twin: TwinOption = False,
    alone: AloneOption = False,
    stall: StallOption = None,
    hang_after: HangOption = None,
    topo: TopoOption = None,
    custom: CustomOption = None,
    live: LiveOption = False,
    force: ForceOption = False,
) -> int:
    """Run a spec: build the fabric, run the ranks on it, measure, and compare with predictions.

    Prints each collective with its size, measured and predicted time and error, each iteration with
    its compute and exposed communication, and where the run directory is. Exit code 3 says that the
    run is done but that its figures are not valid, and the reasons are printed.
    """
    overrides = parse_overrides(set_ or [])
    if hang_after is not None:
        overrides = {"hang_after": hang_after} | overrides
    spec = load_spec(spec_path, fabric_in_place(topo, custom), overrides)
    return run_and_print(
        spec,
        kernel,
        out,
        as_json=as_json,
        style=style,
        twin=twin,
        alone=alone,
        stall_timeout_s=stall,
        live=live,
        force=force,
    )


def fabric_in_place(topo: str | None, custom: Path | None) -> dict[str, Any]:
    """The sections of a spec that `--topo` and `--custom` stand in for: none without them. Raises
    TopoError, and MininetMissing where there is no Mininet."""
    if topo is None and custom is None:
        return {}
    from emulator.mininet.topology import load_topo, section_of_topo

    section = section_of_topo(load_topo(topo or "minimal", str(custom) if custom else None))
    return {"fabric": section.model_dump(mode="python", by_alias=True, exclude_unset=True)}


def run_and_print(
    spec: Spec,
    kernel: KernelChoice,
    out: Path | None,
    *,
    as_json: bool,
    style: ReportStyle,
    twin: bool = False,
    alone: bool = False,
    stall_timeout_s: float | None = None,
    stop: Stop | None = None,
    live: bool = False,
    force: bool = False,
) -> int:
    """Run a spec and print its result; returns the exit code. With `live` its page is served from
    the beginning until an interrupt after its end. With `force` the run that `out` has goes."""
    output, console = sys.stderr if as_json else None, Console(stderr=True)
    with pipeline.run_directory(spec, out, force=force) as directory, ExitStack() as stack:
        view = None
        if live:
            from groundwire.commands.live_view import LiveView

            view = stack.enter_context(LiveView(directory, spec.name))
            console.print(f"{view.url}  (the run's page)", highlight=False, soft_wrap=True)
        try:
            made = run_showing(
                spec,
                kernel,
                directory,
                console,
                twin=twin,
                output=output,
                alone=alone,
                stall_timeout_s=stall_timeout_s,
                stop=stop,
                view=view,
            )
        except RuntimeError as failure:
            if as_json and not is_interrupt(failure):
                print(json.dumps({"failed": str(failure), "hangs": hangs_of(directory)}, indent=1))
            raise
        code = _print_run(made, directory, as_json=as_json, style=style)
        if view is not None:
            sys.stdout.flush()
            console.print(f"{view.url}  (Ctrl-C ends it)", highlight=False, soft_wrap=True)
            view.serve_finished()
    return code


def _print_run(made: Run, directory: Path, *, as_json: bool, style: ReportStyle) -> int:
    """Print a run; returns the exit code."""
    if as_json:
        print(json.dumps(made.result, indent=1))
    elif style is ReportStyle.nccl_tests:
        from analysis.exporters.nccl_style import render_nccl_style

        print(render_nccl_style(made), end="")
    else:
        from groundwire.commands.console.figures import output_console
        from groundwire.commands.console.result_table import print_result

        print_result(made.result, directory, output_console())
    if any(job["failed"] is not None for job in made.result.get("jobs", ())):
        return 1
    return 0 if made.result["valid"] else 3


def run_showing(
    spec: Spec,
    kernel: KernelChoice,
    directory: Path,
    console: Console,
    *,
    twin: bool = False,
    output: TextIO | None = None,
    alone: bool = False,
    stall_timeout_s: float | None = None,
    stop: Stop | None = None,
    view: LiveView | None = None,
) -> Run:
    """Run one spec, and its twin or its jobs alone when asked for, with the progress on `console`
    and in `view`, and what programs write on `output`."""
    try:
        with ProgressDisplay(console, output) as display:
            return pipeline.run(
                spec,
                kernel=KERNELS[kernel],
                out=directory,
                progress=display.report if view is None else view.telling(display.report),
                twin=twin,
                alone=alone,
                stall_timeout_s=stall_timeout_s,
                stop=stop,
                live=view is not None,
            )
    except KeyboardInterrupt:
        with suppress(OSError):  # the terminal may have gone
            console.print(_left_unfinished(directory), highlight=False, soft_wrap=True)
        raise


def _left_unfinished(directory: Path) -> str:
    if (directory / "result.json").exists():
        return f"{directory} has its result; `groundwire report {directory}` makes the report"
    return f"{directory} has no result"
