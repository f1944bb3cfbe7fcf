"""The packets of a port that a packet capture sees, and when it sees them."""

from __future__ import annotations

import math
import socket
import struct
import time

import pytest

from testing.queue_lab import Lab, frame_ns, lab, line, payload_of, send, star

pytestmark = pytest.mark.guest

_ETH_P_ALL, _ETH_P_PAUSE = 3, 0x8808
_SO_TIMESTAMPNS = 35
_OUTGOING = 4
FRAME, RATE_BPS = 1514, 10_000_000_000


def _tap(it: Lab, node: str, interface: str) -> socket.socket:
    with it.network.enter(node):
        tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL))
    tap.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    tap.setsockopt(socket.SOL_SOCKET, 33, 1 << 28)
    tap.bind((interface, 0))
    tap.setblocking(False)
    return tap


def _seen(tap: socket.socket) -> list[tuple[int, bool, bytes]]:
    """(time in ns, outgoing, first bytes) of what was captured."""
    found: list[tuple[int, bool, bytes]] = []
    while True:
        try:
            data, control, _, address = tap.recvmsg(100, 256)
        except BlockingIOError:
            return found
        seconds, nanoseconds = struct.unpack("=qq", control[0][2])
        found.append((seconds * 10**9 + nanoseconds, address[2] == _OUTGOING, data))


def test_a_packet_is_seen_when_it_begins_to_leave_and_when_it_has_arrived() -> None:
    with lab(line(1, rate=f"{RATE_BPS}bps")) as it:
        it.udp_sink("b")
        source = it.udp_source("a", "b")
        taps = [_tap(it, "a", "a-eth0"), _tap(it, "b", "b-eth0")]
        start = time.clock_gettime_ns(time.CLOCK_REALTIME)
        send(source, 10, payload_of(FRAME))
        time.sleep(0.001)
        left, arrived = (_seen(tap) for tap in taps)
    one = frame_ns(FRAME, RATE_BPS)
    assert [t - start for t, _, _ in left] == [math.ceil(i * one - 1e-6) for i in range(10)]
    assert [t - start for t, _, _ in arrived] == [
        math.ceil((i + 1) * one - 1e-6) + 500 for i in range(10)
    ]
    assert all(outgoing for _, outgoing, _ in left)
    assert not any(outgoing for _, outgoing, _ in arrived)


def test_pause_frames_are_seen_and_have_the_standards_layout() -> None:
    queue = {"kind": "lossless", "xoff": 30_000, "xon": 20_000, "buffer": "10MB"}
    with lab(star(3, queue=queue)) as it:
        it.udp_sink("h2")
        tap = _tap(it, "s", it.context("s", "h0").port.interface)
        for source in [it.udp_source(name, "h2", tos=3 << 5) for name in ("h0", "h1")]:
            send(source, 200, payload_of(FRAME))
        time.sleep(0.001)
        frames = [data for _, outgoing, data in _seen(tap) if outgoing]
        statistics = it.statistics("s", "h0")
    pauses = [f for f in frames if f[12:14] == b"\x88\x08"]
    assert len(pauses) == statistics.xoffs_sent + statistics.xons_sent > 2
    for number, frame in enumerate(pauses):
        # IEEE 802.1Q 36.2.1: opcode, class-enable vector, a time for each class.
        opcode, classes, *times = struct.unpack_from("!HH8H", frame, 14)
        assert frame[:6].hex() == "0180c2000001" and len(frame) == 60
        assert (opcode, classes) == (0x0101, 1 << 3)
        assert times == [0, 0, 0, 0 if number % 2 else 0xFFFF, 0, 0, 0, 0]
