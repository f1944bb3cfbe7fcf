"""Virtual time, for programs in it: sleeps that are exact, and imports that are no polling.

`sitecustomize.py` beside this file loads it; it imports nothing but the standard library.
"""

from __future__ import annotations

import ctypes
import importlib.abc
import os
import struct
import time
from typing import Any

_library = ctypes.CDLL(None)
_IMPORT_NS = 2
"""An import takes this in virtual time."""


class _Timespec(ctypes.Structure):
    _fields_ = (("tv_sec", ctypes.c_long), ("tv_nsec", ctypes.c_long))


def sleep_to_multiple(grid_ns: int) -> None:
    """In virtual time, imports take microseconds more or less, as other files lie beside the
    program. From a round time on, what it does is the same in every run."""
    sleep_until(-(-time.monotonic_ns() // grid_ns) * grid_ns)


def sleep_until(at_ns: int) -> None:
    deadline = _Timespec(*divmod(at_ns, 10**9))
    monotonic, absolute, interrupted = 1, 1, 4
    sleep = _library.clock_nanosleep
    while sleep(monotonic, absolute, ctypes.byref(deadline), None) == interrupted:
        pass


def sleep_for(duration_ns: int) -> tuple[int, int]:
    """Let exactly this time pass; when it began and ended. A timer is late by its slack of 1 ns."""
    start_ns = time.monotonic_ns()
    if duration_ns > 1:
        sleep_until(start_ns + duration_ns - 1)
    return start_ns, time.monotonic_ns()


def let_pass(duration_ns: int) -> None:
    """Let this time pass, whatever else happens in the guest: a thread that sleeps may go on a
    nanosecond earlier with the packets of others. A timer that is a file has no slack."""
    monotonic, absolute, closes = 1, 1, os.O_CLOEXEC
    timer = _library.timerfd_create(monotonic, closes)
    if timer < 0:  # no descriptor is left
        sleep_for(duration_ns)
        return
    until = divmod(time.monotonic_ns() + duration_ns, 10**9)
    _library.timerfd_settime(timer, absolute, struct.pack("qqqq", 0, 0, *until), None)
    os.read(timer, 8)
    os.close(timer)


class Pace(importlib.abc.MetaPathFinder):
    """In virtual time, has every import happen at an instant of its own. A program that makes
    thousands of calls at one instant, as torch does while it is imported, is taken for a poller
    (docs/virtual-kernel.md), and naps."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        let_pass(_IMPORT_NS)
        return None
