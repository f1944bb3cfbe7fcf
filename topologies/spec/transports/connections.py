"""The connections of two ranks, and how messages go by them."""

from __future__ import annotations

from dataclasses import dataclass
from zlib import crc32


@dataclass(frozen=True, slots=True)
class Connections:
    """Two ranks have `count` connections. A message goes in parts by all of them where that
    `splits`, each part a multiple of `grain_bytes` but for the last, or whole by one. A part has at
    least `least_bytes`, so that a short message takes fewer of them."""

    count: int = 1
    splits: bool = True
    grain_bytes: int = 1
    least_bytes: int = 1

    @property
    def words(self) -> str:
        """The words for several, which go behind those of a transport; else none."""
        if self.count == 1:
            return ""
        how = "messages split over all" if self.splits else "each message by one"
        return f", {self.count} connections of two ranks, {how}"

    def parts(self, size_bytes: int, slot: int) -> tuple[tuple[int, int], ...]:
        """(number of the connection, bytes) of each part of a message, in order. A message that
        goes whole takes the connection that a hash of its slot says, so that both ends choose alike
        whatever the step from slot to slot. So does the first part of one that is too short for
        all."""
        if self.count == 1 or not size_bytes:
            return ((0, size_bytes),)
        if not self.splits:
            return ((crc32(slot.to_bytes(8)) % self.count, size_bytes),)
        grains = -(-size_bytes // self.grain_bytes)
        each = max(max(1, -(-grains // self.count)) * self.grain_bytes, self.least_bytes)
        begins = range(0, size_bytes, each)
        by = 0
        if self.least_bytes > self.grain_bytes and len(begins) < self.count:
            by = crc32(slot.to_bytes(8))
        return tuple(
            ((by + number) % self.count, min(each, size_bytes - first))
            for number, first in enumerate(begins)
        )


SMALLEST_PART_BYTES = 64 * 1024
"""NCCL's MIN_CHUNKSIZE (src/transport/net_socket.cc): sockets get no smaller parts of a message."""

ONE = Connections()
"""A connection that takes every message whole."""


def connection_name(group: str, number: int) -> str:
    """The name of connection `number` of each two ranks of a group, which is the group's own for
    the first."""
    return f"{group}#{number}" if number else group


def named_connection(name: str) -> tuple[str, int]:
    """The group and the number of a connection of that name."""
    group, _, number = name.rpartition("#")
    return (group, int(number)) if group else (name, 0)
