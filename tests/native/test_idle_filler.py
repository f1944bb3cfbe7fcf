"""The first frame of an idle port takes as long as its link needs for it."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from emulator.capture.packet_filter import PacketFilter
from emulator.linux.real_time import real_time_priority
from emulator.native.kernel import can_watch_ports
from emulator.network.network import Network
from emulator.ports.idle_filler import FILLER_ETHERTYPE, _Word
from emulator.ports.port_watch import port_number
from tests.native.native_fabrics import flat, network
from tests.native.native_traffic import UDP, counters_when, open_socket
from tests.native.own_pace import believed

pytestmark = pytest.mark.skipif(not can_watch_ports(), reason="this kernel has no eBPF classifiers")
_RATE_BPS = 10_000_000
_ALL_PROTOCOLS = 3  # ETH_P_ALL
_BETWEEN_L1_AND_PAYLOAD = 24 + 14 + 20 + 8
_PERIOD_S, _PERIODS = 0.0034, 300
"""The period of a stream that takes three quarters of a link: its ports are never idle for as long
as fills a bucket."""
_TRIES = 5
_WAKES = 3
"""The timers of two ports and the receiver. A virtual machine wakes each some 0.1 ms late."""
_WAITING = 20
_TIMERS = 0.02
"""The share of a time that a rate in whole bytes, and clocks that are read at both ends, may take
off."""


def _crossed_ns(live: Network, payload: int, idle_s: float) -> int:
    """How long a datagram of `payload` bytes takes from h0 to h1 after the ports were idle."""
    with open_socket(live, "h0", UDP) as near, open_socket(live, "h1", UDP, 7) as far:
        time.sleep(idle_s)
        began_ns = time.monotonic_ns()
        near.sendto(bytes(payload), far.getsockname())
        far.recv(10_000)
        return time.monotonic_ns() - began_ns


@pytest.mark.parametrize("idle_s", [0.0, 0.003, 0.1])
@pytest.mark.parametrize("payload", [8972, 3000])
def test_a_frame_is_serialised_on_both_links_however_long_they_were_idle(
    payload: int, idle_s: float
) -> None:
    with network(flat(2, rate="10Mbps", mtu=9000)) as live:
        _crossed_ns(live, payload, 0)
        expected_ns = 2 * (payload + _BETWEEN_L1_AND_PAYLOAD) * 8e9 / _RATE_BPS

        def crossed_ns() -> int:
            found = min(_crossed_ns(live, payload, idle_s) for _ in range(_TRIES))
            assert found >= expected_ns * (1 - _TIMERS)
            return found

        limit_ns = (1 + _TIMERS) * expected_ns + _WAKES * _wakes_late_ns(expected_ns / 2)
        assert believed(live, crossed_ns, lambda found_ns: found_ns <= limit_ns) <= limit_ns


def _wakes_late_ns(sleep_ns: float) -> float:
    """By how much a sleep of `sleep_ns` is too long on this machine, at most."""
    late_ns = []
    for _ in range(_TRIES):
        began_ns = time.monotonic_ns()
        time.sleep(sleep_ns / 1e9)
        late_ns.append(time.monotonic_ns() - began_ns - sleep_ns)
    return max(late_ns)


def test_fillers_are_neither_counted_nor_seen() -> None:
    fabric = flat(2, rate="10Mbps", mtu=9000)
    with network(fabric) as live:
        with live.enter("s0"):
            raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL_PROTOCOLS))
            kept = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL_PROTOCOLS))
        with raw, kept:
            PacketFilter.keep(60).without(FILLER_ETHERTYPE).attach(kept)
            for _ in range(3):
                _crossed_ns(live, 8972, 0.05)
            found = counters_when(live, lambda ports: sum(p.packets for p in ports) >= 6)
            frame = 8972 + _BETWEEN_L1_AND_PAYLOAD - 24
            assert sorted(p.bytes for p in found) == [0, 0, 3 * frame, 3 * frame]
            assert sorted(p.packets for p in found) == [0, 0, 3, 3]
            assert not any(p.lost_outside_queue or p.queue.drops for p in found)
            assert all(_ethertype(raw_frame) == 0x0800 for raw_frame in _seen(kept))
            assert FILLER_ETHERTYPE in {_ethertype(raw_frame) for raw_frame in _seen(raw)}


def test_a_link_whose_frames_are_shorter_than_timers_are_late_has_none() -> None:
    with network(flat(2, rate="100Mbps", mtu=9000)) as live:
        with live.enter("s0"):
            raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL_PROTOCOLS))
        with raw:
            _crossed_ns(live, 8972, 0.05)
            assert {_ethertype(frame) for frame in _seen(raw)} == {0x0800}


def _seen(packet_socket: socket.socket) -> list[bytes]:
    """The packets that a packet socket has received so far."""
    packet_socket.setblocking(False)
    found = []
    while True:
        try:
            found.append(packet_socket.recv(60))
        except BlockingIOError:
            return found


def _ethertype(frame: bytes) -> int:
    return int.from_bytes(frame[12:14], "big")


def test_what_waits_at_a_port_is_not_taken_for_idle_time() -> None:
    """Late timers leave packets waiting at a port that should have been free: fillers in between
    would keep it from ever making up for them."""
    fabric = flat(2, rate="10Mbps")
    link = fabric.links[0]
    free_at = port_number(link, link.a) * len(_Word) + _Word.FREE_AT
    with network(fabric) as live:
        filler = live._filler
        assert filler is not None

        def wait_then() -> int:
            with open_socket(live, "h0", UDP) as near, open_socket(live, "h1", UDP, 7) as far:
                for _ in range(_WAITING):
                    near.sendto(bytes(1472), far.getsockname())
                filler._words[free_at] = time.monotonic_ns()  # what late timers come to
                return _least_ns(near, far)

        limit_ns = 6_000_000
        found = believed(live, wait_then, lambda least_ns: least_ns < limit_ns)
        assert found < limit_ns


def _least_ns(near: socket.socket, far: socket.socket) -> int:
    """The least that a datagram takes at the end of a stream of two full frames every 3.4 ms."""
    took_ns = []

    def receive() -> None:
        while True:
            datagram = far.recv(2_000)
            if len(datagram) == 8:
                return
            took_ns.append(time.monotonic_ns() - int.from_bytes(datagram[:8], "little"))

    receiver = threading.Thread(target=receive)
    receiver.start()
    with real_time_priority():
        due = time.monotonic()
        for _ in range(_PERIODS):
            due += _PERIOD_S
            for _ in range(2):
                stamp = time.monotonic_ns().to_bytes(8, "little")
                near.sendto(stamp + bytes(1472 - len(stamp)), far.getsockname())
            time.sleep(max(0.0, due - time.monotonic()))
    near.sendto(bytes(8), far.getsockname())
    receiver.join()
    return min(took_ns[-_PERIODS // 4 :])
