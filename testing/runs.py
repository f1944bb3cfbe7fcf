"""Runs of specs in the virtual kernel, by the command that users have."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

Found = TypeVar("Found")

ROOT = Path(__file__).resolve().parent.parent


def run(text: str) -> tuple[dict[str, Any], float]:
    """The result of a spec, and the wall time of its run in seconds. Raises when it fails."""
    start = time.monotonic()
    return run_with(text, lambda result, _: result), time.monotonic() - start


def run_with(text: str, look: Callable[[dict[str, Any], Path], Found]) -> Found:
    """The figures in a spec's result and in its run directory. Raises when the run fails."""
    with tempfile.TemporaryDirectory() as directory:
        spec = Path(directory, "spec.yaml")
        spec.write_text(text)
        command = [sys.executable, "-m", "groundwire.cli", "run", str(spec)]
        command += ["--kernel", "virtual", "--out", f"{directory}/run"]
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
        result = json.loads(Path(directory, "run", "result.json").read_text())
        assert result["valid"], result["invalid_reasons"]
        return look(result, Path(directory, "run"))
