"""The connections of two ranks, and how messages go by them."""

from __future__ import annotations

from dataclasses import dataclass
from zlib import crc32


@dataclass(frozen=True, slots=True)
class Connections:
    """Two ranks have `count` connections. A message goes in parts by all of them where that
    `splits`, each part a multiple of `grain_bytes` but for the last, or whole by one."""

    count: int = 1
    splits: bool = True
    grain_bytes: int = 1

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
        whatever the step from slot to slot."""
        if self.count == 1 or not size_bytes:
            return ((0, size_bytes),)
        if not self.splits:
            return ((crc32(slot.to_bytes(8)) % self.count, size_bytes),)
        grains = -(-size_bytes // self.grain_bytes)
        each = max(1, -(-grains // self.count)) * self.grain_bytes
        return tuple(
            (number, min(each, size_bytes - first))
            for number, first in enumerate(range(0, size_bytes, each))
        )


ONE = Connections()
"""A connection that takes every message whole."""
