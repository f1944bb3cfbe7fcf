"""A thread that is woken when it wants to be."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator

_PR_SET_TIMERSLACK = 29


RANK, WATCH = 1, 2
"""Real-time priorities: who looks after the fabric goes before the ranks."""


def use_real_time_priority(priority: int = WATCH) -> None:
    """Puts the calling thread, and all that it starts, before all of ordinary priority, where it
    may, and has it woken up to the nanosecond. Threads of one priority take turns."""
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1)
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(priority))


@contextlib.contextmanager
def real_time_priority(wanted: bool = True) -> Iterator[None]:
    """The calling thread alone is before all of ordinary priority during the block, where it may
    and when it is `wanted`. Threads and processes that it starts meanwhile are not."""
    usual = os.sched_getscheduler(0)
    if wanted:
        with contextlib.suppress(PermissionError):
            os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(WATCH))
    try:
        yield
    finally:
        if wanted:
            with contextlib.suppress(PermissionError):
                os.sched_setscheduler(0, usual, os.sched_param(0))
