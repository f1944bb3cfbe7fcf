"""JAX's collectives and a step of FSDP: values, rows, times and predictions.

    .venv/bin/python -m benchmarks.jax --runs DIR [--only NAME] [--json]

Runs `testing/training/jax_operations.py` with 4 processes on a switch, 8 on a torus of 2 by 4 and
16 on a torus of 4 by 4, in the environment that `make programs ONLY=jax` makes; what is in DIR
already is not run again. A line for each operation and time: whether all processes had the right
values, the row's time, the longest by a process's own clock, how much these differ, how many rows
there are, and the largest error of `packet`. A step has several rows, and takes from their begin to
their end.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from testing.foreign_programs import programs_folder

_PROGRAM = Path(__file__).resolve().parent.parent / "testing/training/jax_operations.py"
_SPEC = """
name: jax-%s
fabric: %s
predict: [packet]
"""
_LINK = "link: {rate: 10Gbps, delay: %s, mtu: 9000}"
FABRICS = {
    "flat-4": "{kind: flat, hosts: 4, " + _LINK % "5us" + "}",
    "torus-2x4": "{kind: torus, dims: [2, 4], " + _LINK % "1us" + "}",
    "torus-4x4": "{kind: torus, dims: [4, 4], " + _LINK % "1us" + "}",
}
_STEP = "fsdp"


@dataclass(frozen=True, slots=True)
class Line:
    """An operation of a run. `row_ns` is of its row (of a step: from its first row's begin to its
    last one's end), `clock_ns` of its slowest process; `errors` are of `packet`, by row."""

    fabric: str
    operation: str
    number: int
    right: bool
    row_ns: int
    clock_ns: int
    errors: tuple[float, ...]


def ran(name: str, runs: Path) -> Path:
    """The run directory of a fabric."""
    directory = runs / name
    if not (directory / "result.json").exists():
        spec = runs / f"{name}.yaml"
        spec.write_text(_SPEC % (name, FABRICS[name]))
        python = programs_folder() / "jax/bin/python"
        command = [
            *(sys.executable, "-m", "groundwire.cli", "exec", str(spec), "--kernel", "virtual"),
            *("--out", str(directory), "--env", "XLA_FLAGS=--xla_dump_to=xla"),
            *("--stall", "1200", "--", str(python), str(_PROGRAM)),
        ]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return directory


def lines_of(name: str, directory: Path) -> list[Line]:
    """Raises ValueError where a run's rows are not those of its operations."""
    result = json.loads((directory / "result.json").read_text())
    if not result["valid"]:
        raise ValueError(f"{directory}: {result['invalid_reasons']}")
    said: dict[tuple[str, int], list[tuple[int, bool]]] = defaultdict(list)
    for path in sorted((directory / "ranks").glob("*.out")):
        for words in map(str.split, path.read_text().splitlines()):
            if len(words) >= 4 and words[1].isdigit():
                said[words[0], int(words[1])].append((int(words[2]), words[3] == "right"))
    rows: list[dict[str, Any]] = result["collectives"]
    found = []
    for place, ((operation, number), clocks) in enumerate(said.items()):
        own = rows[place : place + 1]
        if operation == _STEP:
            steps, first = rows[len(said) - 3 :], place - (len(said) - 3)
            own = steps[first * len(steps) // 3 : (first + 1) * len(steps) // 3]
        begin_ns = min(row["start_ns"] for row in own)
        end_ns = max(row["end_ns"] for row in own)
        found.append(
            Line(
                name,
                operation,
                number,
                all(right for _, right in clocks),
                own[0]["duration_ns"] if len(own) == 1 else end_ns - begin_ns,
                max(took_ns for took_ns, _ in clocks),
                tuple(row["predicted"]["packet"]["error"] for row in own),
            )
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="JAX's operations between processes.")
    parser.add_argument("--runs", type=Path, required=True, metavar="DIR", help="where runs are")
    parser.add_argument("--only", choices=FABRICS, help="one fabric", metavar="NAME")
    parser.add_argument("--json", action="store_true", help="lines of JSON")
    asked = parser.parse_args()
    asked.runs.mkdir(parents=True, exist_ok=True)
    for name in [asked.only] if asked.only else FABRICS:
        for line in lines_of(name, ran(name, asked.runs.resolve())):
            if asked.json:
                print(json.dumps(asdict(line)))
                continue
            worst = max(line.errors, key=abs)
            print(
                f"| {line.fabric} | {line.operation} {line.number} | "
                f"{'right' if line.right else 'WRONG'} | {line.row_ns / 1e3:,.2f} | "
                f"{line.clock_ns / 1e3:,.2f} | {line.row_ns / line.clock_ns - 1:+.2%} | "
                f"{len(line.errors)} | {worst:+.2%} |"
            )


if __name__ == "__main__":
    main()
