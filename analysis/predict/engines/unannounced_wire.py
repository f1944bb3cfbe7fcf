"""Messages without an announcement on a link: OpenMPI's, and those of Gloo's older algorithms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.predict.engines.wire import SEGMENTS_PER_ACK, TcpWire


@dataclass(frozen=True, slots=True)
class UnannouncedWire(TcpWire):
    """Messages before which nothing goes but their headers."""

    @property
    def control_bytes(self) -> int:
        """None: what is announced is followed as messages (`ObservedSchedule.compile`)."""
        return 0

    @property
    def notice_bytes(self) -> int:
        """None, too."""
        return 0

    def data_bytes(self, size_bytes: Any) -> Any:
        """L1 bytes of a message with all headers; scalar or array."""
        size = np.asarray(size_bytes) + self.header_bytes
        return size + -(-size // self.segment_bytes) * self.packet_bytes

    def beside_bytes(self, size_bytes: Any) -> Any:
        """Acknowledgements of a message that comes in meanwhile, on average."""
        size = np.asarray(size_bytes) + self.header_bytes
        packets = -(-size // self.segment_bytes)
        return packets / SEGMENTS_PER_ACK * self.packet_bytes

    def sides(self, size_bytes: int) -> tuple[int, int]:
        """Acknowledgements."""
        return 0, int(self.beside_bytes(size_bytes))
