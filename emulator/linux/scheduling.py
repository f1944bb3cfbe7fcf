"""The request of a process to the scheduler of ordinary processes (EEVDF)."""

from __future__ import annotations

import ctypes
import os
import struct

_NR_SCHED_SETATTR = 314

_libc = ctypes.CDLL(None, use_errno=True)


def ask_for_slice(slice_ns: int) -> None:
    """Ask for a slice of so many nanoseconds, for this thread and all that it starts: Linux takes
    100,000 to 100,000,000 (kernel/sched/syscalls.c). A task with a shorter one has the earlier
    deadline of two that become ready at one time. Raises OSError."""
    attributes = struct.pack("IIQiIQQQ", 48, os.SCHED_OTHER, 0, 0, 0, slice_ns, 0, 0)
    if _libc.syscall(ctypes.c_long(_NR_SCHED_SETATTR), 0, attributes, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"sched_setattr: {os.strerror(code)}")
