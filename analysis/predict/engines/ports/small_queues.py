"""How much of a TCP connection waits in its host's port: Linux's "TCP small queues".

`tcp_small_queue_check` (net/ipv4/tcp_output.c of Linux 6.12) lets a connection have as much in its
port as it sends in 1/1024 s, but two segments at least and `tcp_limit_output_bytes` at most. Each
packet that leaves lets the next one in.
"""

from __future__ import annotations

LIMIT_BYTES = 1 << 20
"""net.ipv4.tcp_limit_output_bytes, Linux's default (tcp_sk_init in net/ipv4/tcp_ipv4.c)."""

SEGMENT_OVERHEAD_BYTES = 768
"""The bytes that a queued segment counts beyond its payload: struct sk_buff with its head,
SKB_TRUESIZE."""

_PACED_NS = 1e9 / 1024
"""sk_pacing_shift is 10."""

_PACING_RATIO = 2.0
"""net.ipv4.tcp_pacing_ss_ratio: in slow start, which only a loss or a mark ends, a connection paces
by so much more than it sends."""


def queued_segments(
    segment_bytes: int, bytes_per_ns: float, marked_from_bytes: int | None = None
) -> int:
    """Full segments that a connection over a link of `bytes_per_ns` has in its host's port, at
    most. The connection is taken to have the link for itself. Where the link's port marks and the
    sender heeds each mark (DCTCP), its window keeps no more under way than the port marks from."""
    paced_bytes = max(0.0, bytes_per_ns) * _PACED_NS * _PACING_RATIO
    counted_bytes = segment_bytes + SEGMENT_OVERHEAD_BYTES
    segments = 1 + int(min(LIMIT_BYTES, paced_bytes)) // counted_bytes
    if marked_from_bytes is not None:
        segments = min(segments, 1 + marked_from_bytes // counted_bytes)
    return max(2, segments)
