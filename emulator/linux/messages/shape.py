"""A message as pyroute2 encodes it with its values left blank.

The place of a blank is found by experiment: the message is encoded with two values, and where the
two differ is the blank, or a length that counts it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyroute2 import netlink

from emulator.linux.messages.template import Blank, OpenBlank

CREATE = netlink.NLM_F_CREATE | netlink.NLM_F_EXCL
REPLACE = netlink.NLM_F_CREATE | netlink.NLM_F_REPLACE


@dataclass(frozen=True)
class Value:
    """A value that a template leaves blank: how it is packed, and two values for pyroute2 whose
    encodings differ in every byte. Without a form it is open: two values of one length, with a
    terminator of so many bytes after them."""

    name: str
    form: str
    first: Any
    second: Any
    terminator: int = 0

    def longer(self, by: int) -> Any:
        """An open value with so many more bytes."""
        return self.first + self.first[:1] * by


def u8(name: str) -> Value:
    return Value(name, "B", 0, 2**8 - 1)


def u16(name: str) -> Value:
    return Value(name, "H", 0, 2**16 - 1)


def u32(name: str) -> Value:
    return Value(name, "I", 0, 2**32 - 1)


def i32(name: str) -> Value:
    return Value(name, "i", 0, -1)


def u64(name: str) -> Value:
    return Value(name, "Q", 0, 2**64 - 1)


def i64(name: str) -> Value:
    return Value(name, "q", 0, -1)


def address(name: str) -> Value:
    return Value(name, "4s", "0.0.0.0", "255.255.255.255")


def mac(name: str) -> Value:
    return Value(name, "6s", "00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff")


def array(name: str, count: int) -> Value:
    return Value(name, f"{count}s", [1] * count, [254] * count)


def text(name: str) -> Value:
    return Value(name, "", "abc", "xyz", terminator=1)


def content(name: str) -> Value:
    """The template that templates of parts make."""
    return Value(name, "", b"abcd", b"wxyz")


@dataclass(frozen=True)
class Shape:
    """A message of class `of`, or, where it is an attribute's class, the attribute's content. A
    part, which is put behind such a message, is without the first `skipped_bytes` of it."""

    of: Any
    values: Mapping[str, Any]
    type: int = 0
    flags: int = 0
    skipped_bytes: int = 0

    def encode(self, *given: Any) -> bytes:
        """The shape with these values, by pyroute2."""
        waiting = iter(given)
        made = self.of()
        made.setvalue(_filled(self.values, waiting))
        made.encode()
        return bytes(made.data[size(self.of.header) + self.skipped_bytes :])

    def blank(self) -> tuple[bytes, list[Blank | OpenBlank]]:
        """The shape with samples in place of its values, and the places of these."""
        values = list(values_of(self.values))
        firsts = [value.first for value in values]
        payload = self.encode(*firsts)

        def with_other(position: int, other: Any) -> bytes:
            return self.encode(*firsts[:position], other, *firsts[position + 1 :])

        blanks: list[Blank | OpenBlank] = []
        for position, value in enumerate(values):
            other = with_other(position, value.second)
            places = [at for at, (a, b) in enumerate(zip(payload, other, strict=True)) if a != b]
            offset, size = places[0], len(places)
            if places != list(range(offset, offset + size)):
                raise ValueError(f"{value.name} is at {places} of {self}")
            if value.form:
                if size != struct.calcsize("=" + value.form):
                    raise ValueError(f"{value.name} has {size} bytes in {self}")
                blanks.append(Blank(offset, value.form))
                continue
            counted = _lengths(payload, with_other(position, value.longer(1)), offset, 1)
            padded = _lengths(payload, with_other(position, value.longer(4)), offset, 4)
            blanks.append(
                OpenBlank(
                    offset,
                    size,
                    value.terminator,
                    tuple(sorted(counted)),
                    tuple(sorted(padded - counted)),
                )
            )
        if [blank.offset for blank in blanks] != sorted(blank.offset for blank in blanks):
            raise ValueError(f"{self} names its values in another order than the message has them")
        return payload, blanks


def _lengths(short: bytes, long: bytes, before: int, by: int) -> set[int]:
    """The offsets ahead of `before` that hold a length which grew by so many bytes."""
    return {
        at
        for at in range(0, before, 4)
        if int.from_bytes(long[at : at + 2], "little")
        - int.from_bytes(short[at : at + 2], "little")
        == by
    }


def values_of(tree: Any) -> Iterator[Value]:
    """The values that a shape's tree leaves blank, in order."""
    if isinstance(tree, Value):
        yield tree
    elif isinstance(tree, Mapping):
        for each in tree.values():
            yield from values_of(each)
    elif isinstance(tree, Sequence) and not isinstance(tree, str | bytes):
        for each in tree:
            yield from values_of(each)


def _filled(tree: Any, given: Iterator[Any]) -> Any:
    if isinstance(tree, Value):
        return next(given)
    if isinstance(tree, Mapping):
        return {name: _filled(each, given) for name, each in tree.items()}
    if isinstance(tree, list):
        return [_filled(each, given) for each in tree]
    if isinstance(tree, tuple):
        return tuple(_filled(each, given) for each in tree)
    return tree


def size(fields: Sequence[tuple[str, str]]) -> int:
    """The bytes of a struct, of which pyroute2 has the fields."""
    return sum(struct.calcsize("=" + form) for _, form in fields)


def composed(of: Any, *names: str) -> Any:
    """A class of pyroute2 whose attributes `names` are given as content."""
    kinds = tuple((name, "cdata" if name in names else kind) for name, kind in of.nla_map)
    made: Any = type(of.__name__, (of,), {"nla_map": kinds})
    made().compile_nla_table()  # else it may inherit that of the class
    return made
