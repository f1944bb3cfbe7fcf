"""Bytes that Gloo's messages take on a link: payload, headers, rendezvous, acknowledgements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from collectives.schedule.gloo import PREAMBLE_BYTES
from topologies.ethernet import ETHERNET_BYTES, full_frame_bytes

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

TCP_IP_BYTES = 52
"""IPv4 20, TCP 20, timestamps 12 (RFC 791, 9293, 7323)."""

HEADER_BYTES = TCP_IP_BYTES + ETHERNET_BYTES
CONTROL_BYTES = PREAMBLE_BYTES + HEADER_BYTES
"""A SEND_READY or RECV_READY notification: a preamble in a segment of its own (TCP_NODELAY)."""

SEGMENTS_PER_ACK = 2
"""A receiver acknowledges at least every second full segment (RFC 5681 section 4.2)."""


def packets(size_bytes: Any, mtu_bytes: int, outer_bytes: int = 0) -> Any:
    """TCP segments of a Gloo message of `size_bytes` of payload; scalar or array. `outer_bytes` are
    those of what wraps each packet."""
    mss = mtu_bytes - TCP_IP_BYTES - outer_bytes
    return -((-np.asarray(size_bytes) - PREAMBLE_BYTES) // mss)


def data_bytes(size_bytes: Any, mtu_bytes: int, outer_bytes: int = 0) -> Any:
    """L1 bytes that the payload, its preamble and all headers take on a link; scalar or array."""
    size = np.asarray(size_bytes)
    headers = packets(size, mtu_bytes, outer_bytes) * (HEADER_BYTES + outer_bytes)
    return size + PREAMBLE_BYTES + headers


def goodput_bps(rate_bps: int, mtu_bytes: int, outer_bytes: int = 0) -> float:
    """Highest TCP payload rate of a link: R * (MTU - 52 - outer) / (MTU + 38)."""
    return rate_bps * (mtu_bytes - TCP_IP_BYTES - outer_bytes) / (mtu_bytes + ETHERNET_BYTES)


class Wire(Protocol):
    """How messages lie on a link; sizes are scalars or arrays."""

    @property
    def control_bytes(self) -> int:
        """L1 bytes of what a receiver tells the sender before a message."""
        ...

    @property
    def notice_bytes(self) -> int:
        """L1 bytes that leave a port with a message beside it and its acknowledgements."""
        ...

    @property
    def full_frame_bytes(self) -> int:
        """L1 bytes of a full segment's frame."""
        ...

    def data_bytes(self, size_bytes: Any) -> Any:
        """L1 bytes of a message with all headers."""
        ...

    def beside_bytes(self, size_bytes: Any) -> Any:
        """L1 bytes that a message of this size, which comes in meanwhile, sends out."""
        ...

    def sides(self, size_bytes: int) -> tuple[int, int]:
        """L1 bytes beside a message, the way that it goes and back."""
        ...

    @property
    def least_frame_bytes(self) -> int:
        """L1 bytes of the shortest last segment."""
        ...

    @property
    def completed_by_bytes(self) -> int | None:
        """L1 bytes of the acknowledgement that completes a send, where acknowledgements are
        followed one by one; None where a send is complete once the socket has it, and they are
        counted on average."""
        ...

    def cut(self, size_bytes: int) -> tuple[int, float, float]:
        """Full segments of a message, the L1 bytes of each, and those of a shorter last one."""
        ...

    def goodput_bps(self, rate_bps: int) -> float:
        """Highest rate of data of a link."""
        ...


@dataclass(frozen=True, slots=True)
class TcpWire:
    """Messages over TCP, each behind `header_bytes` of its own. `outer_bytes` are those of what
    wraps each packet."""

    mtu_bytes: int
    header_bytes: int = PREAMBLE_BYTES
    outer_bytes: int = 0

    @property
    def segment_bytes(self) -> int:
        """The most payload of a packet."""
        return self.mtu_bytes - TCP_IP_BYTES - self.outer_bytes

    @property
    def packet_bytes(self) -> int:
        """L1 bytes of a packet without payload."""
        return HEADER_BYTES + self.outer_bytes

    @property
    def full_frame_bytes(self) -> int:
        """As of `full_frame_bytes`."""
        return full_frame_bytes(self.mtu_bytes)

    @property
    def least_frame_bytes(self) -> int:
        """With one byte."""
        return self.packet_bytes + 1

    @property
    def completed_by_bytes(self) -> int | None:
        """None: by the socket."""
        return None

    def cut(self, size_bytes: int) -> tuple[int, float, float]:
        """A message's header is in its first segment."""
        mss, headers = self.segment_bytes, self.packet_bytes
        full, rest = divmod(size_bytes + self.header_bytes, mss)
        return full, mss + headers, rest + headers if rest else 0

    def goodput_bps(self, rate_bps: int) -> float:
        """As of `goodput_bps`."""
        return goodput_bps(rate_bps, self.mtu_bytes, self.outer_bytes)


@dataclass(frozen=True, slots=True)
class GlooWire(TcpWire):
    """Gloo's messages, whose header is a preamble."""

    @property
    def control_bytes(self) -> int:
        """A RECV_READY."""
        return CONTROL_BYTES + self.outer_bytes

    @property
    def notice_bytes(self) -> int:
        """A message's SEND_READY, and the RECV_READY of one that comes in."""
        return 2 * self.control_bytes

    def data_bytes(self, size_bytes: Any) -> Any:
        """As of `data_bytes`."""
        return data_bytes(size_bytes, self.mtu_bytes, self.outer_bytes)

    def beside_bytes(self, size_bytes: Any) -> Any:
        """Acknowledgements, on average: they are of a connection's bytes and not of messages."""
        segments = packets(size_bytes, self.mtu_bytes, self.outer_bytes)
        return segments / SEGMENTS_PER_ACK * self.packet_bytes

    def sides(self, size_bytes: int) -> tuple[int, int]:
        """Two notifications, and acknowledgements of every second segment."""
        return self.control_bytes, self.control_bytes + int(self.beside_bytes(size_bytes))
