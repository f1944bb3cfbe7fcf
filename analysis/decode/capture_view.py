"""The connections of every transport: two directions, and packets of these in captures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class CaptureView:
    """The packets of one direction in one capture file, in file order.

    `position` is the stream position of the first payload byte (TCP's SYN has -1), `payload_bytes`
    how many there are; `acknowledged` is the position in the *other* direction up to which the
    packet acknowledges. All arrays have shape (packets,).
    """

    file: int
    rows: Int64
    position: Int64
    payload_bytes: Int64
    acknowledged: Int64


class StreamDirection(Protocol):
    """One direction of a connection."""

    @property
    def views(self) -> Sequence[CaptureView]: ...

    @property
    def length_bytes(self) -> int:
        """Highest stream position seen."""
        ...


class Connection(Protocol):
    """A TCP connection, or two ends of a transport with packets of its own, which are `carried`;
    the first direction is its initiator's."""

    @property
    def carried(self) -> bool: ...

    @property
    def directions(self) -> tuple[StreamDirection, StreamDirection]: ...
