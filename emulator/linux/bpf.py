"""eBPF without a compiler: an assembler for the kernel's own notation, maps, and programs.

The notation is the one in which the verifier and `bpftool prog dump xlated` print instructions
(Documentation/bpf/standardization/instruction-set.rst has their encoding). Numbers may be names.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import re
import struct
from collections.abc import Callable, Mapping

_SYSTEM_CALL = {"x86_64": 321, "aarch64": 280}
_MAP_CREATE, _MAP_LOOKUP, _MAP_UPDATE, _PROG_LOAD = 0, 1, 2, 5
_MAP_HASH, _MAP_ARRAY = 1, 2
_MMAPABLE = 1 << 10
_SCHED_CLS = 3
_LOG_BYTES = 1 << 16

MAP_LOOKUP_ELEM, KTIME_GET_NS, SKB_STORE_BYTES, CLONE_REDIRECT = 1, 5, 9, 13
REDIRECT, SKB_CHANGE_TAIL, SKB_ECN_SET_CE = 23, 38, 97
"""Helper functions, by their numbers in enum bpf_func_id."""

_SIZES = {"u8": 0x10, "u16": 0x08, "u32": 0x00, "u64": 0x18}
_ALU = {
    "=": 0xB0, "+=": 0x00, "-=": 0x10, "*=": 0x20, "|=": 0x40, "&=": 0x50, "<<=": 0x60, ">>=": 0x70,
    "^=": 0xA0,
}  # fmt: skip
_JUMPS = {"==": 0x10, ">": 0x20, ">=": 0x30, "&": 0x40, "!=": 0x50, "<": 0xA0, "<=": 0xB0}
_ATOMIC_ADD, _FETCH, _COMPARE_EXCHANGE = 0x00, 0x01, 0xF1

_R = r"r(\d+)"
_MEMORY = r"\*\((u8|u16|u32|u64) \*\)\(r(\d+) ([+-]) (\w+)\)"


class BpfProgram:
    """A program of the given text. Raises ValueError for a line that is none."""

    def __init__(self, source: str, names: Mapping[str, int]) -> None:
        self._names = names
        self._code: list[bytes] = []
        self._labels: dict[str, int] = {}
        self._jumps: list[tuple[int, str]] = []
        for number, line in enumerate(source.splitlines(), start=1):
            text = line.split("#")[0].strip()
            if text and not any(self._take(text, *pattern) for pattern in _LINES):
                raise ValueError(f"line {number}: not an instruction: {text}")
        for position, label in self._jumps:
            offset = self._labels[label] - position - 1
            code = self._code[position]
            self._code[position] = code[:2] + struct.pack("=h", offset) + code[4:]

    @property
    def code(self) -> bytes:
        """The instructions, eight bytes each."""
        return b"".join(self._code)

    def _take(
        self,
        text: str,
        pattern: re.Pattern[str],
        encode: Callable[[BpfProgram, re.Match[str]], None],
    ) -> bool:
        match = pattern.fullmatch(text)
        if match is not None:
            encode(self, match)
        return match is not None

    def _number(self, text: str) -> int:
        if text.startswith("-"):
            return -self._number(text[1:])
        return self._names[text] if text in self._names else int(text, 0)

    def _offset(self, sign: str, text: str) -> int:
        return self._number(text) * (-1 if sign == "-" else 1)

    def _add(
        self, code: int, target: int = 0, source: int = 0, offset: int = 0, value: int = 0
    ) -> None:
        self._code.append(struct.pack("=BBhi", code, source << 4 | target, offset, value))

    # -- one method per form of line ---------------------------------------------------------------

    def _label(self, match: re.Match[str]) -> None:
        self._labels[match[1]] = len(self._code)

    def _map(self, match: re.Match[str]) -> None:
        # BPF_LD | BPF_IMM | BPF_DW with BPF_PSEUDO_MAP_FD takes two slots.
        self._add(0x18, int(match[1]), 1, 0, self._number(match[2]))
        self._add(0)

    def _load(self, match: re.Match[str]) -> None:
        offset = self._offset(match[4], match[5])
        self._add(0x61 | _SIZES[match[2]], int(match[1]), int(match[3]), offset)

    def _store(self, match: re.Match[str]) -> None:
        offset = self._offset(match[3], match[4])
        self._add(0x63 | _SIZES[match[1]], int(match[2]), int(match[5]), offset)

    def _store_number(self, match: re.Match[str]) -> None:
        offset = self._offset(match[3], match[4])
        self._add(0x62 | _SIZES[match[1]], int(match[2]), 0, offset, self._number(match[5]))

    def _packet_byte(self, match: re.Match[str]) -> None:
        self._add(0x30, 0, 0, 0, self._number(match[1]))

    def _atomic_add(self, match: re.Match[str]) -> None:
        offset = self._offset(match[3], match[4])
        self._add(0xDB, int(match[2]), int(match[5]), offset, _ATOMIC_ADD)

    def _fetch_add(self, match: re.Match[str]) -> None:
        offset = self._offset(match[4], match[5])
        self._add(0xDB, int(match[3]), int(match[1]), offset, _ATOMIC_ADD | _FETCH)

    def _compare_exchange(self, match: re.Match[str]) -> None:
        offset = self._offset(match[2], match[3])
        self._add(0xDB, int(match[1]), int(match[4]), offset, _COMPARE_EXCHANGE)

    def _negate(self, match: re.Match[str]) -> None:
        self._add(0x87, int(match[1]))

    def _arithmetic(self, match: re.Match[str]) -> None:
        self._add(0x0F | _ALU[match[2]], int(match[1]), int(match[3]))

    def _arithmetic_number(self, match: re.Match[str]) -> None:
        self._add(0x07 | _ALU[match[2]], int(match[1]), 0, 0, self._number(match[3]))

    def _jump(self, match: re.Match[str]) -> None:
        self._jumps.append((len(self._code), match[1]))
        self._add(0x05)

    def _jump_if(self, match: re.Match[str]) -> None:
        self._jumps.append((len(self._code), match[4]))
        self._add(0x0D | _JUMPS[match[2]], int(match[1]), int(match[3]))

    def _jump_if_number(self, match: re.Match[str]) -> None:
        self._jumps.append((len(self._code), match[4]))
        self._add(0x05 | _JUMPS[match[2]], int(match[1]), 0, 0, self._number(match[3]))

    def _call(self, match: re.Match[str]) -> None:
        self._add(0x85, value=self._number(match[1]))

    def _exit(self, _: re.Match[str]) -> None:
        self._add(0x95)


_ARITHMETIC = "(=|[-+*|&^]=|<<=|>>=)"
_COMPARISON = "(==|!=|>=|<=|>|<|&)"
_LINES: tuple[tuple[re.Pattern[str], Callable[[BpfProgram, re.Match[str]], None]], ...] = tuple(
    (re.compile(pattern), encode)
    for pattern, encode in (
        (r"(\w+):", BpfProgram._label),
        (rf"{_R} = map (\w+)", BpfProgram._map),
        (rf"{_R} = {_MEMORY}", BpfProgram._load),
        (rf"{_MEMORY} = {_R}", BpfProgram._store),
        (rf"{_MEMORY} = (\w+)", BpfProgram._store_number),
        (r"r0 = \*\(u8 \*\)skb\[(\w+)\]", BpfProgram._packet_byte),
        (rf"lock {_MEMORY} \+= {_R}", BpfProgram._atomic_add),
        (
            rf"{_R} = atomic64_fetch_add\(\((u64) \*\)\(r(\d+) ([+-]) (\w+)\), r\1\)",
            BpfProgram._fetch_add,
        ),
        (
            rf"r0 = atomic64_cmpxchg\(\(u64 \*\)\({_R} ([+-]) (\w+)\), r0, {_R}\)",
            BpfProgram._compare_exchange,
        ),
        (rf"{_R} = -r\1", BpfProgram._negate),
        (rf"{_R} {_ARITHMETIC} {_R}", BpfProgram._arithmetic),
        (rf"{_R} {_ARITHMETIC} (-?\w+)", BpfProgram._arithmetic_number),
        (r"goto (\w+)", BpfProgram._jump),
        (rf"if {_R} {_COMPARISON} {_R} goto (\w+)", BpfProgram._jump_if),
        (rf"if {_R} {_COMPARISON} (-?\w+) goto (\w+)", BpfProgram._jump_if_number),
        (r"call (\w+)", BpfProgram._call),
        (r"exit", BpfProgram._exit),
    )
)


def _bpf(command: int, attributes: bytes) -> int:
    number = _SYSTEM_CALL.get(platform.machine())
    if number is None:
        raise OSError(f"the number of bpf(2) on {platform.machine()} is not known here")
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    result: int = libc.syscall(number, command, buffer, len(attributes))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"bpf(2), command {command}: {os.strerror(code)}")
    return result


def load_classifier(code: bytes) -> int:
    """The descriptor of a traffic-control classifier of these instructions. Raises OSError, with
    the verifier's last words."""
    log = ctypes.create_string_buffer(_LOG_BYTES)
    try:
        return _load(code, None)
    except OSError:
        pass
    try:
        return _load(code, log)
    except OSError as refusal:
        words = log.value.decode(errors="replace").strip().splitlines()[-4:]
        raise OSError(refusal.errno, "; ".join([refusal.strerror or "", *words])) from None


