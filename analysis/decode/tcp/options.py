"""The TCP time stamp option (RFC 7323 section 3.2) of many packets at once."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]

_END: Final = 0
_NOP: Final = 1
_TIMESTAMPS: Final = 8
_TIMESTAMPS_BYTES: Final = 10
# Linux puts this first in every segment after the handshake: NOP, NOP, kind 8, length 10.
_USUAL_START: Final = np.array([_NOP, _NOP, _TIMESTAMPS, _TIMESTAMPS_BYTES], dtype=np.uint8)


def timestamp_options(
    options: npt.NDArray[np.uint8], room: Int64
) -> tuple[npt.NDArray[np.bool_], Int64, Int64]:
    """Presence, value and echo of the time stamp option in each packet.

    Args:
        options: shape (packets, 40), the bytes behind the fixed header.
        room: shape (packets,), how many of those are options of this packet.
    """
    count = len(room)
    where = np.full(count, -1, dtype=np.int64)
    usual = (room >= 12) & (options[:, :4] == _USUAL_START).all(axis=1)
    where[usual] = 2
    walking = np.flatnonzero(~usual & (room > 0))
    position = np.zeros(len(walking), dtype=np.int64)
    # Each round consumes at least one byte of every option list, so 40 rounds end them all.
    for _ in range(options.shape[1]):
        if not walking.size:
            break
        kind = options[walking, position]
        length = options[walking, np.minimum(position + 1, options.shape[1] - 1)].astype(np.int64)
        length = np.where(kind == _NOP, 1, length)
        left = room[walking] - position
        found = (kind == _TIMESTAMPS) & (length == _TIMESTAMPS_BYTES) & (left >= _TIMESTAMPS_BYTES)
        where[walking[found]] = position[found]
        malformed = (kind != _NOP) & ((length < 2) | (left < 2))
        on = ~found & (kind != _END) & ~malformed & (length < left)
        walking, position = walking[on], (position + length)[on]
    present = where >= 0
    value = np.zeros(count, dtype=np.int64)
    echo = np.zeros(count, dtype=np.int64)
    rows = np.flatnonzero(present)
    for target, skip in ((value, 2), (echo, 6)):
        at = where[rows] + skip
        for byte in range(4):
            target[rows] = (target[rows] << 8) | options[rows, at + byte]
    return present, value, echo
