"""Delay lines that are late, and those that are not, on a Linux with netem: the virtual kernel in
real time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from emulator.fidelity import FidelityMonitor
from emulator.linux.messages.formats import TC_H_ROOT
from emulator.linux.rtnetlink import change_qdisc
from emulator.native.kernel import can_watch_ports, native_arrangement
from emulator.network.network import Network, NetworkOptions
from emulator.ports.arrangement import netem_options
from emulator.ports.stock_queues import SHAPER_HANDLE
from tests.native.native_fabrics import delayed
from tests.native.native_traffic import UDP, open_socket
from tests.native.own_pace import believed
from topologies.routing.routes import compute_routes

pytestmark = pytest.mark.guest(real_time=True)


@contextmanager
def _busy_links() -> Iterator[Network]:
    """Two hosts whose links have delay lines of 20 ms with packets in them all the time."""
    fabric = delayed(2, "20Mbps", "20ms", kind="dctcp", k="30KB", buffer="500KB")
    options = NetworkOptions(arrangement=native_arrangement(fabric), watched=can_watch_ports())
    done = threading.Event()
    with (
        Network(fabric, compute_routes(fabric), options) as live,
        open_socket(live, "h0", UDP) as sender,
        open_socket(live, "h1", UDP, 9) as receiver,
    ):

        def send() -> None:
            while not done.is_set():
                sender.sendto(bytes(1000), receiver.getsockname())
                time.sleep(0.002)

        thread = threading.Thread(target=send)
        thread.start()
        try:
            yield live
        finally:
            done.set()
            thread.join()


def _watched(live: Network) -> FidelityMonitor:
    monitor = FidelityMonitor(live)
    monitor.start()
    time.sleep(2.5)
    monitor.stop()
    return monitor


def test_a_late_delay_line_makes_a_run_invalid() -> None:
    with _busy_links() as live:
        for node in ("s0", "h1"):
            for context in live.contexts(node):
                assert context.delay_device is not None
                longer = delayed(2, "20Mbps", "60ms").links[0]
                options = netem_options(longer, 10**10)
                with live.netlink(node) as netlink:
                    netlink.execute(
                        [
                            change_qdisc(
                                context.delay_device, "netem", TC_H_ROOT, SHAPER_HANDLE, options
                            )
                        ]
                    )
        verdict = _watched(live).verdict()
    assert verdict.samples["late_delay_lines"] == 1.0
    assert not verdict.valid
    assert any("delay lines held packets for too long" in reason for reason in verdict.reasons)


def test_a_delay_line_in_time_is_not_blamed() -> None:
    with _busy_links() as live:

        def late_share() -> float:
            found = _watched(live).verdict().samples["late_delay_lines"]
            assert found is not None, "the lines held packets"
            return found

        assert believed(live, late_share, lambda late: late <= 0.05) <= 0.05


def test_netem_queues_are_watched_too() -> None:
    """A drop-tail link is one netem, rate and delay, whose packets come out at the far end. Its
    clock is absolute: whatever timers do, a second sends a second's worth."""
    fabric = delayed(2, "20Mbps", "5ms")
    arrangement = native_arrangement(fabric)
    assert arrangement.name == "netem"
    options = NetworkOptions(arrangement=arrangement, watched=can_watch_ports())
    done = threading.Event()
    with (
        Network(fabric, compute_routes(fabric), options) as live,
        open_socket(live, "h0", UDP) as sender,
        open_socket(live, "h1", UDP, 9) as receiver,
    ):

        def send() -> None:
            while not done.is_set():
                sender.sendto(bytes(1400), receiver.getsockname())

        def lateness() -> float:
            found = _watched(live).verdict().samples["queue_lateness"]
            assert found is not None, "h0 had enough to send"
            return found

        thread = threading.Thread(target=send)
        thread.start()
        try:
            assert believed(live, lateness, lambda late: late <= 0.03) <= 0.03
        finally:
            done.set()
            thread.join()
