"""Keep a guest on one processor core, one process after the other.

A guest runs one of its processes at a time. Left alone, the host's scheduler spreads them over
the cores, and each switch between them wakes a core that had just gone idle: 8 ranks took 16.0 s
of wall time so, and 10.3 s on one core (32 ranks 61.6 s and 31.9 s). There, a process that hands
over to another goes to sleep at once; one that is woken must not push it aside before that
(SCHED_BATCH: 408,000 switches for 32 ranks, 569,000 without). The results of a guest in virtual
time do not depend on it; one in real time, whose kernel is a process beside those of its programs,
comes nearer to what hardware would do: two ranks took 15 s of wall time, spread over two cores 47.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

_LOOK_EVERY_S = 1.0
# A second busy process takes a third to a half of a core.
_CROWDED = 0.25
_IDLE_ENOUGH = 0.6
_IDLE_FIELDS = (3, 4)  # idle and iowait, in a cpu line of /proc/stat (proc(5))


class Core:
    """The core of one guest, whose first process is the leader of its session.

    Chosen when the guest starts, one that no other guest has where there is such a core; changed
    when others crowd it while another core idles. A context manager: the core is the guest's until
    the block ends.
    """

    def __init__(self, leader: int) -> None:
        self._leader = leader
        self._allowed = sorted(os.sched_getaffinity(leader))
        first = leader % len(self._allowed)
        turned = self._allowed[first:] + self._allowed[:first]
        self._core = turned[0]
        self._claim: socket.socket | None = None
        for core in turned:
            self._claim = _claimed(core)
            if self._claim is not None:
                self._core = core
                break
        self._looked_s = time.monotonic()
        self._idle_ticks = _idle_ticks()
        self._ran_ns: Mapping[int, int] = {}
        if os.sched_getscheduler(leader) == os.SCHED_OTHER:
            os.sched_setscheduler(leader, os.SCHED_BATCH, os.sched_param(0))  # and what it forks
        self._move()

    def __enter__(self) -> Core:
        return self

    def __exit__(self, *exception: object) -> None:
        self._let_go()

    def _let_go(self) -> None:
        if self._claim is not None:
            self._claim.close()

    def others(self) -> frozenset[int]:
        """The cores that the guest may use and does not."""
        return frozenset(self._allowed) - {self._core}

    def settle(self) -> None:
        """To be called often; looks about once a second."""
        if len(self._allowed) < 2 or time.monotonic() - self._looked_s < _LOOK_EVERY_S:
            return
        now_s, idle_ticks, ran_ns = time.monotonic(), _idle_ticks(), self._read_ran_ns()
        passed_s = now_s - self._looked_s
        ran = sum(ns - self._ran_ns.get(pid, 0) for pid, ns in ran_ns.items()) / (passed_s * 1e9)
        idle = {
            core: (idle_ticks.get(core, 0) - self._idle_ticks.get(core, 0))
            / _TICKS_PER_S
            / passed_s
            for core in self._allowed
        }
        first_look = not self._ran_ns
        self._looked_s, self._idle_ticks, self._ran_ns = now_s, idle_ticks, ran_ns
        if first_look:
            return
        better = better_core(self._core, 1 - idle[self._core] - ran, idle)
        if better != self._core:
            self._let_go()
            self._core, self._claim = better, _claimed(better)
            self._move()

    def _move(self) -> None:
        # Twice: what a process forked while the first pass went by has its old core.
        for _ in range(2):
            for pid in self._processes():
                # It may have ended, or the host may forbid it: slower, nothing else.
                with contextlib.suppress(OSError):
                    os.sched_setaffinity(pid, {self._core})

    def _processes(self) -> Iterator[int]:
        for name in os.listdir("/proc"):
            if name.isdecimal():
                with contextlib.suppress(OSError):
                    if os.getsid(int(name)) == self._leader:
                        yield int(name)

    def _read_ran_ns(self) -> dict[int, int]:
        """Process of the guest -> nanoseconds that it has run (the first figure of
        /proc/PID/schedstat: Documentation/scheduler/sched-stats.rst)."""
        ran_ns = {}
        for pid in self._processes():
            with contextlib.suppress(OSError, IndexError):
                ran_ns[pid] = int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])
        return ran_ns


def _claimed(core: int) -> socket.socket | None:
    """A core for one guest, until the socket is closed or this process ends; None: another guest
    has it. The name is in no file system (unix(7), abstract sockets)."""
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        claim.bind(f"\0groundwire-core-{core}")
    except OSError:
        claim.close()
        return None
    return claim


def better_core(core: int, others: float, idle: Mapping[int, float]) -> int:
    """The core to which a guest on `core` should go: another one only if others took much of this
    one (a share of the time) while that one idled (`idle`, core -> share of the time)."""
    idlest = max(idle, key=lambda other: idle[other])
    return idlest if others > _CROWDED and idle[idlest] > _IDLE_ENOUGH else core


_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def _idle_ticks() -> dict[int, int]:
    """Core -> clock ticks in which it was idle since boot."""
    ticks = {}
    for line in Path("/proc/stat").read_text().splitlines():
        name, *fields = line.split()
        if name.startswith("cpu") and name != "cpu":
            ticks[int(name[3:])] = sum(int(fields[index]) for index in _IDLE_FIELDS)
    return ticks
