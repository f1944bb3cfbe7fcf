"""The IPv6 headers that wrap IPv4 packets (SRv6), of many packets at once."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from topologies.ethernet import ETHERNET_HEADER_BYTES

Int64 = npt.NDArray[np.int64]

_ETHERTYPE_IPV6: Final = 0x86DD
# Next headers: an IPv4 packet, and a routing header (IANA, "Assigned Internet Protocol Numbers").
_IPV4, _ROUTING = 4, 43
_SEGMENTS: Final = 4
"""The type of a routing header that has segments (RFC 8754 section 2)."""

_FIXED_BYTES, _ROUTING_BYTES = 40, 8
# Places in a frame: of the fixed header (RFC 8200 section 3), and of a routing header behind it.
_AT_CLASS, _AT_NEXT = ETHERNET_HEADER_BYTES, ETHERNET_HEADER_BYTES + 6
_AT_ROUTING = ETHERNET_HEADER_BYTES + _FIXED_BYTES


def outer_headers(
    data: npt.NDArray[np.uint8], offset: Int64, captured: Int64, ethertype: npt.NDArray[np.uint16]
) -> tuple[Int64, Int64]:
    """The bytes of the IPv6 headers that wrap an IPv4 packet, 0 where none do, and their traffic
    class; shape (packets,).

    Args:
        data: the file, with some bytes behind it.
        offset: shape (packets,), where each frame begins in it.
        captured: shape (packets,), how many bytes of each are there.
        ethertype: shape (packets,).
    """
    outer, traffic_class = np.zeros_like(offset), np.zeros_like(offset)
    rows = np.flatnonzero((ethertype == _ETHERTYPE_IPV6) & (captured >= _AT_ROUTING))
    if not rows.size:
        return outer, traffic_class
    at = offset[rows]
    start = data[at + _AT_CLASS].astype(np.int64)
    following = data[at + _AT_NEXT]
    has_list = (
        (following == _ROUTING)
        & (captured[rows] >= _AT_ROUTING + _ROUTING_BYTES)
        & (data[at + _AT_ROUTING + 2] == _SEGMENTS)
    )
    units = data[at + _AT_ROUTING + 1].astype(np.int64) + 1
    following = np.where(has_list, data[at + _AT_ROUTING], following)
    is_wrapped = (start >> 4 == 6) & (following == _IPV4)
    length = _FIXED_BYTES + np.where(has_list, units * 8, 0)
    outer[rows] = np.where(is_wrapped, length, 0)
    low = data[at + _AT_CLASS + 1].astype(np.int64) >> 4
    traffic_class[rows] = np.where(is_wrapped, (start & 15) << 4 | low, 0)
    return outer, traffic_class
