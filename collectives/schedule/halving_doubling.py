"""Gloo's older reduce-scatter (gloo/reduce_scatter.h, `ReduceScatterHalvingDoubling`), which XLA
calls: its messages, their ends, and what they wait for.

Its buffers are bound to a slot before it begins, so that nothing is announced: a message leaves
when its sender posts it, who asks for a send buffer of its size first (`Pair::send` of
gloo/transport/tcp/pair.cc). After each receive a rank tells its peer so, by a number of four bytes.
Ranks beyond a power of two form blocks of their own, the smaller ones behind the larger, and hand
over what they have reduced to the next larger one. In the end each chunk goes to the rank that it
is for, as halving leaves them in the order of reversed bits.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Final

from collectives.schedule.gloo import PREAMBLE_BYTES
from collectives.schedule.observed import ObservedSchedule

ALGORITHM: Final = "halving-doubling"
NOTIFICATION_BYTES: Final = 4
_NOTHING_IS_ANNOUNCED: Final = 1 << 62

_Key = tuple[int, int, str]
"""Sender, receiver, and what for: messages of one are received in the order in which they left."""


def slots_of(world: int) -> int:
    """How many of the group's slots a call takes."""
    return 4 * world * (world - 1)


def reduce_scatter(size_bytes: int, world: int, element_bytes: int) -> ObservedSchedule:
    """The acts of the ranks in a call over an array of so many bytes; each gets an equal part."""
    elements = size_bytes // element_bytes
    numbers: dict[_Key, list[int]] = defaultdict(list)
    messages: list[tuple[int, int, int]] = []
    programs = [_Rank(rank, world, elements).program() for rank in range(world)]
    for rank, program in enumerate(programs):
        for act in program:
            if act.count is not None:
                size = (
                    NOTIFICATION_BYTES if act.what.endswith("told") else act.count * element_bytes
                )
                numbers[rank, act.peer, act.what].append(len(messages))
                messages.append((rank, act.peer, size))
    sent: dict[_Key, int] = defaultdict(int)
    received: dict[_Key, int] = defaultdict(int)
    acts = []
    for rank, program in enumerate(programs):
        own = []
        for act in program:
            sends = act.count is not None
            key = (rank, act.peer, act.what) if sends else (act.peer, rank, act.what)
            done = sent if sends else received
            number = numbers[key][done[key]]
            done[key] += 1
            own.append(number if sends else ~number)
        acts.append(tuple(own))
    return ObservedSchedule(
        tuple(messages), tuple(acts), _NOTHING_IS_ANNOUNCED, PREAMBLE_BYTES, asks_send_buffers=True
    )


@dataclass(frozen=True, slots=True)
class _Act:
    """A send of so many elements to a peer, or (None) a receive from it."""

    what: str
    peer: int
    count: int | None = None


def _reversed_bits(number: int, bits: int) -> int:
    found = 0
    for bit in range(bits):
        found = found << 1 | (number >> bit & 1)
    return found


class _Rank:
    """The acts of one rank of a call; names are those of the algorithm."""

    def __init__(self, rank: int, world: int, elements: int) -> None:
        self._rank, self._world, self._elements = rank, world, elements
        self._steps = world.bit_length() - 1
        self._chunk = -(-elements // (1 << self._steps))
        self._block_at, self._block, self._smaller, self._larger = _block_of(rank, world)

    def program(self) -> list[_Act]:
        """In order."""
        found: list[_Act] = []
        send_at = recv_at = 0
        size = self._chunk << max(self._steps - 1, 0)
        steps = self._block.bit_length() - 1
        mine = (0, self._elements)
        for step in range(steps):
            peer = self._rank ^ (1 << step)
            upper = bool(self._rank >> step & 1)
            sends = send_at + (0 if upper else size)
            mine = self._clipped(recv_at + (size if upper else 0), size)
            if sends < self._elements:
                found.append(_Act("half", peer, self._clipped(sends, size)[1]))
            if mine[0] < self._elements:
                found.append(_Act("half", peer))
            found.append(_Act("told", peer, 1))
            if upper:
                send_at += size
                recv_at += size
            size >>= 1
        found += self._between_blocks(size, mine)
        found += self._distributed(mine, steps)
        found += [_Act("told", self._rank ^ (1 << step)) for step in range(steps)]
        return found

    def _clipped(self, offset: int, count: int) -> tuple[int, int]:
        return offset, max(0, min(count, self._elements - offset))

    def _between_blocks(self, size: int, mine: tuple[int, int]) -> list[_Act]:
        found = []
        place = self._rank % self._block
        if self._smaller and self._block > 1 and mine[1]:
            source = self._block_at + self._block + place % self._smaller
            found.append(_Act("smaller block", source))
        if self._larger and mine[1]:
            sends = self._larger // self._block
            each = size >> (sends.bit_length() - 2)
            first = _reversed_bits(place, self._block.bit_length() - 1) * sends
            for number in range(sends):
                if each * number >= mine[1]:
                    break
                bits = self._larger.bit_length() - 1
                peer = self._block_at - self._larger + _reversed_bits(first + number, bits)
                found.append(_Act("smaller block", peer, min(each, mine[1] - each * number)))
        return found

    def _distributed(self, mine: tuple[int, int], steps: int) -> list[_Act]:
        """From the largest block to those whose part it is."""
        found: list[_Act] = []
        told = []
        part = self._elements // self._world
        if not self._larger and steps:
            whole = [part] * self._world
            for peer, count in self._parts(*mine, whole, False):
                if peer != self._rank:
                    found.append(_Act("part", peer, count))
                    told.append(_Act("part told", peer))
        sizes = [
            max(0, min(self._chunk, self._elements - chunk * self._chunk))
            for chunk in range(1 << self._steps)
        ]
        for peer, _ in self._parts(self._rank * part, part, sizes, True):
            if peer != self._rank:
                found += [_Act("part", peer), _Act("part told", peer, 1)]
        return found + told

    def _parts(
        self, offset: int, count: int, sizes: list[int], reorder: bool
    ) -> list[tuple[int, int]]:
        """(rank, elements) of those whose parts of these sizes a range of the array is."""
        found = []
        begin = 0
        for number, size in enumerate(sizes):
            low, high = max(begin, offset), min(begin + size, offset + count)
            if low < high:
                rank = _reversed_bits(number, self._steps) if reorder else number
                found.append((rank, high - low))
            begin += size
        return found


def _block_of(rank: int, world: int) -> tuple[int, int, int, int]:
    """The first rank of the rank's block, the block's size, and the sizes of the next smaller and
    the next larger block; 0 where there is none."""
    sizes = [1 << bit for bit in range(world.bit_length()) if world >> bit & 1]
    end = world
    for number, size in enumerate(sizes):
        if end - size <= rank:
            smaller = sizes[number - 1] if number else 0
            larger = sizes[number + 1] if number + 1 < len(sizes) else 0
            return end - size, size, smaller, larger
        end -= size
    raise ValueError(f"rank {rank}: there are {world}")
