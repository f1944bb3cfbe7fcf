"""Features of this machine that make the virtual kernel fast: XSAVE and seccomp filters."""

from __future__ import annotations

import ctypes
import os
import re
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")
_NR_SECCOMP = {"x86_64": 317}
_GET_ACTION_AVAIL = 2
_RET_TRAP = 0x00030000

_libc = ctypes.CDLL("libc.so.6", use_errno=True)


def has_xsave() -> bool:
    """Whether the processor has XSAVE, as Intel's and AMD's do since 2011. The kernel looks for it,
    too (patch 0004). Without it, ptrace runs user code, with the same results.

    A virtual machine may lack it if it does not have its host's processor (QEMU's qemu64).
    """
    flags = re.search(r"^flags\s*:(.*)$", _CPUINFO.read_text(), re.MULTILINE)
    return flags is not None and "xsave" in flags[1].split()


def has_seccomp_filters() -> bool:
    """Whether filters that turn a system call into a signal can be had (seccomp(2), Linux 4.14).

    Asks only, and installs nothing. False also where a container's own policy forbids the call;
    the guest's user code can then be run by ptrace, with the same results at half the speed.
    """
    number = _NR_SECCOMP.get(os.uname().machine)
    action = ctypes.c_uint32(_RET_TRAP)
    return (
        number is not None
        and _libc.syscall(
            ctypes.c_long(number),
            ctypes.c_uint(_GET_ACTION_AVAIL),
            ctypes.c_uint(0),
            ctypes.byref(action),
        )
        == 0
    )
