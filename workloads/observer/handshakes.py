"""Round trips that TCP measured when it connected two ranks."""

from __future__ import annotations

import struct
from typing import NamedTuple

_PACE = 80_000 * 200
"""tcp_update_pacing_rate: 2 * 2^3 * 10^6 bytes of a segment over eighths of the smoothed round trip
in microseconds, while the window is below half of ssthresh."""


_BBR_UNIT, _BBR_GAIN, _BBR_MARGIN = 1 << 24, 739, 990_000
"""net/ipv4/tcp_bbr.c: BW_UNIT, bbr_high_gain in 256ths, and a microsecond's bytes a second, less
bbr_pacing_margin_percent."""


class Handshake(NamedTuple):
    """Round trips in microseconds: of the handshake, and of the greeting's acknowledgement, at the
    end that connected; None where it had not come, where the end listened, or where nothing tells
    of it."""

    handshake_us: int
    greeting_us: int | None


def handshake_of(info: bytes, connected: bool) -> Handshake:
    """From struct tcp_info (include/uapi/linux/tcp.h). It has the smoothed round trip in whole
    microseconds; its eighths are what the pacing rate goes by."""
    segment_bytes, unacked = (struct.unpack_from("=I", info, at)[0] for at in (16, 24))
    rtt_us, cwnd, least_us = (struct.unpack_from("=I", info, at)[0] for at in (68, 80, 148))
    (rate,) = struct.unpack_from("=Q", info, 104)
    if not connected or unacked or not rate:
        return Handshake(rtt_us, None)
    for first in range(max(1, least_us), 8 * (rtt_us + 1) // 7 + 1):
        # BBR's pace is that of the handshake's round trip, and its window may have grown by one.
        if rate in (_pace_of_bbr(segment_bytes, each, first) for each in (cwnd, cwnd - 1)):
            return Handshake(first, least_us if least_us < first else None)
    eighths = next(
        (
            each
            for each in range(8 * rtt_us, 8 * rtt_us + 8)
            if each and segment_bytes * _PACE * cwnd // each == rate
        ),
        8 * rtt_us,
    )
    # Round trips below a microsecond are 0, of which the least is a jiffy and the smoothed one an
    # eighth of a microsecond (tcp_update_rtt_min, tcp_rtt_estimator).
    if eighths == 1:
        return Handshake(0, 0)
    if eighths == 1 + least_us:
        return Handshake(0, least_us)
    if eighths == 7 * least_us:
        return Handshake(least_us, 0)
    # The first one counts 7 eighths then, the second one 1; the least is one of both.
    first, left = divmod(eighths - least_us, 7)
    if left == 0 and first > least_us:
        return Handshake(first, least_us)
    return Handshake(least_us, max(least_us, eighths - 7 * least_us))


def unacknowledged(info: bytes) -> bool:
    """Whether a connection has sent segments that are not acknowledged, by its struct tcp_info."""
    return bool(info) and struct.unpack_from("=I", info, 24)[0] > 0


def _pace_of_bbr(segment_bytes: int, cwnd: int, rtt_us: int) -> int:
    """As of bbr_init_pacing_rate_from_rtt, in bytes a second."""
    bandwidth = cwnd * _BBR_UNIT // rtt_us
    return ((bandwidth * segment_bytes * _BBR_GAIN >> 8) * _BBR_MARGIN) >> 24


def sent_segments(info: bytes) -> int:
    """How many segments with data a connection has sent, of its struct tcp_info."""
    (found,) = struct.unpack_from("=I", info, 156)
    return int(found)
