"""Faults in the native kernel: what needs no netem."""

from __future__ import annotations

import threading
import time

import pytest
from fault_specs import fault
from native_fabrics import fat_tree, flat, network
from native_traffic import UDP, echo_all_pairs, open_socket, transfer_seconds

from emulator.faults import FaultInjector
from emulator.netlink import NetlinkError
from emulator.network import Network
from emulator.ports import UnsupportedPort
from emulator.rtnetlink import delete_qdisc


def _wait_for(injector: FaultInjector, count: int) -> None:
    deadline = time.monotonic() + 10
    while len(injector.events) < count and time.monotonic() < deadline:
        time.sleep(0.005)
    assert len(injector.events) >= count


def test_a_link_goes_down_at_its_time_and_comes_back() -> None:
    cable = "edge0-0-agg0-0"
    hosts = ["h0", "h1", "h4", "h15"]
    with network(fat_tree()) as live:
        faults = [fault("link-down", cable, at="50ms", duration="300ms")]
        with FaultInjector(live, faults) as injector:
            start = time.monotonic_ns()
            injector.on_iteration(0)
            _wait_for(injector, 1)
            assert echo_all_pairs(live, hosts) == []
            assert _uplinks_of_h0(live) == {"agg0-1"}
            _wait_for(injector, 2)
            assert echo_all_pairs(live, hosts) == []
            assert _uplinks_of_h0(live) == {"agg0-0", "agg0-1"}
        began, ended = (event.at_ns - start for event in injector.events)
        assert 50e6 <= began <= 250e6
        assert 350e6 <= ended <= 600e6
        assert [event.began for event in injector.events] == [True, False]


def _uplinks_of_h0(live: Network) -> set[str]:
    """Which of its two uplinks edge0-0 takes for 64 flows of h0."""
    before = {port.port: port.packets for port in live.port_counters()}
    for number in range(64):
        with open_socket(live, "h0", UDP) as sender:
            sender.sendto(b"x", (str(live.fabric.by_name["h15"].address), 20_000 + number))
    return {
        port.peer
        for port in live.port_counters()
        if port.node == "edge0-0"
        and port.peer.startswith("agg")
        and port.packets > before[port.port]
    }


def test_a_transfer_survives_a_link_that_goes_down_under_it() -> None:
    with network(fat_tree(rate="50Mbps")) as live:
        faults = [
            fault("link-down", "edge0-0-agg0-0", at="200ms"),
            fault("link-up", "edge0-0-agg0-0", at="400ms"),
            fault("link-down", "edge0-0-agg0-1", at="400ms"),
        ]
        with FaultInjector(live, faults) as injector:
            injector.on_iteration(0)
            seconds = transfer_seconds(live, "h0", "h15", 50_000_000 // 8)
        assert len(injector.events) == 3
        assert seconds < 5
        # Whichever uplink the flow's hash chose, it had to leave it while it was down.
        sent = {
            port.peer: port.bytes
            for port in live.port_counters()
            if port.node == "edge0-0" and port.peer.startswith("agg")
        }
        assert min(sent["agg0-0"], sent["agg0-1"]) > 20 * 1500, sent
        lost = [port for port in live.port_counters() if port.queue.drops_by_reason]
        assert all(port.lost_outside_queue == 0 for port in live.port_counters()), lost


def test_a_slower_rate_at_an_iteration() -> None:
    with network(flat(2, rate="80Mbps")) as live:
        size = 2_000_000
        with FaultInjector(live, [fault("rate", "h0-s0", iteration=1, value="16Mbps")]) as injector:
            injector.on_iteration(0)
            before = transfer_seconds(live, "h0", "h1", size)
            assert injector.events == []
            injector.on_iteration(1)
            _wait_for(injector, 1)
            after = transfer_seconds(live, "h0", "h1", size)
    # Five times slower; the first transfer's slow start and a busy machine blur it.
    assert 3.5 <= after / before <= 6


@pytest.mark.parametrize(("kind", "value"), [("loss", 0.1), ("corrupt", 0.1), ("delay", "1ms")])
def test_what_this_arrangement_cannot_do_is_refused_before_the_run(
    kind: str, value: object
) -> None:
    with (
        network(flat(2)) as live,
        pytest.raises(UnsupportedPort, match=f"fault {kind} on h0-s0: .* need netem"),
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
                thread.join(10)
