"""Whether this host lets the guest's user code run under a seccomp filter."""

import ctypes
import os

_NR_SECCOMP = {"x86_64": 317}
_GET_ACTION_AVAIL = 2
_RET_TRAP = 0x00030000

_libc = ctypes.CDLL("libc.so.6", use_errno=True)


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
