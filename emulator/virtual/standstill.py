"""The threads that run in a guest where virtual time stands still: what its kernel says of them, in
words."""

from __future__ import annotations

import ctypes
import functools
import re
import struct
from bisect import bisect_right
from mmap import ACCESS_READ, mmap
from pathlib import Path

from emulator.linux.system_calls import system_call

# pr_notice() of emulator/kernel/patches/0026-um-threads-that-wait-by-computing.patch
_SAID = re.compile(
    r"standstill: rank (-?\d+) pid (\d+) tid (\d+) call (-?\d+) "
    r"code (\S+)\+0x([0-9a-f]+) name (.*)$"
)
_CODE = re.compile(r"(/[^\s+\"]+)\+0x([0-9a-f]+)")
_ARGUMENTS = re.compile(r"\((?!anonymous).*$")
_libc = ctypes.CDLL(None)


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
        return f"{whose}, {thread}, makes system calls again and again: {system_call(int(call))}"
    return f"{whose}, {thread}, computes in {_place(file, int(offset, 16))}"


def _place(file: str, offset: int) -> str:
    if file == "-":
        return "code of no file"
    name = _symbol(file, offset)
    return Path(file).name + (f" at {offset:#x}" if name is None else f", {_plain(name)}")


def _symbol(file: str, offset: int) -> str | None:
    """The function at a byte of an ELF file for 64 bits, of its tables of symbols. None: there is
    none, or it cannot be read."""
    try:
        return _Symbols.of(file).at(offset)
    except (OSError, struct.error, IndexError, ValueError):
        return None


class _Symbols:
    """The functions of an ELF file for 64 bits, by address."""

    def __init__(self, segments: list[tuple[int, int, int]], functions: dict[int, str]) -> None:
        """`segments` are the start in the file, the size and the address of each that is loaded."""
        self._segments, self._functions = segments, functions
        self._addresses = sorted(functions)

    @classmethod
    @functools.lru_cache(maxsize=16)
    def of(cls, file: str) -> _Symbols:
        """Raises OSError, ValueError, and struct.error and IndexError for what is no such file."""
        with open(file, "rb") as opened, mmap(opened.fileno(), 0, access=ACCESS_READ) as data:
            if data[:5] != b"\x7fELF\x02":
                raise ValueError(f"{file} is no ELF file for 64 bits")
            return cls(_segments(data), _functions(data))

    def at(self, offset: int) -> str | None:
        """The function that begins last before a byte of the file."""
        for start, size, address in self._segments:
            if start <= offset < start + size:
                place = bisect_right(self._addresses, offset - start + address) - 1
                return None if place < 0 else self._functions[self._addresses[place]]
        return None


def _segments(data: mmap) -> list[tuple[int, int, int]]:
    (programs_at,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    found = []
    for index in range(count):
        kind, _, start, address, _, length = struct.unpack_from(
            "<IIQQQQ", data, programs_at + index * size
        )
        if kind == 1:  # PT_LOAD
            found.append((start, length, address))
    return found


def _functions(data: mmap) -> dict[int, str]:
    (sections_at,) = struct.unpack_from("<Q", data, 40)
    section_size, sections = struct.unpack_from("<HH", data, 58)
    found: dict[int, str] = {}
    for index in range(sections):
        header = struct.unpack_from("<IIQQQQIIQQ", data, sections_at + index * section_size)
        kind, at, length, link, entry = header[1], header[4], header[5], header[6], header[9]
        if kind not in (2, 11):  # SHT_SYMTAB, SHT_DYNSYM
            continue
        names = struct.unpack_from("<IIQQQQ", data, sections_at + link * section_size)[4]
        for symbol in struct.iter_unpack("<IBBHQQ", data[at : at + length // entry * entry]):
            name, info, _, _, value, _ = symbol
            if info & 15 == 2 and value:
                end = data.find(b"\0", names + name)
                found[value] = data[names + name : end].decode(errors="replace")
    return found


def with_functions(text: str) -> str:
    """A text in which `FILE+OFFSET` of code becomes the file's name and its function, where that is
    known."""
    return _CODE.sub(lambda found: _place(found[1], int(found[2], 16)), text)


def _plain(name: str) -> str:
    """A function of C++ as it is written there, without its arguments; else as it is."""
    if not name.startswith("_Z"):
        return name
    try:
        demangle = ctypes.CDLL("libstdc++.so.6").__cxa_demangle
    except OSError:
        return name
    demangle.restype = ctypes.c_void_p
    status = ctypes.c_int()
    found = demangle(name.encode(), None, None, ctypes.byref(status))
    if not found or status.value != 0:
        return name
    text = ctypes.string_at(found).decode(errors="replace")
    _libc.free(ctypes.c_void_p(found))
    return _ARGUMENTS.sub("", text)
