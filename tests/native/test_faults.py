"""Faults in the native kernel: what needs no netem."""

from __future__ import annotations

import threading
import time

import pytest

from emulator.fidelity import FidelityMonitor
from emulator.linux.netlink import NetlinkError
from emulator.linux.rtnetlink import delete_qdisc
from emulator.network.faults import FaultInjector
from emulator.network.network import Network
from emulator.ports.arrangement import UnsupportedPort
from tests.native.fault_specs import fault
from tests.native.native_fabrics import fat_tree, flat, network
from tests.native.native_traffic import (
    UDP,
    counters_when_sent,
    echo_all_pairs,
    open_socket,
    transfer_seconds,
)
from tests.native.own_pace import believed, too_late


def _wait_for(injector: FaultInjector, count: int) -> None:
    deadline = time.monotonic() + 120
    while len(injector.events) < count and time.monotonic() < deadline:
        time.sleep(0.005)
    assert len(injector.events) >= count


def test_a_link_goes_down_at_its_time_and_comes_back() -> None:
    with network(fat_tree()) as live:
        for duration_ms in (300, 1_000, 4_000, 16_000, 64_000):
            if _link_goes_down_and_comes_back(live, duration_ms):
                return
    pytest.skip("this machine needs more than a minute for a few packets")


def _link_goes_down_and_comes_back(live: Network, duration_ms: int) -> bool:
    """False when the machine was too slow to look at the fabric while the link was down."""
    hosts = ["h0", "h1", "h4", "h15"]
    cable = fault("link-down", "edge0-0-agg0-0", at="50ms", duration=f"{duration_ms}ms")
    with FaultInjector(live, [cable]) as injector:
        start = time.monotonic_ns()
        injector.on_iteration(0)
        _wait_for(injector, 1)
        lost, uplinks = echo_all_pairs(live, hosts), _uplinks_of_h0(live)
        in_time = len(injector.events) == 1
        _wait_for(injector, 2)
        assert echo_all_pairs(live, hosts) == []
        assert _uplinks_of_h0(live) == {"agg0-0", "agg0-1"}
    # Never early; how late depends on how busy the machine is.
    began, ended = (event.at_ns - start for event in injector.events)
    assert began >= 50e6
    assert ended >= 50e6 + duration_ms * 1e6
    assert [event.began for event in injector.events] == [True, False]
    if in_time:
        assert lost == []
        assert uplinks == {"agg0-1"}
    return in_time


def _uplinks_of_h0(live: Network) -> set[str]:
    """Which of its two uplinks edge0-0 takes for 64 flows of h0."""
    before_ports = live.port_counters()
    before = {port.port: port.packets for port in before_ports}
    arrived = sum(port.packets for port in before_ports if port.peer == "h15")
    for number in range(64):
        with open_socket(live, "h0", UDP) as sender:
            sender.sendto(b"x", (str(live.fabric.by_name["h15"].address), 20_000 + number))
    counters_when_sent(live, "h15", arrived + 64)
    return {
        port.peer
        for port in live.port_counters()
        if port.node == "edge0-0"
        and port.peer.startswith("agg")
        and port.packets > before[port.port]
    }


def test_a_transfer_survives_a_link_that_goes_down_under_it() -> None:
    """Whichever uplink the flow's hash chose, it had to leave it while it was down."""
    late = ""
    for step_ms in (200, 200, 1000):
        sent, late = _bytes_by_uplink(step_ms)
        if min(sent.values()) > 20 * 1500:
            return
        assert late, sent
    pytest.skip(f"the machine did not keep up: {late}")


def _bytes_by_uplink(step_ms: int) -> tuple[dict[str, int], str]:
    """The bytes that each uplink carried of a transfer that lasts five steps, through the first of
    which both uplinks are there, then each by itself; and how the machine did not keep up."""
    with network(fat_tree(rate="50Mbps")) as live:
        faults = [
            fault("link-down", "edge0-0-agg0-0", at=f"{step_ms}ms"),
            fault("link-up", "edge0-0-agg0-0", at=f"{2 * step_ms}ms"),
            fault("link-down", "edge0-0-agg0-1", at=f"{2 * step_ms}ms"),
        ]
        monitor = FidelityMonitor(live)
        monitor.start()
        with FaultInjector(live, faults) as injector:
            injector.on_iteration(0)
            transfer_seconds(live, "h0", "h15", 5 * step_ms * 50_000 // 8)
            _wait_for(injector, 3)
        late = too_late(monitor)
        counters = live.port_counters()
    assert all(port.lost_outside_queue == 0 for port in counters), [
        port for port in counters if port.queue.drops_by_reason
    ]
    return {
        port.peer: port.bytes
        for port in counters
        if port.node == "edge0-0" and port.peer.startswith("agg")
    }, late


def test_a_slower_rate_at_an_iteration() -> None:
    size = 2_000_000
    ideal, slow_ideal = (size * 8 / (rate * 1448 / 1538) for rate in (80e6, 16e6))
    with network(flat(2, rate="80Mbps")) as live:

        def transfer(limit_s: float) -> float:
            return believed(
                live, lambda: transfer_seconds(live, "h0", "h1", size), lambda s: s <= limit_s
            )

        with FaultInjector(live, [fault("rate", "h0-s0", iteration=1, value="16Mbps")]) as injector:
            injector.on_iteration(0)
            before = transfer(1.5 * ideal)
            assert injector.events == []
            injector.on_iteration(1)
            _wait_for(injector, 1)
            after = transfer(1.5 * slow_ideal)
    assert 0.99 * ideal <= before <= 1.5 * ideal
    assert 0.99 * slow_ideal <= after <= 1.5 * slow_ideal


@pytest.mark.parametrize(("kind", "value"), [("loss", 0.1), ("corrupt", 0.1), ("delay", "1ms")])
def test_what_this_arrangement_cannot_do_is_refused_before_the_run(
    kind: str, value: object
) -> None:
    with (
        network(flat(2)) as live,
        pytest.raises(UnsupportedPort, match=f"fault {kind} on h0-s0: .* needs? netem"),
    ):
        FaultInjector(live, [fault(kind, "h0-s0", at="1ms", value=value)])


def test_what_the_kernel_refuses_fails_the_run() -> None:
    slower = fault("rate", "h0-s0", iteration=0, value="1Mbps")
    with (
        network(flat(2)) as live,
        pytest.raises(NetlinkError, match="change qdisc tbf on h0-eth0"),
        FaultInjector(live, [slower]) as injector,
    ):
        with live.netlink("h0") as netlink:
            netlink.execute([delete_qdisc(live.contexts("h0")[0].ifindex)])
        injector.on_iteration(0)
        for thread in threading.enumerate():
            if thread.name == "faults":
                thread.join(120)
