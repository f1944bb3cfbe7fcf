"""`groundwire sweep`: one spec, several values of some keys, one table."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from emulator.commands.overrides import parse_overrides
from emulator.commands.result_table import microseconds, output_console
from emulator.commands.run import KernelChoice, KernelOption, SpecPath, run_spec
from emulator.session import refuse_taken
from topologies.spec import Spec, load_spec


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
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the run directories go.")] = Path(
        "runs/sweep"
    ),
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> int:
    """Run a spec once for every combination of the values given, and tabulate.

    All combinations and run directories are checked before the first one runs. One that fails ends
    the sweep, after the table of those before it. A value that holds commas of its own is put in
    braces or brackets, as YAML:
    --set 'fabric.queue={kind: droptail, buffer: 1MB},{...}'.
    """
    base = load_spec(spec_path)
    axes = {key: _values(text) for key, text in parse_overrides(set_).items()}
    cases: list[tuple[dict[str, str], Spec, Path]] = []
    for number, combination in enumerate(itertools.product(*axes.values()), start=1):
        overrides = dict(zip(axes, combination, strict=True))
        directory = out / f"{number:03d}"
        refuse_taken(directory)
        cases.append((overrides, base.with_overrides(overrides, source="--set"), directory))
    console = Console(stderr=True)
    results: list[dict[str, Any]] = []
    try:
        for number, (overrides, spec, directory) in enumerate(cases, start=1):
            label = ", ".join(f"{key}={value}" for key, value in overrides.items())
            console.print(f"[bold]run {number} of {len(cases)}[/]: {label}", highlight=False)
            result = run_spec(spec, kernel, directory, console)
            results.append({"set": overrides, "run": str(directory), "result": result})
    finally:  # what has been measured is told, also when a run fails or is interrupted
        if results and as_json:
            print(json.dumps(results, indent=1))
        elif results:
            output_console().print(_table(list(axes), results))
    return 0 if all(entry["result"]["valid"] for entry in results) else 3


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


def _table(keys: list[str], results: list[dict[str, Any]]) -> Table:
    table = Table(*keys)
    for heading in (
        "iteration us",
        "exposed us",
        "drops",
        "marks",
        "pauses",
        "retransmits",
        "valid",
    ):
        table.add_column(heading, justify="right")
    for entry in results:
        result = entry["result"]
        summary, iterations = result["summary"], result["iterations"]
        table.add_row(
            *(entry["set"][key] for key in keys),
            microseconds(_mean([i["duration_ns"] for i in iterations])),
            microseconds(_mean([i["exposed_comm_ns"] for i in iterations])),
            *(str(summary[k]) for k in ("drops", "ecn_marks", "pauses", "retransmits")),
            "yes" if result["valid"] else "NO",
        )
    return table


def _mean(values: list[int]) -> int | None:
    return sum(values) // len(values) if values else None
