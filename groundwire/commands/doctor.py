"""`groundwire doctor`: what this machine can do."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer
import yaml
from rich.console import Console

from emulator.doctor.check import Check
from emulator.doctor.doctor import Diagnosis, diagnose
from emulator.host_time.measuring import HostMeasurement, measure_host
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
    host: Annotated[
        bool,
        typer.Option(
            "--measure-host",
            help="Measure what copies, calls, wake-ups and packets cost this machine's processors "
            "(half a minute), and print it as the `host` section of a spec.",
        ),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="With --measure-host: write the section there."),
    ] = None,
) -> int:
    """Say what this machine can do, what each missing thing costs, and how to get it.

    Exit code 1 when the main job could not run on any kernel.
    """
    if out is not None and not host:
        raise typer.BadParameter("--out is for --measure-host")
    if measure and host:
        raise typer.BadParameter("ask for one of --measure and --measure-host")
    if host:
        return _measure_host(as_json, out)
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


def _measure_host(as_json: bool, out: Path | None) -> int:
    progress = Console(stderr=True)
    found = measure_host(lambda line: progress.print(line, highlight=False))
    section = _section_text(found)
    if out is not None:
        out.write_text(section)
    if as_json:
        print(json.dumps(found.as_dict(), indent=1))
        return 0
    table = Figures("cost", title=f"What traffic costs: {found.machine}")
    for heading in ("median", "least", "largest"):
        table.figure(heading)
    table.text("measured as")
    for each in found.figures:
        values = (_figure(value, each.unit) for value in (each.value, each.least, each.largest))
        table.add_row(each.name, *values, each.how)
    console = output_console()
    console.print(table)
    for name, reason in found.missing.items():
        console.print(f"not measured: {name}: {reason}", highlight=False, markup=False)
    print(f"\n{section}", end="")
    return 0


def _figure(value: float, unit: str) -> str:
    return f"{value / 1e9:.2f} GB/s" if unit == "B/s" else f"{value / 1000:.2f} us"


def _section_text(found: HostMeasurement) -> str:
    """The section as YAML, with the machine and what it lacks as comments."""
    comments = [f"# {found.machine}, by groundwire doctor --measure-host"]
    comments += [f"# not measured: {name}: {why}" for name, why in found.missing.items()]
    return "\n".join(comments) + "\n" + yaml.safe_dump({"host": found.section()}, sort_keys=False)


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
