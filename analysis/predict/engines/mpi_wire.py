"""OpenMPI's messages on a link."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.predict.engines.wire import (
    HEADER_BYTES,
    SEGMENTS_PER_ACK,
    TCP_IP_BYTES,
    goodput_bps,
)
from topologies.ethernet import full_frame_bytes

_HEADER_BYTES = 22
"""Before the data of a message of OpenMPI: 8 of `mca_btl_tcp_hdr_t` and 14 of
`mca_pml_ob1_match_hdr_t` (btl_tcp_hdr.h, pml_ob1_hdr.h)."""


@dataclass(frozen=True, slots=True)
class MpiWire:
    """OpenMPI's messages over TCP. Nothing goes before them that is no message of its own."""

    mtu_bytes: int

    @property
    def control_bytes(self) -> int:
        """None: what is announced is followed as messages (`ObservedSchedule.compile`)."""
        return 0

    @property
    def notice_bytes(self) -> int:
        """None, too."""
        return 0

    @property
    def full_frame_bytes(self) -> int:
        """As of TCP."""
        return full_frame_bytes(self.mtu_bytes)

    def data_bytes(self, size_bytes: Any) -> Any:
        """L1 bytes of a message with all headers; scalar or array."""
        size = np.asarray(size_bytes) + _HEADER_BYTES
        return size + -(-size // (self.mtu_bytes - TCP_IP_BYTES)) * HEADER_BYTES

    def beside_bytes(self, size_bytes: Any) -> Any:
        """Acknowledgements of a message that comes in meanwhile, on average."""
        size = np.asarray(size_bytes) + _HEADER_BYTES
        packets = -(-size // (self.mtu_bytes - TCP_IP_BYTES))
        return packets / SEGMENTS_PER_ACK * HEADER_BYTES

    def cut(self, size_bytes: int) -> tuple[int, float, float]:
        """A message's header is in its first segment."""
        mss = self.mtu_bytes - TCP_IP_BYTES
        full, rest = divmod(size_bytes + _HEADER_BYTES, mss)
        return full, mss + HEADER_BYTES, rest + HEADER_BYTES if rest else 0

    def goodput_bps(self, rate_bps: int) -> float:
        """As of TCP."""
        return goodput_bps(rate_bps, self.mtu_bytes)
