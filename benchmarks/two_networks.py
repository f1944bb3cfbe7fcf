"""The same training of virtual GPUs over the emulated and over the simulated network.

    .venv/bin/python -m benchmarks.two_networks --rows DIR [--sizes 2x4 4x4] [--scripts NAME]

Sizes are servers x GPUs, of 400 Gb/s a GPU between servers and 3.6 Tb/s within. A line for each
iteration, and one for all collectives: how far each is from its own in the other run. Runs that
were made are kept in DIR and are not made again. Wall times are those of whole commands.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from testing.training_programs import Program

NETWORKS = ("simulated", "emulated")
SCRIPTS = {
    "ddp": Program(("torch_parallel.py", "ddp")),
    "fsdp2": Program(("torch_parallel.py", "fsdp2")),
    "fsdp2+tp": Program(("llama.py", "2", "512", "256")),
}
"""A small GPT of 4 layers of width 512, and a Llama of 2."""
BACKENDS: dict[str, dict[str, object]] = {
    "gloo": {},
    "nccl": {"collectives": {"backend": "nccl"}},
    "halving-doubling": {
        "collectives": {
            "backend": "programs",
            "all_reduce": {"algorithm": "halving-doubling"},
        }
    },
}
"""Sections of the spec: Gloo's own algorithms, NCCL's choices, programs."""
_ROOT = Path(__file__).resolve().parent.parent


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=Path, required=True, metavar="DIR")
    parser.add_argument("--sizes", nargs="*", default=["2x4"], metavar="SxG")
    parser.add_argument("--scripts", nargs="*", choices=SCRIPTS, default=[*SCRIPTS])
    parser.add_argument("--backend", choices=BACKENDS, default="gloo")
    options = parser.parse_args(arguments)
    options.rows.mkdir(parents=True, exist_ok=True)
    print("| script | servers x GPUs | | simulated, us | emulated, us | difference |")
    print(f"|{'---|' * 6}")
    for size in options.sizes:
        servers, gpus = map(int, size.split("x"))
        for name in options.scripts:
            more = BACKENDS[options.backend]
            program = replace(SCRIPTS[name], servers=servers, gpus=gpus, more=more)
            where = options.rows.resolve() / f"{name}-{size}-{options.backend}"
            _print(name, size, [_run(program, where, network) for network in NETWORKS])


def _run(program: Program, where: Path, network: str) -> dict[str, Any]:
    """The result of a run. Raises RuntimeError."""
    where.mkdir(exist_ok=True)
    out = where / network
    if not (out / "result.json").exists():
        (where / "servers.yaml").write_text(program.fabric())
        words = [sys.executable, "-m", "groundwire.cli", "exec", "servers.yaml"]
        words += ["--gpus-per-host", str(program.gpus), "--device", "h100", "--network", network]
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        done = subprocess.run(
            [*words, "--out", str(out), "--", *program.argv()],
            cwd=where,
            env=os.environ | {"PYTHONPATH": str(_ROOT), "PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{where}: {network}: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads((out / "result.json").read_text())
    if not found["valid"]:
        raise RuntimeError(f"{out}: not valid: {found['invalid_reasons']}")
    return found


def _print(name: str, size: str, results: Sequence[dict[str, Any]]) -> None:
    rows = [[each["duration_ns"] for each in result["iterations"]] for result in results]
    for number, (simulated, emulated) in enumerate(zip(*rows, strict=True)):
        figures = f"{simulated / 1000:,.3f} | {emulated / 1000:,.3f}"
        print(f"| {name} | {size} | {number} | {figures} | {simulated / emulated - 1:+.3%} |")
    simulated, emulated = (
        {(row["group"], row["id"]): row["duration_ns"] for row in result["collectives"]}
        for result in results
    )
    off = [simulated[key] / emulated[key] - 1 for key in simulated]
    walls = " | ".join(f"{result['wall_s']:.0f} s of wall time" for result in results)
    told = f"{len(off)} collectives, {min(off):+.1%} to {max(off):+.1%}, median {median(off):+.2%}"
    print(f"| {name} | {size} | {told} | {walls} | |", flush=True)


if __name__ == "__main__":
    main()
