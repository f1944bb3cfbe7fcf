"""The native code path on a Linux with netem: the virtual kernel, booted without time travel.

Real time on a machine that others use: lower bounds are physics, upper ones only say that it ends.
"""

from __future__ import annotations

import threading
import time

import pytest

from emulator.linux.capabilities import kernel_capabilities
from emulator.native.kernel import missing_for_fabric, native_arrangement
from emulator.network.faults import FaultInjector
from emulator.network.network import Network, NetworkOptions
from emulator.network.sysctls import TcpSettings
from emulator.ports.arrangement import NetemArrangement
from emulator.ports.stock_queues import StockArrangement
from tests.native.fault_specs import fault
from tests.native.native_fabrics import delayed
from tests.native.native_traffic import UDP, echo_all_pairs, open_socket, transfer_seconds
from topologies.fabrics.fabric import Fabric
from topologies.routing.routes import compute_routes

pytestmark = pytest.mark.guest(real_time=True)


def _live(fabric: Fabric, control: str = "cubic", stock: bool = False) -> Network:
    arrangement = StockArrangement() if stock else NetemArrangement()
    return Network(
        fabric,
        compute_routes(fabric),
        NetworkOptions(arrangement=arrangement, transport=TcpSettings(congestion_control=control)),
    )


def _round_trip_ms(live: Network) -> float:
    with open_socket(live, "h0", UDP) as near, open_socket(live, "h1", UDP, 7) as far:
        best = 1e9
        for _ in range(10):
            start = time.monotonic()
            near.sendto(b"x", far.getsockname())
            _, sender = far.recvfrom(10)
            far.sendto(b"x", sender)
            near.recv(10)
            best = min(best, (time.monotonic() - start) * 1e3)
        return best


def test_this_kernel_has_what_a_native_run_wants() -> None:
    found = kernel_capabilities()
    assert {"netem", "red", "codel", "fq_codel", "tbf", "clsact"} <= found.qdiscs
    assert {"veth", "ifb"} <= found.devices
    assert "dctcp" in found.congestion_controls
    assert missing_for_fabric(delayed(2, "100Mbps", "5ms")) == []


def test_delays_add_up() -> None:
    with _live(delayed(2, "1Gbps", "5ms")) as live:
        # Four links there and back; never less, and little more on a slow machine.
        assert 20.0 <= _round_trip_ms(live) <= 80.0


def test_the_arrangement_that_the_native_kernel_takes_delays_too() -> None:
    fabric = delayed(2, "1Gbps", "5ms", kind="dctcp", k="30KB", buffer="500KB")
    arrangement = native_arrangement(fabric)
    options = NetworkOptions(arrangement=arrangement)
    with Network(fabric, compute_routes(fabric), options) as live:
        assert 20.0 <= _round_trip_ms(live) <= 80.0
        assert echo_all_pairs(live, ["h0", "h1"]) == []


def test_dctcp_is_marked_by_red_and_keeps_its_queue_short() -> None:
    fabric = delayed(3, "20Mbps", "1ms", kind="dctcp", k="15KB", buffer="500KB")
    size = 1_250_000
    with _live(fabric, "dctcp", stock=True) as live:
        took: list[float] = []
        senders = [
            threading.Thread(
                target=lambda s=source, p=port: took.append(
                    transfer_seconds(live, s, "h1", size, p)
                )
            )
            for source, port in (("h0", 5001), ("h2", 5002))
        ]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()
        towards = next(p for p in live.port_counters() if (p.node, p.peer) == ("s0", "h1"))
    assert towards.queue.ecn_marks > 0
    assert towards.queue.drops == 0
    ideal = 2 * size * 8 / (20e6 * (1500 - 52) / (1500 + 38))
    assert ideal * 0.99 <= max(took) <= ideal * 5


@pytest.mark.parametrize("kind", ["loss", "corrupt"])
def test_netem_loses_and_damages(kind: str) -> None:
    with _live(delayed(2, "100Mbps", "1ms")) as live:
        with FaultInjector(live, [fault(kind, "s0-h1", iteration=0, value="5%")]) as injector:
            injector.on_iteration(0)
            while not injector.events:
                time.sleep(0.001)
            transfer_seconds(live, "h0", "h1", 1_000_000)
        assert live.tcp_counters()["h0"].retransmits >= 10


def test_a_longer_delay_while_it_lasts() -> None:
    duration_ms = 400
    with _live(delayed(2, "1Gbps", "1ms")) as live:
        while True:
            longer, healed, in_time = _round_trips_around_a_delay(live, duration_ms)
            if in_time:
                break
            duration_ms *= 3  # the machine was too slow to measure ten round trips meanwhile
    assert 24.0 <= longer <= 80.0
    assert 4.0 <= healed <= 20.0


def _round_trips_around_a_delay(live: Network, duration_ms: int) -> tuple[float, float, bool]:
    """The best round trip with the longer delay, that after it, and whether the delay was still
    there when the first had been measured."""
    slower = fault("delay", "h0-s0", iteration=0, duration=f"{duration_ms}ms", value="11ms")
    with FaultInjector(live, [slower]) as injector:
        injector.on_iteration(0)
        while not injector.events:
            time.sleep(0.001)
        longer = _round_trip_ms(live)
        in_time = len(injector.events) == 1
        while len(injector.events) < 2:
            time.sleep(0.01)
        return longer, _round_trip_ms(live), in_time
