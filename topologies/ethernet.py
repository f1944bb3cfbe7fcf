"""Ethernet's frames on a link."""

from __future__ import annotations

ETHERNET_HEADER_BYTES = 14
"""MAC header (IEEE 802.3): queues and captures count it, and no check sum."""

ETHERNET_BYTES = 38
"""MAC header 14, FCS 4, preamble and start of frame 8, inter-packet gap 12 (IEEE 802.3)."""


def full_frame_bytes(mtu_bytes: int) -> int:
    """L1 bytes of a full segment's frame."""
    return mtu_bytes + ETHERNET_BYTES
