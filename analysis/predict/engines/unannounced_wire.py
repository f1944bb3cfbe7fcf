"""Messages that nobody announces on a link: OpenMPI's, and those of Gloo's older algorithms."""

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


@dataclass(frozen=True, slots=True)
class UnannouncedWire:
    """Messages over TCP. Nothing goes before them but their `header_bytes`."""

    mtu_bytes: int
    header_bytes: int

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
        size = np.asarray(size_bytes) + self.header_bytes
        return size + -(-size // (self.mtu_bytes - TCP_IP_BYTES)) * HEADER_BYTES

    def beside_bytes(self, size_bytes: Any) -> Any:
        """Acknowledgements of a message that comes in meanwhile, on average."""
        size = np.asarray(size_bytes) + self.header_bytes
        packets = -(-size // (self.mtu_bytes - TCP_IP_BYTES))
        return packets / SEGMENTS_PER_ACK * HEADER_BYTES

    def sides(self, size_bytes: int) -> tuple[int, int]:
        """Acknowledgements."""
        return 0, int(self.beside_bytes(size_bytes))

    @property
    def least_frame_bytes(self) -> int:
        """With one byte."""
        return HEADER_BYTES + 1

    @property
    def completed_by_bytes(self) -> int | None:
        """None: by the socket."""
        return None

    def cut(self, size_bytes: int) -> tuple[int, float, float]:
        """A message's header is in its first segment."""
        mss = self.mtu_bytes - TCP_IP_BYTES
        full, rest = divmod(size_bytes + self.header_bytes, mss)
        return full, mss + HEADER_BYTES, rest + HEADER_BYTES if rest else 0

    def goodput_bps(self, rate_bps: int) -> float:
        """As of TCP."""
        return goodput_bps(rate_bps, self.mtu_bytes)
