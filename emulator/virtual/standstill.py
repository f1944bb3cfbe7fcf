"""The threads that run in a guest where virtual time stands still: what its kernel says of them, in
words."""

from __future__ import annotations

import functools
import re
import struct
from mmap import ACCESS_READ, mmap
from pathlib import Path

# pr_notice() of emulator/kernel/patches/0026-um-threads-that-wait-by-computing.patch
_SAID = re.compile(
    r"standstill: rank (-?\d+) pid (\d+) tid (\d+) call (-?\d+) "
    r"code (\S+)\+0x([0-9a-f]+) name (.*)$"
)
_CALLS = {
    0: "read", 1: "write", 7: "poll", 23: "select", 24: "sched_yield", 39: "getpid", 45: "recvfrom",
    47: "recvmsg", 61: "wait4", 202: "futex", 228: "clock_gettime", 232: "epoll_wait",
    262: "newfstatat", 270: "pselect6", 271: "ppoll", 281: "epoll_pwait",
}  # fmt: skip


def describe_standstill(line: str) -> str | None:
    """The thread that `line` of the guest's console is about, and what it does. None: no such line.

    The line has the rank of its environment (-1: none), the last system call (-1: it makes none)
    and the place of its code in a file."""
    found = _SAID.search(line)
    if found is None:
        return None
    rank, pid, tid, call, file, offset, name = found.groups()
    whose = f"a process (pid {pid})" if rank == "-1" else f"rank {rank}'s process {pid}"
    thread = f"thread {name!r}" if tid == pid else f"thread {name!r} ({tid})"
    if call != "-1":
        return f"{whose}, {thread}, makes system calls again and again: {_call(int(call))}"
    return f"{whose}, {thread}, computes in {_place(file, int(offset, 16))}"


def _call(number: int) -> str:
    return _CALLS.get(number, f"number {number}")


def _place(file: str, offset: int) -> str:
    if file == "-":
        return "code of no file"
    name = _symbol(file, offset)
    return Path(file).name + (f" at {offset:#x}" if name is None else f", {name}")


@functools.lru_cache(maxsize=64)
def _symbol(file: str, offset: int) -> str | None:
    """The function at a byte of an ELF file for 64 bits, of its tables of symbols. None: there is
    none, or it cannot be read."""
    try:
        with open(file, "rb") as opened, mmap(opened.fileno(), 0, access=ACCESS_READ) as data:
            return _lookup(data, offset)
    except (OSError, struct.error, IndexError, ValueError):
        return None


def _lookup(data: mmap, offset: int) -> str | None:
    if data[:5] != b"\x7fELF\x02":
        return None
    programs_at, sections_at = struct.unpack_from("<QQ", data, 32)
    size, count, section_size, sections = struct.unpack_from("<HHHH", data, 54)
    address = None
    for index in range(count):
        kind, _, start, virtual, _, length = struct.unpack_from(
            "<IIQQQQ", data, programs_at + index * size
        )
        if kind == 1 and start <= offset < start + length:  # PT_LOAD
            address = offset - start + virtual
    if address is None:
        return None
    best: tuple[int, str] | None = None
    for index in range(sections):
        header = struct.unpack_from("<IIQQQQIIQQ", data, sections_at + index * section_size)
        kind, at, length, link, entry = header[1], header[4], header[5], header[6], header[9]
        if kind not in (2, 11):  # SHT_SYMTAB, SHT_DYNSYM
            continue
        names = struct.unpack_from("<IIQQQQ", data, sections_at + link * section_size)[4]
        for symbol in struct.iter_unpack("<IBBHQQ", data[at : at + length // entry * entry]):
            name, info, _, _, value, _ = symbol
            if info & 15 == 2 and value <= address and (best is None or value > best[0]):
                end = data.find(b"\0", names + name)
                best = value, data[names + name : end].decode(errors="replace")
    return None if best is None else best[1]
