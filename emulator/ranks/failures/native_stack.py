"""The waits of a thread below Python: its system call, and the functions on its stack, those of a
program that is not Python's too.

Libraries keep no frame pointers, and to unwind their stacks takes tables that only debuggers read.
So addresses on the stack are taken that follow an instruction that calls: they are, or were, where
functions return to.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from emulator.linux.system_calls import system_call

_PTRACE_GETREGS, _PTRACE_DETACH = 12, 17
_PTRACE_SEIZE, _PTRACE_INTERRUPT = 0x4206, 0x4207
_WALL = 0x40000000
_REGISTERS = 27  # of struct user_regs_struct, 8 bytes each
_ORIG_AX, _IP, _SP = 15, 16, 19
_STACK_BYTES = 4096
_FUNCTIONS = 8
_LIBRARY = re.compile(r"(libtorch|libc10|libgloo|libmpi|libjax|xla_extension|libucp)[^/]*\.so")
_PYTHON = re.compile(r"python[\d.]*$")

_libc = ctypes.CDLL("libc.so.6", use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_libc.ptrace.restype = ctypes.c_long


@dataclass(frozen=True, slots=True)
class _Mapping:
    start: int
    end: int
    offset: int
    file: str


def native_stack(pid: int) -> tuple[str, ...]:
    """The system call of a process's first thread, and "FILE+OFFSET" of the code of libraries, and
    of its program, that is on its stack, innermost first. Empty where that is not to be had."""
    with suppress(OSError, struct.error):
        held = _held(pid)
        if held is None:
            return ()
        registers, stack = held
        call = registers[_ORIG_AX]
        said = [] if call > 2**32 else [f"system call {system_call(call)}"]
        return (*said, *_places(pid, stack))
    return ()


def _held(pid: int) -> tuple[Sequence[int], bytes] | None:
    """Registers and the top of the stack of a thread, which is held for a moment."""
    if _libc.ptrace(_PTRACE_SEIZE, pid, None, None) != 0:
        return None
    stopped_by = 0
    try:
        if _libc.ptrace(_PTRACE_INTERRUPT, pid, None, None) != 0:
            return None
        _, status = os.waitpid(pid, _WALL)
        if not os.WIFSTOPPED(status):
            return None
        if status >> 16 == 0 and os.WSTOPSIG(status) != signal.SIGTRAP:
            stopped_by = os.WSTOPSIG(status)
        registers = (ctypes.c_ulong * _REGISTERS)()
        if _libc.ptrace(_PTRACE_GETREGS, pid, None, ctypes.addressof(registers)) != 0:
            return None
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            memory.seek(registers[_SP])
            return tuple(registers), memory.read(_STACK_BYTES)
    finally:
        _libc.ptrace(_PTRACE_DETACH, pid, None, stopped_by)


def _places(pid: int, stack: bytes) -> Iterator[str]:
    mappings = _mappings(pid)
    starts = [each.start for each in mappings]
    found: dict[str, None] = {}
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for (address,) in struct.iter_unpack("<Q", stack[: len(stack) // 8 * 8]):
            place = bisect_right(starts, address) - 1
            if place < 0 or address >= mappings[place].end:
                continue
            memory.seek(address - 7)
            if not _follows_call(memory.read(7)):
                continue
            mapping = mappings[place]
            found.setdefault(f"{mapping.file}+{address - mapping.start + mapping.offset - 1:#x}")
            if len(found) == _FUNCTIONS:
                break
    yield from found


def _follows_call(code: bytes) -> bool:
    """Whether an instruction that calls ends these seven bytes: by a distance, or by a register or
    memory (opcodes E8 and FF /2 of the processor's manual)."""
    if code[2] == 0xE8:
        return True
    return any(code[-n] == 0xFF and code[1 - n] >> 3 & 7 == 2 for n in (2, 3, 4, 6, 7))


def _mappings(pid: int) -> list[_Mapping]:
    """The code of libraries that is mapped, and of the program where it is no Python, in order."""
    found = []
    program = os.readlink(f"/proc/{pid}/exe")
    if _PYTHON.match(Path(program).name):
        program = ""
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        words = line.split(maxsplit=5)
        if len(words) < 6 or "x" not in words[1]:
            continue
        if words[5] == program or _LIBRARY.search(words[5]):
            start, _, end = words[0].partition("-")
            found.append(_Mapping(int(start, 16), int(end, 16), int(words[2], 16), words[5]))
    return found
