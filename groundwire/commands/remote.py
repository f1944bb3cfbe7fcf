"""`groundwire remote`: specs run on other machines, through Ansible."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from groundwire.commands.console.figures import Figures, microseconds, output_console
from groundwire.commands.console.outcome import outcome
from groundwire.commands.console.overrides import parse_overrides
from groundwire.commands.run import SetOption, SpecPath
from groundwire.pipeline import run_directory
from groundwire.remote.playbook import HostEvent
from groundwire.remote.running import Hosts, RemoteOutcome, remote_collect, remote_run
from groundwire.remote.upkeep import HostReport, remote_clean, remote_doctor, remote_provision
from topologies.spec.spec import load_spec

remote_app = typer.Typer(
    help="Other machines: made ready, run on, collected from, cleaned. Needs the extra `remote`.",
    no_args_is_help=True,
)

InventoryOption = Annotated[
    Path,
    typer.Option("--inventory", "-i", metavar="FILE", help="The hosts, an inventory of Ansible."),
]
LimitOption = Annotated[
    str | None,
    typer.Option("--limit", "-l", metavar="PATTERN", help="Only these hosts of the inventory."),
]
NativeOption = Annotated[
    bool,
    typer.Option("--native", help="By the hosts' own kernels, with sudo; default: virtual."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@remote_app.command()
@outcome
def provision(
    inventory: InventoryOption,
    limit: LimitOption = None,
    native: NativeOption = False,
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; say what would change.")
    ] = False,
) -> int:
    """Make hosts ready: packages, this clone's Groundwire, the virtual kernel.

    A kernel is built on one host of a kind and copied to the others. Parts that are there already
    are left as they are. Exit code 1 when a host could not be made ready."""
    reports = remote_provision(Hosts(inventory, limit, native), _Tasks().show, check=check)
    for report in reports:
        if report.failure is None:
            changed = "; ".join(report.changed) or "nothing"
            print(f"{report.host}: {'would change' if check else 'changed'}: {changed}")
    return _failures(reports)


@remote_app.command()
@outcome
def run(
    spec_path: SpecPath,
    inventory: InventoryOption,
    limit: LimitOption = None,
    native: NativeOption = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Gets a run directory for each host (default: runs/...)."),
    ] = None,
    set_: SetOption = None,
    as_json: JsonOption = False,
) -> int:
    """Run a spec on every host and bring the run directories here, one for each host.

    Ctrl-C ends the runs on the hosts. Exit codes are those of `groundwire run`, and of several
    hosts the worst: 1 when one failed, else 3 when a run is not valid.
    """
    spec = load_spec(spec_path, overrides=parse_overrides(set_ or []))
    with run_directory(spec, out) as place:
        outcomes = remote_run(spec, Hosts(inventory, limit, native), place, _Lines().show)
    return _show(outcomes, place, as_json)


@remote_app.command()
@outcome
def collect(
    directory: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="The run directory: that of --out, or the one made by default."
        ),
    ],
    inventory: InventoryOption,
    limit: LimitOption = None,
    as_json: JsonOption = False,
) -> int:
    """Bring runs here whose transfer broke off. Files that have come already are not sent again."""
    outcomes = remote_collect(Hosts(inventory, limit), directory, _Lines().show)
    return _show(outcomes, directory, as_json)


@remote_app.command()
@outcome
def doctor(
    inventory: InventoryOption,
    limit: LimitOption = None,
    native: NativeOption = False,
    as_json: JsonOption = False,
) -> int:
    """Say what each host can do. Exit code 1 when a host cannot run the main job at all."""
    reports = remote_doctor(Hosts(inventory, limit, native), _Tasks().show)
    if as_json:
        print(json.dumps({r.host: r.document or {"failure": r.failure} for r in reports}, indent=1))
    else:
        for report in reports:
            if report.document is not None:
                _print_diagnosis(report)
    healthy = all(r.document is not None and r.document["healthy"] for r in reports)
    return _failures(reports) or (0 if healthy else 1)


@remote_app.command()
@outcome
def clean(
    inventory: InventoryOption,
    limit: LimitOption = None,
    native: NativeOption = False,
    app: Annotated[
        bool, typer.Option("--app", help="Remove what provision put there, too.")
    ] = False,
) -> int:
    """End our runs on the hosts, and remove them and what killed ones left behind."""
    reports = remote_clean(Hosts(inventory, limit, native), _Tasks().show, remove_app=app)
    for report in reports:
        if report.failure is None:
            print(f"{report.host}: clean")
    return _failures(reports)


class _Lines:
    """A line for each thing that happens on a host, as it happens."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)

    def show(self, host: str, line: str) -> None:
        self._console.print(f"[bold]{host}[/]  ", end="")
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)


class _Tasks(_Lines):
    """The names of the tasks that a host begins."""

    def show(self, event: HostEvent) -> None:  # type: ignore[override]
        if event.kind == "task":
            super().show(event.host, event.task)


def _show(outcomes: list[RemoteOutcome], directory: Path, as_json: bool) -> int:
    if as_json:
        print(json.dumps({o.host: _document(o) for o in outcomes}, indent=1))
    else:
        output_console().print(_table(outcomes, directory))
    for failed in (o for o in outcomes if o.failure is not None):
        Console(stderr=True).print(
            f"{failed.host}: {failed.failure}", highlight=False, markup=False
        )
    codes = {one.exit_code for one in outcomes}
    return 1 if 1 in codes else max(codes)


def _document(outcome: RemoteOutcome) -> dict[str, object]:
    if outcome.run is None:
        return {"failure": outcome.failure}
    return {"run": str(outcome.run.directory), "result": outcome.run.result}


def _table(outcomes: list[RemoteOutcome], directory: Path) -> Figures:
    table = Figures("host", "verdict")
    table.figure("iteration", "us")
    table.text("run directory")
    for one in outcomes:
        if one.run is None:
            table.add_row(one.host, "[red]failed[/]", "", "")
            continue
        durations = [i["duration_ns"] for i in one.run.result["iterations"]]
        table.add_row(
            one.host,
            "valid" if one.run.result["valid"] else "[red]NOT valid[/]",
            microseconds(sum(durations) // len(durations) if durations else None),
            str(directory / one.host),
        )
    return table


def _print_diagnosis(report: HostReport) -> None:
    assert report.document is not None
    job = report.document["main_job"]
    for kernel in ("native", "virtual"):
        lacks = job[f"{kernel}_lacks"]
        verdict = f"no, it lacks {', '.join(lacks)}" if lacks else "yes"
        print(f"{report.host}: the main job on the {kernel} kernel: {verdict}")


def _failures(reports: list[HostReport]) -> int:
    """Tells of them; 1 when there are some."""
    console = Console(stderr=True)
    for report in reports:
        if report.failure is not None:
            console.print(f"{report.host}: {report.failure}", highlight=False, markup=False)
    return 1 if any(report.failure is not None for report in reports) else 0
