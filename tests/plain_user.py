"""Runs a program as a user without any privilege, from tests that run as root."""

from __future__ import annotations

import os
import pwd
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
NOBODY = pwd.getpwnam("nobody")

needs_root = pytest.mark.skipif(
    os.getuid() != 0,
    reason="needs root to become another user; as a plain user all other tests show it",
)


def run_as_nobody(
    *command: str | Path, home: Path = Path("/nonexistent")
) -> subprocess.CompletedProcess[str]:
    """In this clone, with nothing of our environment but PATH. Raises PermissionError where the
    program is closed to others."""
    return subprocess.run(
        command,
        cwd=ROOT,
        user=NOBODY.pw_uid,
        group=NOBODY.pw_gid,
        extra_groups=[],
        env={"PATH": os.environ["PATH"], "HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
