"""Runs `groundwire exec` as a user does, from a directory of the user's own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.session.command import ROOT, forked

FABRIC = """
fabric: {kind: flat, hosts: 3, link: {rate: 100Gbps, delay: 500ns, mtu: 9000}}
predict: [alpha-beta, flow]
"""
"""A spec without a workload, which a program does not need."""


def execute(
    directory: Path, *arguments: str, timeout_s: float = 400
) -> subprocess.CompletedProcess[str]:
    """`groundwire exec ARGUMENTS` in a directory, with this Python first on PATH."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PATH": path, "LANG": "C.UTF-8"}
    return forked(["exec", *arguments], directory, environment, timeout_s)
