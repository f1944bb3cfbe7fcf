"""Runs the command line as a user does, in a process of its own, from this clone or a copy."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def groundwire(
    *arguments: str | Path, clone: Path = ROOT, timeout_s: float = 800
) -> subprocess.CompletedProcess[str]:
    """Run `groundwire ARGUMENTS` in that clone; returns what it printed and its exit code."""
    return subprocess.run(
        [sys.executable, "-m", "groundwire.cli", *map(str, arguments)],
        cwd=clone,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def run_spec(directory: Path, text: str, *options: str) -> Path:
    """Write a spec to `directory` and run it in the virtual kernel; returns the run directory."""
    spec, out = directory / "spec.yaml", directory / "run"
    spec.write_text(text)
    done = groundwire("run", spec, "--kernel", "virtual", "--out", out, *options)
    assert done.returncode == 0, done.stderr
    return out


def valid_rows(run: Path, iteration: int) -> list[dict[str, Any]]:
    """The collectives of an iteration, of a run that must be valid."""
    found = json.loads((run / "result.json").read_text())
    assert found["valid"] is True
    return [row for row in found["collectives"] if row["iteration"] == iteration]


def copy_clone(to: Path) -> Path:
    """A copy of this clone's files that a run needs; runs there are by this clone's Python."""
    ignored = shutil.ignore_patterns(".*", "runs", "__pycache__", "*.egg-info", "tests", "docs")
    return Path(shutil.copytree(ROOT, to, ignore=ignored))


def result_of(directory: Path) -> dict[str, Any]:
    """result.json less the wall time, which is the one thing that may differ between runs."""
    result: dict[str, Any] = json.loads((directory / "result.json").read_text())
    del result["wall_s"]
    return result
