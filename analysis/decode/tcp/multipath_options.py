"""The options of MPTCP (RFC 8684, section 3) of many packets at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from analysis.decode.tcp.options import whole_options

Int64 = npt.NDArray[np.int64]
UInt8 = npt.NDArray[np.uint8]

_MPTCP: Final = 30
_CAPABLE, _JOIN, _DSS = range(3)
_ACK, _LONG_ACK, _MAPS, _LONG_MAP = 1, 2, 4, 8
"""Flags of a DSS option."""

_TOKEN_BYTES, _KEY_BYTES = 4, 8


@dataclass(frozen=True)
class Mappings:
    """Where packets say that their bytes are, shape (packets,). Numbers are the lower 32 bits of
    those of the connection's data; -1 where a packet does not say. `of_subflow` is the number in
    the subflow that begins at `of_data`, from 1 on, and `length` that of what is mapped. `begins`:
    the packet is the first with data, whose keys say where its bytes are."""

    of_data: Int64
    of_subflow: Int64
    length: Int64
    acknowledged: Int64
    begins: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Options:
    """The places in the bytes of each packet of its options; -1: it has none. Shape (packets,)."""

    options: UInt8
    capable: Int64
    join: Int64
    dss: Int64

    def keys(self, row: int) -> tuple[bytes, ...]:
        """The keys that a packet's MP_CAPABLE has: the sender's, and the receiver's."""
        at = int(self.capable[row])
        length = int(self.options[row, at + 1])
        text = self.options[row, at + 4 : at + min(length, 20)].tobytes()
        count = len(text) // _KEY_BYTES
        return tuple(text[i * _KEY_BYTES : (i + 1) * _KEY_BYTES] for i in range(count))

    def token(self, row: int) -> int:
        """The connection that a SYN's MP_JOIN is for, as its receiver numbers it."""
        at = int(self.join[row]) + 4
        return int.from_bytes(self.options[row, at : at + _TOKEN_BYTES].tobytes(), "big")

    def mappings(self) -> Mappings:
        """Those of all packets."""
        count = len(self.dss)
        of_data, of_subflow, length, acknowledged = (np.full(count, -1) for _ in range(4))
        rows = np.flatnonzero(self.dss >= 0)
        flags = self.options[rows, self.dss[rows] + 3].astype(np.int64)
        has_ack, has_map = flags & _ACK != 0, flags & _MAPS != 0
        # The lower 4 bytes of 8 are last.
        ack_bytes = np.where(has_ack, np.where(flags & _LONG_ACK != 0, 8, 4), 0)
        at = self.dss[rows] + 4
        acks = np.flatnonzero(has_ack)
        acknowledged[rows[acks]] = self._word(rows[acks], (at + ack_bytes - 4)[acks])
        maps = np.flatnonzero(has_map)
        at = (at + ack_bytes + np.where(flags & _LONG_MAP != 0, 8, 4))[maps]
        of_data[rows[maps]] = self._word(rows[maps], at - 4)
        of_subflow[rows[maps]] = self._word(rows[maps], at)
        length[rows[maps]] = self._word(rows[maps], at + 2) & 0xFFFF
        begins = np.zeros(count, dtype=np.bool_)
        said = np.flatnonzero(self.capable >= 0)
        begins[said] = self.options[said, self.capable[said] + 1] >= 22
        return Mappings(of_data, of_subflow, length, acknowledged, begins)

    def _word(self, rows: Int64, at: Int64) -> Int64:
        """The 32 bits from a place on in each row."""
        found = np.zeros(len(rows), dtype=np.int64)
        for byte in range(4):
            found = found << 8 | self.options[rows, at + byte]
        return found


def multipath_options(options: UInt8, room: Int64) -> Options:
    """Find them.

    Args:
        options: shape (packets, 40), the bytes behind the fixed header.
        room: shape (packets,), how many of those are options of this packet.
    """
    count = len(room)
    found = {kind: np.full(count, -1, dtype=np.int64) for kind in (_CAPABLE, _JOIN, _DSS)}
    for each in whole_options(options, room, np.arange(count)):
        subtype = options[each.rows, np.minimum(each.position + 2, options.shape[1] - 1)] >> 4
        for name, places in found.items():
            mine = (each.kind == _MPTCP) & (each.length >= 4) & (subtype == name)
            places[each.rows[mine]] = each.position[mine]
    # A row longer than any option is, so that fields are read without running past it.
    padded = np.zeros((count, options.shape[1] + 8), dtype=np.uint8)
    padded[:, : options.shape[1]] = options
    return Options(padded, found[_CAPABLE], found[_JOIN], found[_DSS])
