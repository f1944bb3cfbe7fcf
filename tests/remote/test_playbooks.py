"""The playbooks as Ansible's own linter sees them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.session.command import ROOT


def test_playbooks_are_as_ansible_wants_them() -> None:
    """At its strictest profile, without looking for collections elsewhere."""
    programs = Path(sys.prefix) / "bin"
    done = subprocess.run(
        [programs / "ansible-lint", "--offline", "-q", "--profile", "production", "playbooks"],
        cwd=ROOT,
        env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
