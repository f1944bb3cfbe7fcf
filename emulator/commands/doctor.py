"""`groundwire doctor`: what this machine can do."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from emulator.check import Check
from emulator.commands.result_table import output_console
from emulator.doctor import Diagnosis, diagnose

_SIGNS = {True: "[green]yes[/]", False: "[red]no[/]", None: "[yellow]unknown[/]"}


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """Say what this machine can do, what each missing thing costs, and how to get it.

    Exit code 1 when the main job could not run on any kernel.
    """
    diagnosis = diagnose()
    if as_json:
        print(json.dumps(diagnosis.as_dict(), indent=1))
    else:
        _print(diagnosis, output_console())
    return 0 if diagnosis.healthy else 1


def _print(diagnosis: Diagnosis, console: Console) -> None:
    for group in dict.fromkeys(check.group for check in diagnosis.checks):
        table = Table(title=group, title_justify="left", box=None, pad_edge=False)
        for heading in ("capability", "found", "detail", "without it", "to get it"):
            table.add_column(heading, overflow="fold")
        for check in diagnosis.checks:
            if check.group == group:
                table.add_row(*_row(check))
        console.print(table)
        console.print()
    for kernel, lacks in (("native", diagnosis.native), ("virtual", diagnosis.virtual)):
        verdict = f"no, it lacks {', '.join(lacks)}" if lacks else "yes"
        console.print(f"the main job on the {kernel} kernel: {verdict}", highlight=False)


def _row(check: Check) -> tuple[str, ...]:
    wanting = check.found is not True
    return (
        check.name,
        _SIGNS[check.found],
        check.detail,
        check.cost if wanting else "",
        check.remedy if wanting else "",
    )