def _load(code: bytes, log: ctypes.Array[ctypes.c_char] | None) -> int:
    instructions = ctypes.create_string_buffer(code, len(code))
    licence = ctypes.create_string_buffer(b"GPL")
    attributes = struct.pack(
        "=IIQQIIQI4x",
        _SCHED_CLS,  # prog_type
        len(code) // 8,  # insn_cnt
        ctypes.addressof(instructions),  # insns
        ctypes.addressof(licence),  # license
        int(log is not None),  # log_level
        _LOG_BYTES if log is not None else 0,  # log_size
        ctypes.addressof(log) if log is not None else 0,  # log_buf
        0,  # kern_version
    )
    return _bpf(_PROG_LOAD, attributes)


def make_array(entries: int, entry_bytes: int) -> int:
    """The descriptor of an array map whose memory user space can share. Raises OSError."""
    return _bpf(_MAP_CREATE, struct.pack("=5I", _MAP_ARRAY, 4, entry_bytes, entries, _MMAPABLE))


def share_array(descriptor: int, entries: int, entry_bytes: int) -> memoryview:
    """The memory of such a map, in 64-bit words: entry i starts at word i * entry_bytes / 8."""
    size = -(-entries * entry_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
    return memoryview(mmap.mmap(descriptor, size)).cast("Q")


def make_table(entries: int) -> int:
    """The descriptor of a hash map from 32-bit keys to 64-bit values. Raises OSError."""
    return _bpf(_MAP_CREATE, struct.pack("=5I", _MAP_HASH, 4, 8, entries, 0))


def _access(command: int, table: int, key: int, value: ctypes.c_uint64) -> None:
    where = ctypes.c_uint32(key)
    # union bpf_attr: map_fd, key, value, flags
    attributes = (table, ctypes.addressof(where), ctypes.addressof(value), 0)
    _bpf(command, struct.pack("=I4xQQQ", *attributes))


def write_table(table: int, key: int, value: int) -> None:
    """Sets one value. Raises OSError."""
    _access(_MAP_UPDATE, table, key, ctypes.c_uint64(value))


def read_table(table: int, key: int) -> int:
    """One value. Raises OSError (ENOENT) for a key that is not there."""
    value = ctypes.c_uint64()
    _access(_MAP_LOOKUP, table, key, value)
    return value.value


def close_all(*descriptors: int) -> None:
    """Closes maps and programs; those that interfaces use live on."""
    for descriptor in descriptors:
        os.close(descriptor)
