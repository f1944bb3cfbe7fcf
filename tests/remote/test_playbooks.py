"""The playbooks as Ansible's own linter sees them."""

from __future__ import annotations

import os
import re
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


def test_hosts_get_what_their_set_up_reads() -> None:
    """The files of the clone's root that setup.sh names are packed with the application."""
    listed = subprocess.run(
        ["git", "ls-files", ":(glob)*"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    words = set(re.findall(r"[\w.-]+", (ROOT / "setup.sh").read_text()))
    read = {name for name in listed.stdout.split() if name in words}
    assert {"pyproject.toml", "constraints.txt"} <= read
    packed = (ROOT / "playbooks" / "roles" / "source" / "tasks" / "main.yml").read_text()
    assert {name for name in read if f"'{name}'" not in packed} == set()
