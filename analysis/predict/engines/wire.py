"""Bytes that Gloo's messages take on a link: payload, headers, rendezvous, acknowledgements."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

PREAMBLE_BYTES = 48
"""Six little-endian u64 before each Gloo message (gloo/transport/tcp/pair.h, Op::preamble)."""

TCP_IP_BYTES = 52
"""IPv4 20, TCP 20, timestamps 12 (RFC 791, 9293, 7323)."""

ETHERNET_BYTES = 38
"""MAC header 14, FCS 4, preamble and start of frame 8, inter-packet gap 12 (IEEE 802.3)."""

HEADER_BYTES = TCP_IP_BYTES + ETHERNET_BYTES
CONTROL_BYTES = PREAMBLE_BYTES + HEADER_BYTES
"""A SEND_READY or RECV_READY notification: a preamble in a segment of its own (TCP_NODELAY)."""

SEGMENTS_PER_ACK = 2
"""A receiver acknowledges at least every second full segment (RFC 5681 section 4.2)."""


def packets(size_bytes: Any, mtu_bytes: int) -> Any:
    """TCP segments of a Gloo message of `size_bytes` of payload; scalar or array."""
    mss = mtu_bytes - TCP_IP_BYTES
    return -((-np.asarray(size_bytes) - PREAMBLE_BYTES) // mss)


def data_bytes(size_bytes: Any, mtu_bytes: int) -> Any:
    """L1 bytes that the payload, its preamble and all headers take on a link; scalar or array."""
    size = np.asarray(size_bytes)
    return size + PREAMBLE_BYTES + packets(size, mtu_bytes) * HEADER_BYTES


def full_frame_bytes(mtu_bytes: int) -> int:
    """L1 bytes of a full segment's frame."""
    return mtu_bytes + ETHERNET_BYTES


def goodput_bps(rate_bps: int, mtu_bytes: int) -> float:
    """Highest TCP payload rate of a link: R * (MTU - 52) / (MTU + 38)."""
    return rate_bps * (mtu_bytes - TCP_IP_BYTES) / (mtu_bytes + ETHERNET_BYTES)
