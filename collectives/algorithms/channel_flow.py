"""The common part of flows of chunks through channels: sequences, messages, receives ahead."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from collectives.builder import Builder, Move
from collectives.program import Blocks, Buffer

SORTS = 4
"""Sequences of a channel at a participant at most."""


@dataclass(frozen=True, slots=True)
class Item:
    """A chunk of a channel: its block, and the head on each server."""

    block: Blocks
    heads: tuple[int, ...]


class ChannelFlow:
    """Writes chunks of channels, one after the other, with receives posted `ahead`. A message is
    known by its sort, its chunk and its ends. `regions` are areas as large as the data, aside of
    it, at every participant."""

    def __init__(self, builder: Builder, buffer: Blocks, ahead: int, regions: int) -> None:
        self.builder = builder
        self.ahead = ahead
        self._buffer = buffer
        self._regions = [builder.scratch(buffer.count) for _ in range(regions)]
        self._numbers: dict[tuple[object, ...], int] = {}

    def in_advance(self, items: Sequence[Item]) -> Iterator[tuple[Item | None, Item | None]]:
        """The chunk whose turn it is, and the one whose receives are posted before."""
        for turn in range(len(items) + self.ahead):
            item = items[turn - self.ahead] if turn >= self.ahead else None
            yield item, items[turn] if turn < len(items) else None

    def aside(self, region: int, item: Item) -> Blocks:
        """The place of a chunk in a region."""
        offset = item.block.start - self._buffer.start
        return Blocks(Buffer.SCRATCH, self._regions[region] + offset)

    def send(
        self, sequence: int, sort: str, item: Item, ends: tuple[int, int], source: Blocks
    ) -> None:
        """The sender's end of a message, in a sequence of its own."""
        move = Move(ends[0], source, ends[1], source)
        self.builder.send(self._number(sort, item, ends), move, sequence)

    def receive(
        self,
        sequence: int,
        sort: str,
        item: Item,
        ends: tuple[int, int],
        target: Blocks,
        reduce: bool = False,
    ) -> None:
        """The receiver's end of a message, in a sequence of its own."""
        move = Move(ends[0], target, ends[1], target, reduce)
        self.builder.receive(self._number(sort, item, ends), move, sequence)

    def _number(self, sort: str, item: Item, ends: tuple[int, int]) -> int:
        key = sort, item.block.start, *ends
        if key not in self._numbers:
            self._numbers[key] = self.builder.number()
        return self._numbers[key]
