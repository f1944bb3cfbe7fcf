"""The wheels that an inventory's `groundwire_wheels` names, for hosts with this machine's
Python."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

from tests.session.command import ROOT


def make_wheels(directory: Path) -> Path:
    """All that Groundwire needs, in a new directory, as docs/remote.md says to make it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    needed = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    constraints = ["-c", str(ROOT / "constraints.txt")]  # setup.sh asks for those versions
    command = [sys.executable, "-m", "pip", "wheel", "-w", str(directory), *constraints, *needed]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return directory
