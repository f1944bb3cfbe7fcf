"""Training frameworks on virtual GPUs, a row each: wall time, memory, an iteration, the verdict.

    python -m benchmarks.training --environment ENV [NAME...]

ENV is a virtual environment with torch and the frameworks' packages
(docs/howto/virtual-gpu-frameworks.md).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from testing.training_programs import HERE, PROGRAMS, missing

_ROOT = Path(__file__).resolve().parent.parent


def measure(name: str, environment: Path, directory: Path) -> str:
    """A row of the table: what ran, and how. A run that fails is a row as well."""
    program = PROGRAMS[name]
    python = str(environment / "bin" / "python")
    lacks = missing(python, program.packages)
    if lacks:
        return f"| {name} | lacks {', '.join(lacks)} | | | | | |"
    variables = os.environ | {
        "VIRTUAL_ENV": str(environment),
        "PATH": f"{environment / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": "",
    }
    if program.before is not None:
        subprocess.run([python, str(HERE / program.before)], cwd=directory, check=True)
    (directory / "servers.yaml").write_text(program.fabric())
    options = ["--gpus-per-host", str(program.gpus), "--device", "h100", "--out", name]
    options += [*program.options, "-x", "HF_HUB_OFFLINE=1"]
    command = ["exec", "servers.yaml", *options, "--", *program.argv()]
    began_s = time.monotonic()
    done = subprocess.run(
        [str(Path(sys.executable).parent / "groundwire"), *command],
        cwd=directory,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    wall_s = time.monotonic() - began_s
    (directory / f"{name}.log").write_text(done.stdout + done.stderr)
    if done.returncode not in (0, 3):
        return f"| {name} | failed, {done.returncode} | 0 | {wall_s:.0f} s | | | |"
    result = json.loads((directory / name / "result.json").read_text())
    peak_bytes = max(gpu["peak_reserved_bytes"] for gpu in result["gpus"]["ranks"])
    times_ns = [each["duration_ns"] for each in result["iterations"]]
    iteration = f"{times_ns[-1] / 1e6:.3f} ms" if times_ns else ""
    verdict = "VALID" if result["valid"] else "not valid"
    rows = len(result["collectives"])
    return (
        f"| {name} | ran on {program.servers} x {program.gpus} | 0 | {wall_s:.0f} s | "
        f"{peak_bytes >> 20} MiB | {iteration} | {verdict}, {rows} collectives |"
    )


def main() -> None:
    """Print the table, row by row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--environment", type=Path, required=True, metavar="ENV")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="Where runs are kept.")
    parser.add_argument("names", nargs="*", metavar="NAME")
    given = parser.parse_args()
    unknown = [name for name in given.names if name not in PROGRAMS]
    if unknown:
        parser.error(f"{unknown[0]}: no such program; there are {', '.join(PROGRAMS)}")
    with tempfile.TemporaryDirectory() as scratch:
        directory = given.keep or Path(scratch)
        directory.mkdir(parents=True, exist_ok=True)
        print("| program | ran | lines changed | wall time | memory | an iteration | verdict |")
        print("|---|---|---|---|---|---|---|")
        for name in given.names or PROGRAMS:
            print(measure(name, given.environment.absolute(), directory), flush=True)


if __name__ == "__main__":
    main()
