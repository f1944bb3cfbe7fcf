"""Requests to the scheduler of ordinary processes (EEVDF)."""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path

_NR_SCHED_SETATTR = 314
_THREAD_ORDER = Path("/proc/sys/kernel/gworder")

_libc = ctypes.CDLL(None, use_errno=True)


def ask_for_slice(slice_ns: int) -> None:
    """Ask for a slice of so many nanoseconds, for this thread and all that it starts: Linux takes
    100,000 to 100,000,000 (kernel/sched/syscalls.c). A task with a shorter one has the earlier
    deadline of two that become ready at one time. Raises OSError."""
    attributes = struct.pack("IIQiIQQQ", 48, os.SCHED_OTHER, 0, 0, 0, slice_ns, 0, 0)
    if _libc.syscall(ctypes.c_long(_NR_SCHED_SETATTR), 0, attributes, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"sched_setattr: {os.strerror(code)}")


def order_threads(seed: int) -> None:
    """In the virtual kernel: have the threads of each process of a host go on in an order that is
    drawn from `seed`, and epoll_wait(2) tell of files likewise; 0: as Linux has it. Raises
    OSError."""
    _THREAD_ORDER.write_text(str(seed))
