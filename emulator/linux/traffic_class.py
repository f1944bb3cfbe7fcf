"""The traffic class of what this thread, and all that it starts, sends.

Only the virtual kernel has it (`emulator/kernel/patches/0017-traffic-classes-of-tasks.patch`): bits
of a task's personality(2) that Linux has no use for.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass

_QUERY = 0xFFFFFFFF
_SOCKETS_SHIFT, _RDMA_SHIFT = 8, 11
_ALL = 0o77 << _SOCKETS_SHIFT

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class TrafficClass:
    """DSCP class selectors: of what sockets send, and of what RDMA queue pairs do."""

    sockets: int = 0
    rdma: int = 0

    def use(self) -> None:
        """Give it to all sockets and queue pairs that are made from now on. Raises OSError."""
        if self == NO_CLASS:
            return
        chosen = self.sockets << _SOCKETS_SHIFT | self.rdma << _RDMA_SHIFT
        before = _libc.personality(ctypes.c_ulong(_QUERY))
        if before == -1 or _libc.personality(ctypes.c_ulong(before & ~_ALL | chosen)) == -1:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))


NO_CLASS = TrafficClass()
