"""Keep a guest on one processor core.

A guest runs one of its processes at a time. Left alone, the host's scheduler spreads them over the
cores, and each switch between them wakes a core that had just gone idle: 8 ranks took 16.0 s of wall
time so, and 10.3 s on one core (32 ranks 61.6 s and 31.9 s). The guest's results do not depend on it.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from pathlib import Path

_LOOK_EVERY_S = 1.0
# A guest alone on its core waits for it 15% to 20% of the time, between the two halves of a
# hand-over; with a second busy process there, half of the time.
_WAITS_TOO_MUCH = 0.35
_IDLE_ENOUGH = 0.6
_IDLE_FIELDS = (3, 4)  # idle and iowait, in a cpu line of /proc/stat (proc(5))


class Core:
    """The core of one guest, whose first process is the leader of its session.

    Chosen when the guest starts, changed when others crowd it while another core idles.
    """

    def __init__(self, leader: int) -> None:
        self._leader = leader
        self._allowed = sorted(os.sched_getaffinity(leader))
        # Two guests that start together should not choose the same one.
        self._core = self._allowed[leader % len(self._allowed)]
        self._looked_s = time.monotonic()
        self._idle_ticks = _idle_ticks()
        self._waited_ns = self._read_waited_ns()
        self._move()

    def settle(self) -> None:
        """To be called often; looks about once a second."""
        if len(self._allowed) < 2 or time.monotonic() - self._looked_s < _LOOK_EVERY_S:
            return
        now_s, idle_ticks, waited_ns = time.monotonic(), _idle_ticks(), self._read_waited_ns()
        passed_s = now_s - self._looked_s
        waited = (waited_ns - self._waited_ns) / (passed_s * 1e9)
        idle = {
            core: (idle_ticks.get(core, 0) - self._idle_ticks.get(core, 0))
            / _TICKS_PER_S
            / passed_s
            for core in self._allowed
        }
        self._looked_s, self._idle_ticks, self._waited_ns = now_s, idle_ticks, waited_ns
        better = better_core(self._core, waited, idle)
        if better != self._core:
            self._core = better
            self._move()

    def _move(self) -> None:
        # Twice: what a process forked while the first pass went by has its old core.
        for _ in range(2):
            for name in os.listdir("/proc"):
                # A process may have ended, or the host may forbid it: slower, nothing else.
                if name.isdecimal():
                    with contextlib.suppress(OSError):
                        if os.getsid(int(name)) == self._leader:
                            os.sched_setaffinity(int(name), {self._core})

    def _read_waited_ns(self) -> int:
        """Nanoseconds in which the guest's kernel was ready to run but did not, since its start
        (the second figure of /proc/PID/schedstat: Documentation/scheduler/sched-stats.rst)."""
        try:
            return int(Path(f"/proc/{self._leader}/schedstat").read_text().split()[1])
        except (OSError, IndexError):
            return 0


def better_core(core: int, waited: float, idle: Mapping[int, float]) -> int:
    """Where a guest on `core` should go: elsewhere only if it had to wait there (`waited`, a share
    of the time) while another core idled (`idle`, core -> share of the time)."""
    idlest = max(idle, key=lambda other: idle[other])
    return idlest if waited > _WAITS_TOO_MUCH and idle[idlest] > _IDLE_ENOUGH else core


_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def _idle_ticks() -> dict[int, int]:
    """Core -> clock ticks in which it was idle since boot."""
    ticks = {}
    for line in Path("/proc/stat").read_text().splitlines():
        name, *fields = line.split()
        if name.startswith("cpu") and name != "cpu":
            ticks[int(name[3:])] = sum(int(fields[index]) for index in _IDLE_FIELDS)
    return ticks
