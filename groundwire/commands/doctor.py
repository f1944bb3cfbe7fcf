"""`groundwire doctor`: what this machine can do."""

from __future__ import annotations

import json
import os
from typing import Annotated

import typer
from rich.console import Console

from emulator.doctor.check import Check
from emulator.doctor.doctor import Diagnosis, diagnose
from emulator.native.trust import measure_trust
from groundwire.commands.console.figures import Figures, output_console, share
from topologies.units import format_rate

_SIGNS = {True: "[green]yes[/]", False: "[red]no[/]", None: "[yellow]unknown[/]"}


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    measure: Annotated[
        bool,
        typer.Option(
            "--measure",
            help="Measure up to which rate, and with how many hosts, native links are right on "
            "this machine (a minute, as root), and keep it for `scale: auto`.",
        ),
    ] = False,
) -> int:
    """Say what this machine can do, what each missing thing costs, and how to get it.

    Exit code 1 when the main job could not run on any kernel.
    """
    if measure:
        return _measure(as_json)
    diagnosis = diagnose()
    if as_json:
        print(json.dumps(diagnosis.as_dict(), indent=1))
    else:
        _print(diagnosis, output_console())
    return 0 if diagnosis.healthy else 1


def _measure(as_json: bool) -> int:
    if os.geteuid() != 0:
        raise RuntimeError("root is needed to measure native links (sudo groundwire doctor ...)")
    progress = Console(stderr=True)
    trust = measure_trust(lambda line: progress.print(line, highlight=False))
    if as_json:
        print(json.dumps(trust.as_dict(), indent=1))
        return 0
    table = Figures(title="Native links that are right within 3%")
    for heading in ("queue", "MTU", "hosts", "up to", "worst link", "packet-hops/s"):
        table.figure(heading)
    for rate in trust.rates:
        table.add_row(
            rate.queue,
            str(rate.mtu_bytes),
            str(rate.hosts),
            format_rate(rate.rate_bps) if rate.rate_bps else "none",
            share(rate.error) if rate.rate_bps else "-",
            f"{rate.packet_hops_per_s:,.0f}",
        )
    output_console().print(table)
    return 0


def _print(diagnosis: Diagnosis, console: Console) -> None:
    for group in dict.fromkeys(check.group for check in diagnosis.checks):
        table = Figures("capability", "found", "detail", "without it", "to get it", title=group)
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
