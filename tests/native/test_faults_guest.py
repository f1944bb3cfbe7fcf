"""Faults on the virtual kernel's ports, in exact virtual time."""

from __future__ import annotations

import math
import time

import pytest

from emulator.network.faults import FaultInjector
from emulator.network.network import Network, NetworkOptions
from emulator.ports.own_queues import QueueArrangement
from tests.native.fault_specs import fault
from tests.native.native_fabrics import delayed
from tests.native.native_traffic import UDP, open_socket, transfer_seconds
from topologies.routing.routes import compute_routes

pytestmark = pytest.mark.guest


def _live(delay: str = "1us") -> Network:
    fabric = delayed(2, "10Gbps", delay)
    return Network(
        fabric, compute_routes(fabric), NetworkOptions(arrangement=QueueArrangement(fabric, 1))
    )


def _one_way_ns(live: Network) -> int:
    """A small packet from h0 to h1, by the clock: exact, as computing takes no time here."""
    with open_socket(live, "h0", UDP) as sender, open_socket(live, "h1", UDP, 7) as receiver:
        start = time.monotonic_ns()
        sender.sendto(b"x", receiver.getsockname())
        receiver.recv(10)
        return time.monotonic_ns() - start


def test_times_are_exact() -> None:
    with _live() as live:
        faults = [fault("delay", "h0-s0", at="3ms", duration="2ms", value="5us")]
        with FaultInjector(live, faults) as injector:
            # Bringing the fabric up makes tens of thousands of calls in no virtual time, which the
            # kernel takes for polling: resting once ends its naps (docs/virtual-kernel.md).
            time.sleep(0.001)
            start = time.monotonic_ns()
            injector.on_iteration(0)
            healthy = _one_way_ns(live)
            time.sleep(0.004)
            longer = _one_way_ns(live)
            time.sleep(0.002)
            healed = _one_way_ns(live)
    assert longer - healthy == 4_000
    assert healed == healthy
    began, ended = (event.at_ns - start for event in injector.events)
    assert 3_000_000 <= began <= 3_000_100
    assert 5_000_000 <= ended <= 5_000_100


@pytest.mark.parametrize("kind", ["loss", "corrupt"])
def test_losses_are_repaired_by_tcp_and_counted(kind: str) -> None:
    with _live() as live:
        clean = transfer_seconds(live, "h0", "h1", 5_000_000)
        with FaultInjector(live, [fault(kind, "s0-h1", iteration=0, value="1%")]) as injector:
            injector.on_iteration(0)
            time.sleep(0.001)
            lossy = transfer_seconds(live, "h0", "h1", 5_000_000)
        retransmits = live.tcp_counters()["h0"].retransmits
        towards = next(p for p in live.port_counters() if (p.node, p.peer) == ("s0", "h1"))
    reason = {"loss": "loss", "corrupt": "corruption"}[kind]
    lost = towards.queue.drops_by_reason[reason]
    packets = 5_000_000 / 1448
    assert abs(lost - packets * 0.01) <= 4 * math.sqrt(packets * 0.01) + 2
    assert retransmits >= lost
    assert lossy > clean


def test_a_cut_link_carries_nothing_and_a_transfer_waits_for_it() -> None:
    with _live() as live:
        clean = transfer_seconds(live, "h0", "h1", 1_000_000)
        faults = [fault("link-down", "h0-s0", at="200us", duration="5ms")]
        with FaultInjector(live, faults) as injector:
            injector.on_iteration(0)
            cut = transfer_seconds(live, "h0", "h1", 1_000_000)
        counters = live.port_counters()
        drops = sum(p.queue.drops_by_reason.get("link_down", 0) for p in counters)
    assert clean < 0.002
    # A tail loss probe (two jiffies: 20 ms here) or the retransmission timer (200 ms) finds the
    # link again once it is back.
    assert 0.005 <= cut <= 0.3
    assert drops > 0
    assert sum(p.lost_outside_queue for p in counters) == 0


def test_a_slower_rate_is_the_rate() -> None:
    slower = fault("rate", "h0-s0", at=0, value="1Gbps")
    with _live() as live, FaultInjector(live, [slower]) as injector:
        injector.on_iteration(0)
        time.sleep(0.001)
        seconds = transfer_seconds(live, "h0", "h1", 5_000_000)
    ideal = 5_000_000 * 8 / (1e9 * (1500 - 52) / (1500 + 38))
    assert ideal * 0.999 <= seconds <= ideal * 1.05
