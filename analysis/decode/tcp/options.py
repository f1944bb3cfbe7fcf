"""TCP's options (RFC 9293 section 3.1) of many packets at once, and its time stamp option (RFC 7323
section 3.2)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]
UInt8 = npt.NDArray[np.uint8]

_END: Final = 0
_NOP: Final = 1
_TIMESTAMPS: Final = 8
_TIMESTAMPS_BYTES: Final = 10
# Linux puts this first in every segment after the handshake: NOP, NOP, kind 8, length 10.
_USUAL_START: Final = np.array([_NOP, _NOP, _TIMESTAMPS, _TIMESTAMPS_BYTES], dtype=np.uint8)


class WholeOptions(NamedTuple):
    """An option of each of some packets: the packets' rows, where it begins in their options, its
    kind, and its length, kind and length included."""

    rows: Int64
    position: Int64
    kind: UInt8
    length: Int64


def whole_options(options: UInt8, room: Int64, rows: Int64) -> Iterator[WholeOptions]:
    """The options of packets in order: the first of each, then the second of those that have one,
    and so on. A list ends at its end, and before an option that is not whole.

    Args:
        options: shape (packets, 40), the bytes behind the fixed header.
        room: shape (packets,), how many of those are options of this packet.
        rows: the packets to look at.
    """
    rows = rows[room[rows] > 0]
    position = np.zeros(len(rows), dtype=np.int64)
    # Each round consumes at least one byte of every option list, so 40 rounds end them all.
    for _ in range(options.shape[1]):
        if not rows.size:
            return
        kind = options[rows, position]
        length = options[rows, np.minimum(position + 1, options.shape[1] - 1)].astype(np.int64)
        length = np.where(kind == _NOP, 1, length)
        left = room[rows] - position
        whole = (kind != _END) & ((kind == _NOP) | (length >= 2)) & (length <= left)
        yield WholeOptions(rows[whole], position[whole], kind[whole], length[whole])
        on = whole & (length < left)
        rows, position = rows[on], (position + length)[on]


def timestamp_options(options: UInt8, room: Int64) -> tuple[npt.NDArray[np.bool_], Int64, Int64]:
    """Presence, value and echo of the time stamp option in each packet; of several the first.

    Args:
        options: shape (packets, 40), the bytes behind the fixed header.
        room: shape (packets,), how many of those are options of this packet.
    """
    count = len(room)
    where = np.full(count, -1, dtype=np.int64)
    usual = (room >= 12) & (options[:, :4] == _USUAL_START).all(axis=1)
    where[usual] = 2
    for each in whole_options(options, room, np.flatnonzero(~usual)):
        found = (each.kind == _TIMESTAMPS) & (each.length == _TIMESTAMPS_BYTES)
        found &= where[each.rows] < 0
        where[each.rows[found]] = each.position[found]
    present = where >= 0
    value = np.zeros(count, dtype=np.int64)
    echo = np.zeros(count, dtype=np.int64)
    rows = np.flatnonzero(present)
    for target, skip in ((value, 2), (echo, 6)):
        at = where[rows] + skip
        for byte in range(4):
            target[rows] = (target[rows] << 8) | options[rows, at + byte]
    return present, value, echo
