"""Which message every byte of a packet belongs to.

One `Sighting` (a direction of a connection in one capture) is split over the entries of its
stream: payload bytes by stream position, a packet's headers with its first payload byte, an
acknowledgement with the last byte that it acknowledges. Nothing is left over by
construction, and `analysis.attribution` checks the sum against the file all the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from analysis.gloo_wire import PREAMBLE_BYTES
from analysis.pcap import FIN, RST, SYN, Packets
from analysis.tcp_stream import Sighting

Int64 = npt.NDArray[np.int64]

SETUP: Final = 0
"""Entry for the handshake and the hello."""
TEARDOWN: Final = 1
"""Entry for packets that close the connection."""
FIRST_MESSAGE: Final = 2
"""Entry of the first message; the others follow."""


@dataclass(frozen=True)
class Entries:
    """What one direction consists of: set-up, teardown, then its messages in order.

    Teardown has packets but no stream bytes. `bounds` and `preambles` have shape
    (entries - 1,), without it: the stream position at which each begins (set-up at 0, where
    the hello lies), and how many bytes from there are preamble.
    """

    bounds: Int64
    preambles: Int64

    @classmethod
    def of(cls, starts: list[int], whole: list[bool]) -> Entries:
        """From each message's start; `whole` is False for a gap, whose content is unknown."""
        bounds = np.array([0, *starts], dtype=np.int64)
        preambles = np.array([0, *(PREAMBLE_BYTES if w else 0 for w in whole)], dtype=np.int64)
        return cls(bounds, preambles)

    def __len__(self) -> int:
        return len(self.bounds) + 1

    def at(self, position: Int64) -> Int64:
        """Entry that holds each stream position; set-up for positions before the first."""
        return _entry(np.clip(np.searchsorted(self.bounds, position, side="right") - 1, 0, None))


def _entry(part: Int64) -> Int64:
    """Entry number of the n-th part of the stream: teardown lies between set-up and messages."""
    return part + (part > 0)


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


def split(packets: Packets, seen: Sighting, own: Entries, other: Entries) -> tuple[Int64, Int64]:
    """Divide the packets of one direction over the entries of both.

    Returns two tables of shape (len(COLUMNS), entries): what belongs to entries of this
    direction, and the acknowledgements that belong to entries of the other.
    """
    wire = packets.wire_bytes[seen.rows]
    payload = packets.payload_bytes[seen.rows]
    flags = packets.flags[seen.rows]
    # A SYN or RST carries no stream bytes, whatever its length field says.
    loaded = np.flatnonzero((payload > 0) & (flags & (SYN | RST) == 0))
    owner = np.zeros(len(wire), dtype=np.int64)
    owner[loaded] = own.at(seen.position[loaded])

    table = np.zeros((len(COLUMNS), len(own)), dtype=np.int64)
    echo = np.zeros((len(COLUMNS), len(other)), dtype=np.int64)
    for fresh, column in ((True, "data_bytes"), (False, "retransmitted_bytes")):
        start, end = _pieces(seen.position[loaded], payload[loaded], fresh)
        _spread(table, column, start, end, own, fresh)
    _add(table, "header_bytes", owner[loaded], (wire - payload)[loaded])
    _add(table, "packets", owner[loaded], np.ones(len(loaded), dtype=np.int64))

    empty = np.setdiff1d(np.arange(len(wire)), loaded, assume_unique=True)
    opening = flags[empty] & SYN != 0
    closing = (flags[empty] & (FIN | RST) != 0) & ~opening
    acknowledging = empty[~opening & ~closing]
    for entry, rows in ((SETUP, empty[opening]), (TEARDOWN, empty[closing])):
        table[COLUMNS.index("ack_bytes"), entry] += wire[rows].sum()
        table[COLUMNS.index("ack_packets"), entry] += len(rows)
    target = other.at(seen.acknowledged[acknowledging] - 1)
    _add(echo, "ack_bytes", target, wire[acknowledging])
    _add(echo, "ack_packets", target, np.ones(len(acknowledging), dtype=np.int64))
    return table, echo


def retransmitted(position: Int64, payload: Int64) -> Int64:
    """Payload bytes of each packet that an earlier one of this capture already carried."""
    again = np.zeros(len(position), dtype=np.int64)
    highest = np.maximum.accumulate(np.concatenate([[0], (position + payload)[:-1]]))
    holes: list[tuple[int, int]] = []
    for index in np.flatnonzero(position != highest).tolist():
        start, end = int(position[index]), int(position[index] + payload[index])
        top = int(highest[index])
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


def _pieces(position: Int64, payload: Int64, fresh: bool) -> tuple[Int64, Int64]:
    """Start and end of the bytes of each packet that were new, or that were repeated.

    A packet that is partly new is taken to repeat its beginning, as a retransmission that
    was merged with new data does; only the count per packet is exact in other cases.
    """
    again = np.minimum(retransmitted(position, payload), payload)
    if fresh:
        start, end = position + again, position + payload
    else:
        start, end = position, position + again
    some = end > start
    return start[some], end[some]


def _spread(
    table: Int64, column: str, start: Int64, end: Int64, entries: Entries, fresh: bool
) -> None:
    """Add byte ranges to the entries that they cross, preambles apart where they are new."""
    if not start.size:
        return
    bounds = entries.bounds
    first = np.clip(np.searchsorted(bounds, start, side="right") - 1, 0, None)
    last = np.maximum(np.searchsorted(bounds, end, side="left") - 1, first)
    count = last - first + 1
    piece = np.repeat(np.arange(len(start)), count)
    offset = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    part = first[piece] + offset
    low = np.where(offset == 0, start[piece], bounds[part])
    high = np.minimum(end[piece], np.append(bounds[1:], np.iinfo(np.int64).max)[part])
    size = np.maximum(high - low, 0)
    if fresh:
        cut = bounds[part] + entries.preambles[part]
        ahead = np.clip(np.minimum(high, cut) - low, 0, None)
        _add(table, "preamble_bytes", _entry(part), ahead)
        size = size - ahead
    _add(table, column, _entry(part), size)


def _add(table: Int64, column: str, entry: Int64, amount: Int64) -> None:
    sums = np.bincount(entry, weights=amount, minlength=table.shape[1])
    table[COLUMNS.index(column)] += sums.astype(np.int64)
