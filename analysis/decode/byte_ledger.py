"""The message that every byte of a packet belongs to.

Every `CaptureView` (a direction of a connection in one capture) is split over the entries of
its stream: payload bytes by stream position, a packet's headers with its first payload byte, an
acknowledgement with the last byte that it acknowledges. Nothing is left over by construction, and
`analysis.decode.attribution` checks the sum against the file all the same.

A run has tens of thousands of views of a few packets each: all are split at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from analysis.decode.capture_view import CaptureView
from analysis.decode.segmented import SortedSegments, highest_before, offsets_of
from analysis.decode.tcp.pcap import FIN, RST, SYN, Packets

Int64 = npt.NDArray[np.int64]

SETUP: Final = 0
"""Entry for the handshake and the hello."""
TEARDOWN: Final = 1
"""Entry for packets that close the connection; those of the messages follow."""

COLUMNS: Final = (
    "data_bytes",
    "preamble_bytes",
    "retransmitted_bytes",
    "header_bytes",
    "ack_bytes",
    "packets",
    "ack_packets",
)
"""Disjoint byte counts (their sum is the frames' length), then counts of packets.

`data_bytes` and `preamble_bytes` are payload seen for the first time at this capture,
`retransmitted_bytes` payload seen before. `header_bytes` are all headers of the packets
whose first payload byte lies in the entry; `ack_bytes` whole packets without payload.
"""


class Entries:
    """The parts of the directions of connections: each of set-up, teardown, then its messages.

    Directions are numbered: that of connection n from its initiator is 2 n, the other 2 n + 1.
    Entries are numbered through all of them; direction d begins with entry `first[d]`.

    Teardown has packets but no stream bytes. The others are the parts of a stream: `bounds` has
    the stream position at which each begins (set-up at 0, where the hello lies), `preambles` how
    many bytes from there are preamble, `sizes` how many parts each direction has.
    """

    def __init__(self, bounds: Int64, preambles: Int64, sizes: Int64) -> None:
        self._preambles = preambles
        self._parts = offsets_of(sizes)
        self._bounds = bounds
        count = len(sizes)
        self._sorted = SortedSegments(bounds, np.repeat(np.arange(count), sizes), count)
        self._next = np.append(bounds[1:], 0)
        self._next[self._parts + sizes - 1] = np.iinfo(np.int64).max
        self.first: Int64 = self._parts + np.arange(count)
        self.sizes: Int64 = sizes + 1

    def at(self, direction: Int64, position: Int64) -> Int64:
        """Entry that holds each stream position; set-up for positions before the first."""
        return self._entry(direction, self._search(direction, position, "right"))

    def _search(
        self, direction: Int64, position: Int64, side: Literal["left", "right"]
    ) -> npt.NDArray[np.intp]:
        """The last part that begins at each position or before it (right), or before it (left);
        the first where there is none."""
        found = self._sorted.find(direction, position, side) - 1
        return np.maximum(found, self._parts[direction])

    def _entry(self, direction: Int64, part: npt.NDArray[np.intp]) -> Int64:
        """Teardown lies between set-up and the messages."""
        entry: Int64 = part + direction + (part > self._parts[direction])
        return entry

    def cut(self, direction: Int64, start: Int64, end: Int64) -> tuple[Int64, Int64, Int64, Int64]:
        """Byte ranges of streams, none of them empty, cut where entries begin: for each piece the
        range that it is of, its entry, and how many bytes of preamble and of data it has."""
        first = self._search(direction, start, "right")
        last = np.maximum(self._search(direction, end, "left"), first)
        count = last - first + 1
        piece = np.repeat(np.arange(len(start)), count)
        offset = np.arange(count.sum()) - np.repeat(offsets_of(count), count)
        part = first[piece] + offset
        low = np.where(offset == 0, start[piece], self._bounds[part])
        high = np.minimum(end[piece], self._next[part])
        preamble = np.clip(
            np.minimum(high, self._bounds[part] + self._preambles[part]) - low, 0, None
        )
        data = np.maximum(high - low, 0) - preamble
        return piece, self._entry(direction[piece], part), preamble, data


@dataclass(frozen=True)
class Shares:
    """The shares of entries in views, a row for each entry and view that have something in
    common, in order of views; within one, first the entries of its own direction, then those
    of the other, whose bytes it acknowledges. Shape (rows,), `counts` (len(COLUMNS), rows)."""

    view: Int64
    direction: Int64
    entry: Int64
    counts: Int64


def split(
    files: Sequence[Packets],
    views: Sequence[CaptureView],
    directions: Int64,
    entries: Entries,
) -> Shares:
    """Divide the packets of `views`, of the given directions, over entries."""
    # Each view has a block of rows for its own direction and one for the other.
    block_direction = np.stack([directions, directions ^ 1], axis=1).ravel()
    block_size = entries.sizes[block_direction]
    block = offsets_of(block_size)
    table = np.zeros((len(COLUMNS), int(block_size.sum())), dtype=np.int64)

    def add(column: str, echo: int, view: Int64, entry: Int64, amount: Int64 | None = None) -> None:
        at = 2 * view + echo
        row = block[at] + entry - entries.first[block_direction[at]]
        sums = np.bincount(row, weights=amount, minlength=table.shape[1])
        table[COLUMNS.index(column)] += sums.astype(np.int64)

    seen, wire, payload, flags = _packets(files, views)
    position = _joined([each.position for each in views])
    direction = directions[seen]
    # A SYN or RST carries no stream bytes, whatever its length field says.
    carries = (payload > 0) & (flags & (SYN | RST) == 0)
    loaded = np.flatnonzero(carries)
    owner = entries.at(direction[loaded], position[loaded])
    add("header_bytes", 0, seen[loaded], owner, (wire - payload)[loaded])
    add("packets", 0, seen[loaded], owner)

    # A packet that is partly new is taken to repeat its beginning, as a retransmission that
    # was merged with new data does; only the count per packet is exact in other cases.
    begin, end = position[loaded], (position + payload)[loaded]
    fresh = begin + np.minimum(repeated_bytes(begin, end, seen[loaded]), end - begin)
    new, again = np.flatnonzero(end > fresh), np.flatnonzero(fresh > begin)
    piece, entry, preamble, data = entries.cut(direction[loaded][new], fresh[new], end[new])
    add("preamble_bytes", 0, seen[loaded][new][piece], entry, preamble)
    add("data_bytes", 0, seen[loaded][new][piece], entry, data)
    piece, entry, preamble, data = entries.cut(direction[loaded][again], begin[again], fresh[again])
    add("retransmitted_bytes", 0, seen[loaded][again][piece], entry, preamble + data)

    opening = ~carries & (flags & SYN != 0)
    closing = ~carries & ~opening & (flags & (FIN | RST) != 0)
    for local, chosen in ((SETUP, np.flatnonzero(opening)), (TEARDOWN, np.flatnonzero(closing))):
        at = entries.first[direction[chosen]] + local
        add("ack_bytes", 0, seen[chosen], at, wire[chosen])
        add("ack_packets", 0, seen[chosen], at)
    answers = np.flatnonzero(~carries & ~opening & ~closing)
    acknowledged = _joined([each.acknowledged for each in views])[answers]
    target = entries.at(direction[answers] ^ 1, acknowledged - 1)
    add("ack_bytes", 1, seen[answers], target, wire[answers])
    add("ack_packets", 1, seen[answers], target)

    used = np.flatnonzero(table.any(axis=0))
    number = np.searchsorted(block, used, side="right") - 1
    return Shares(
        number // 2,
        block_direction[number],
        used - block[number] + entries.first[block_direction[number]],
        table[:, used],
    )


def _packets(
    files: Sequence[Packets], views: Sequence[CaptureView]
) -> tuple[Int64, Int64, Int64, Int64]:
    """All packets of all views: the view, bytes on the wire, of payload, and flags."""
    begins = offsets_of(np.array([len(packets) for packets in files], dtype=np.int64))
    counts = [len(each.rows) for each in views]
    seen = np.repeat(np.arange(len(views)), counts)
    file = np.array([each.file for each in views], dtype=np.int64)
    row = _joined([each.rows for each in views]) + begins[file][seen]
    return (
        seen,
        _joined([packets.wire_bytes for packets in files])[row],
        _joined([each.payload_bytes for each in views]),
        _joined([packets.flags for packets in files])[row],
    )


def _joined(arrays: Sequence[Int64]) -> Int64:
    return np.concatenate([np.zeros(0, dtype=np.int64), *arrays])


def repeated_bytes(start: Int64, end: Int64, view: Int64) -> Int64:
    """Bytes of each packet's payload that an earlier packet of its view carried already. `view` has
    the ascending number of each one's view."""
    again = np.zeros(len(start), dtype=np.int64)
    top = highest_before(end, view, 0)
    # Where every packet goes on where the one before it ended, nothing is repeated.
    disorder = np.unique(view[start != top])
    low, high = (np.searchsorted(view, disorder, side) for side in ("left", "right"))
    for rows in map(slice, low.tolist(), high.tolist()):
        again[rows] = _repeated_in_one(start[rows], end[rows], top[rows])
    return again


def _repeated_in_one(starts: Int64, ends: Int64, tops: Int64) -> Int64:
    again = np.zeros(len(starts), dtype=np.int64)
    holes: list[tuple[int, int]] = []
    for index in np.flatnonzero(starts != tops).tolist():
        start, end, top = int(starts[index]), int(ends[index]), int(tops[index])
        if start > top:
            holes.append((top, start))
            continue
        filled = 0
        left: list[tuple[int, int]] = []
        for low, high in holes:
            cut = max(0, min(end, high) - max(start, low))
            filled += cut
            if not cut:
                left.append((low, high))
                continue
            left += [part for part in ((low, start), (end, high)) if part[0] < part[1]]
        holes = left
        again[index] = min(end, top) - start - filled
    return again
