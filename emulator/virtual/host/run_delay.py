"""How long the host has kept a guest waiting for a processor."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_LOOKS_APART_S = 0.5


class RunDelay:
    """The time for which a process and its children are ready to run while the host runs others,
    from the making of this on. A guest is the kernel's process and one for each address space of
    its programs, of which one runs at a time."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._before_ns = dict(_delays_ns(pid))
        self._last_ns = dict(self._before_ns)
        self._looked_at = time.monotonic()

    def look(self) -> None:
        """Look, twice a second at most: what ends between two looks is known by the first."""
        if time.monotonic() - self._looked_at > _LOOKS_APART_S:
            self._last_ns |= dict(_delays_ns(self._pid))
            self._looked_at = time.monotonic()

    def seconds(self) -> float:
        """As of the last look."""
        before = self._before_ns
        return sum(ns - before.get(pid, 0) for pid, ns in self._last_ns.items()) / 1e9


def _delays_ns(pid: int) -> Iterator[tuple[int, int]]:
    """By process. Linux: Documentation/scheduler/sched-stats.rst, /proc/<pid>/schedstat."""
    process = Path("/proc", str(pid))
    pids = [pid]
    with suppress(OSError):
        pids += [int(child) for child in (process / f"task/{pid}/children").read_text().split()]
    for each in pids:
        with suppress(OSError, IndexError):
            yield each, int(Path("/proc", str(each), "schedstat").read_text().split()[1])
