"""Runs of specs that are kept, so that a comparison that is cut short goes on where it was."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def kept_run(text: str, runs: Path) -> Path:
    """The run directory of a spec in the virtual kernel, below `runs` and named by a hash of the
    spec: it is made when it is not there, and anew where a run was cut off. Raises
    CalledProcessError when the run fails."""
    directory = runs / hashlib.sha256(text.encode()).hexdigest()[:12]
    if not (directory / "result.json").exists():
        shutil.rmtree(directory, ignore_errors=True)
        runs.mkdir(parents=True, exist_ok=True)
        spec = runs / f"{directory.name}.yaml"
        spec.write_text(text)
        command = [sys.executable, "-m", "groundwire.cli", "run", str(spec)]
        command += ["--kernel", "virtual", "--out", str(directory)]
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return directory
