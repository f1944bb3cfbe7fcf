"""Runs the command line as a user does, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def groundwire(*arguments: str | Path, timeout_s: float = 800) -> subprocess.CompletedProcess[str]:
    """Run `groundwire ARGUMENTS` in the repository; returns what it printed and its exit code."""
    return subprocess.run(
        [sys.executable, "-m", "emulator.cli", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def result_of(directory: Path) -> dict[str, Any]:
    """result.json less the wall time, which is the one thing that may differ between runs."""
    result = json.loads((directory / "result.json").read_text())
    del result["wall_s"]
    return result
