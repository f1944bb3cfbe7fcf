"""The leftovers of a command's guests on this machine: nothing, one hopes."""

from __future__ import annotations

import time
from pathlib import Path

_PATIENCE_S = 30  # a killed process may take a moment to give back its memory


def left_by(pid: int) -> list[str]:
    """Directories of guests that process `pid` started, and their processes, which hold the memory
    file. A guest's environment names its directory."""
    deadline = time.monotonic() + _PATIENCE_S
    while (found := _left_now(f"groundwire-guest-{pid}-")) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def _left_now(mark: str) -> list[str]:
    found = [str(path) for path in Path("/dev/shm").glob(f"{mark}*")]
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (entry / "environ").read_text(errors="replace"):
                found.append(entry.name)
        except OSError:
            continue
    return found
