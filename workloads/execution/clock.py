"""The one clock of a run: CLOCK_MONOTONIC, in integer nanoseconds.

All ranks of a run live in one kernel, so their readings compare directly.
"""

from __future__ import annotations

import ctypes
import os
import time

_CLOCK_MONOTONIC = 1
_TIMER_ABSTIME = 1
_PR_SET_TIMERSLACK = 29

_libc = ctypes.CDLL(None, use_errno=True)


class _Timespec(ctypes.Structure):
    _fields_ = (("tv_sec", ctypes.c_long), ("tv_nsec", ctypes.c_long))


def now_ns() -> int:
    """Nanoseconds of CLOCK_MONOTONIC."""
    return time.monotonic_ns()


def round_time_ns(margin_ns: int, grid_ns: int) -> int:
    """The first multiple of `grid_ns` that is at least `margin_ns` ahead.

    Work that begins at a round time begins there in every run in virtual time, whatever came before
    it: naps during imports (docs/virtual-kernel.md) take a millisecond more or less, as Python
    finds its compiled files or not."""
    return -(-(now_ns() + margin_ns) // grid_ns) * grid_ns


def sleep_until_ns(deadline_ns: int) -> None:
    """Sleep until an absolute CLOCK_MONOTONIC time; returns at once when it has passed.

    An absolute deadline keeps a modelled phase exact: what the caller computed on the way does not
    add to it. Raises OSError when the kernel refuses.
    """
    deadline = _Timespec(*divmod(deadline_ns, 10**9))
    while True:
        error = _libc.clock_nanosleep(
            _CLOCK_MONOTONIC, _TIMER_ABSTIME, ctypes.byref(deadline), None
        )
        if error == 0:
            return
        if error != 4:  # EINTR: a signal handler ran, the deadline still stands
            raise OSError(error, os.strerror(error))


def set_minimal_timer_slack() -> None:
    """Give this thread, and those it starts, a timer slack of 1 ns instead of Linux's 50 us."""
    if _libc.prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
