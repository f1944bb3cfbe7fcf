"""Interrupts of user code in a guest where time stands still.

Virtual time moves when everybody waits, so the guest's kernel has no timer to interrupt who
computes. The host does it: by SIGVTALRM, which the kernel takes for a look at the thread
(emulator/kernel/patches/0026-um-threads-that-wait-by-computing.patch).
"""

from __future__ import annotations

import ctypes
import os
import signal
from pathlib import Path

from emulator.virtual.variables import KernelVariable

_PTRACE_GETREGS, _PTRACE_DETACH = 12, 17
_PTRACE_SEIZE, _PTRACE_INTERRUPT, _PTRACE_EVENT_STOP = 0x4206, 0x4207, 128
_WALL = 0x40000000
_REGISTERS = 27  # of struct user_regs_struct, 8 bytes each
_IP = 16

_libc = ctypes.CDLL("libc.so.6", use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_libc.ptrace.restype = ctypes.c_long


class Interrupts:
    """Interrupts whatever user code a guest runs; not where it is traced."""

    def __init__(self, pid: int, symbols: Path) -> None:
        """`pid` is the guest's first process, `symbols` its kernel's System.map."""
        self._group = pid
        self._running = KernelVariable(pid, symbols, "userspace_pid", size_bytes=4)
        names = ("uml_physmem", "end_vm", "stub_start")
        self._bounds = [KernelVariable(pid, symbols, name) for name in names]

    def interrupt(self) -> None:
        """Interrupt user code once. Where the kernel runs, nothing happens."""
        pid = self._running.read()
        if not pid:
            return
        try:
            process = os.pidfd_open(pid)
        except OSError:
            return
        try:
            if os.getpgid(pid) == self._group:
                self._signal(pid, process)
        except OSError:
            pass  # it has ended
        finally:
            os.close(process)

    def _signal(self, pid: int, process: int) -> None:
        """All processes of a guest have one stack for signals. So who gets one has to be the one
        that runs, and in user code: it is held, and asked where it is."""
        if _libc.ptrace(_PTRACE_SEIZE, pid, None, None) != 0:
            return  # the guest's kernel traces it (userspace=ptrace), and expects no signals
        stopped_by = 0
        try:
            if _libc.ptrace(_PTRACE_INTERRUPT, pid, None, None) != 0:
                return
            _, status = os.waitpid(pid, _WALL)
            if status >> 16 != _PTRACE_EVENT_STOP:
                stopped_by = os.WSTOPSIG(status)  # a call or a fault, which is the kernel's
                return
            registers = (ctypes.c_ulong * _REGISTERS)()
            held = _libc.ptrace(_PTRACE_GETREGS, pid, None, ctypes.addressof(registers)) == 0
            if held and self._is_user_code(registers[_IP]):
                signal.pidfd_send_signal(process, signal.SIGVTALRM)
        finally:
            _let_go(pid, stopped_by)

    def _is_user_code(self, address: int) -> bool:
        kernel, kernel_end, end = (bound.read() or 0 for bound in self._bounds)
        return address < kernel or kernel_end <= address < end


def _let_go(pid: int, stopped_by: int) -> None:
    """Have a process go on that is held, with the signal that had stopped it (0: none). One that
    ends meanwhile is waited for: before that, its own parent does not hear of its end."""
    while _libc.ptrace(_PTRACE_DETACH, pid, None, stopped_by) != 0:
        try:
            _, status = os.waitpid(pid, _WALL)
        except ChildProcessError:
            return
        if not os.WIFSTOPPED(status):
            return
        stopped_by = 0 if status >> 16 == _PTRACE_EVENT_STOP else os.WSTOPSIG(status)
