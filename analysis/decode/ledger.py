"""The table of attributed bytes: one row per message (or other purpose) and capture file."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Final

import numpy as np
import numpy.typing as npt

from analysis.decode.byte_ledger import COLUMNS
from analysis.decode.gloo.wire_format import Opcode

Int64 = npt.NDArray[np.int64]

BYTE_COLUMNS: Final = COLUMNS[:5]

FACTS: Final = (
    "purpose", "collective", "prefix", "tag", "delta", "step", "position", "end", "start_ns"
)  # fmt: skip
"""Columns of a ledger that say what a row's bytes are."""


class Purpose(IntEnum):
    """The purpose of bytes of a data connection; those below SET_UP belong to a collective."""

    DATA = 0
    SEND_READY = 1
    RECV_READY = 2
    SET_UP = 3
    TEARDOWN = 4
    UNATTRIBUTED = 5
    CONGESTION_NOTIFICATION = 6

    @classmethod
    def of(cls, opcode: Opcode) -> Purpose:
        """Purpose of a message."""
        if opcode is Opcode.NOTIFY_SEND_READY:
            return cls.SEND_READY
        return cls.RECV_READY if opcode is Opcode.NOTIFY_RECV_READY else cls.DATA


@dataclass(frozen=True)
class Ledger:
    """Attributed bytes; all arrays have shape (rows,).

    `purpose` is a `Purpose`. `collective` indexes `Attribution.collectives` (-1: not in the
    log); `prefix`, `tag` and `delta` are -1 for set-up, teardown and unattributed parts;
    `step` numbers the messages of one purpose and slot in one direction; `position` and `end`
    are a message's place in its direction's stream. `primary` marks the rows to add up for the
    bytes that were sent, where several captures saw the same packets.
    """

    file: Int64
    connection: Int64
    direction: Int64
    purpose: Int64
    collective: Int64
    prefix: Int64
    tag: Int64
    delta: Int64
    step: Int64
    position: Int64
    end: Int64
    start_ns: Int64
    primary: npt.NDArray[np.bool_]
    counts: Int64
    """Shape (len(COLUMNS), rows)."""

    def __len__(self) -> int:
        return len(self.file)

    def __add__(self, other: Ledger) -> Ledger:
        """The rows of both."""
        return Ledger(
            *(
                np.concatenate([getattr(self, each.name), getattr(other, each.name)], axis=-1)
                for each in fields(self)
            )
        )

    @property
    def wire_bytes(self) -> Int64:
        """Bytes on the wire of each row: the sum of its byte columns."""
        total: Int64 = self.counts[: len(BYTE_COLUMNS)].sum(axis=0)
        return total

    def column(self, name: str) -> Int64:
        """One of `analysis.decode.byte_ledger.COLUMNS`."""
        values: Int64 = self.counts[COLUMNS.index(name)]
        return values
