"""The monitor notices what tests provoke for real in the native kernel."""

from __future__ import annotations

import multiprocessing
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from pyroute2.netlink.rtnl import RTM_SETLINK
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg

from emulator.fidelity import FidelityMonitor
from emulator.fidelity.sources import CoreTimes, read_cores
from emulator.linux import rtnetlink
from emulator.linux.messages.formats import MESSAGE_HEADER
from emulator.linux.netlink import Request
from emulator.native.kernel import can_watch_ports
from emulator.network.network import Network
from emulator.ports.arrangement import RateOnlyArrangement, tbf_options
from emulator.ports.token_depth import LATENESS_NS
from tests.native.native_fabrics import flat, network
from tests.native.native_traffic import UDP, counters_when, open_socket
from tests.native.own_pace import believed, on_an_idle_machine
from topologies.fabrics.fabric import Link

_WATCHED = pytest.mark.skipif(not can_watch_ports(), reason="this kernel has no eBPF classifiers")
_BACKLOG = Path("/proc/sys/net/core/netdev_max_backlog")


@contextmanager
def _hogs(count: int, cores: set[int] | None = None) -> Iterator[list[int]]:
    """Processes that compute for ever, on `cores` only when given."""

    def hog() -> None:
        if cores:
            os.sched_setaffinity(0, cores)
        while True:
            pass

    context = multiprocessing.get_context("fork")
    hogs = [context.Process(target=hog, daemon=True) for _ in range(count)]
    for process in hogs:
        process.start()
    try:
        yield [process.pid for process in hogs if process.pid is not None]
    finally:
        for process in hogs:
            process.kill()
            process.join()


def _watched(live: Network, seconds: float, pids: list[int] | None = None) -> FidelityMonitor:
    monitor = FidelityMonitor(live)
    monitor.start(pids or [])
    time.sleep(seconds)
    monitor.stop()
    return monitor


def _reason(verdict_reasons: tuple[str, ...], words: str) -> bool:
    return any(words in reason for reason in verdict_reasons)


def test_a_processor_hog_makes_a_run_invalid() -> None:
    with network(flat(2)) as live, _hogs(1, {min(os.sched_getaffinity(0))}):
        verdict = _watched(live, 1.2).verdict()
    assert not verdict.valid
    assert _reason(verdict.reasons, "a core was saturated")


def test_a_rank_that_waits_for_a_processor_makes_a_run_invalid() -> None:
    core = {min(os.sched_getaffinity(0))}
    with network(flat(2)) as live, _hogs(3, core) as pids:
        verdict = _watched(live, 1.2, pids[:1]).verdict()
    share = verdict.samples["rank_delay_share"]
    assert share is not None
    assert share > 0.4, "three processes share one core: each waits two thirds of the time"
    assert _reason(verdict.reasons, "a rank waited for a processor")


def test_backlog_drops_make_a_run_invalid() -> None:
    before = _BACKLOG.read_text()
    with network(flat(2)) as live:
        # Without a queue, a datagram that the kernel cuts into 40 goes to veth in one go, and veth
        # puts all 40 into this processor's backlog before it looks at any.
        with live.netlink("h0") as netlink:
            netlink.execute([rtnetlink.delete_qdisc(live.contexts("h0")[0].ifindex)])
        raised = _BACKLOG.read_text()
        try:
            _BACKLOG.write_text("1")
            with open_socket(live, "h0", UDP) as sender:
                sender.setsockopt(socket.IPPROTO_UDP, 103, 100)  # UDP_SEGMENT
                for _ in range(10):
                    sender.sendto(bytes(4000), (str(live.fabric.by_name["h1"].address), 9))
        finally:
            _BACKLOG.write_text(raised)
        verdict = FidelityMonitor(live, real_time=False).verdict()
    assert _BACKLOG.read_text() == before
    assert verdict.samples["softnet_drops"], "packets were dropped"
    assert not verdict.valid
    assert _reason(verdict.reasons, "receive backlogs")


def test_packets_that_a_device_loses_make_a_run_invalid() -> None:
    with network(flat(2)) as live:
        # veth loses what is longer than its peer's MTU.
        context = live.contexts("s0")[0]
        smaller = ifinfmsg()
        smaller.setvalue({"index": context.ifindex, "attrs": [("IFLA_MTU", 1000)]})
        smaller.encode()
        payload = bytes(smaller.data[MESSAGE_HEADER.size :])
        with live.netlink("s0") as netlink:
            netlink.execute([Request(RTM_SETLINK, 0, payload, "make the MTU smaller")])
        with open_socket(live, "h0", UDP) as sender:
            for _ in range(7):
                sender.sendto(bytes(1200), (str(live.fabric.by_name["h1"].address), 9))
        counters_when(live, lambda ports: sum(p.lost_outside_queue for p in ports) >= 7)
        verdict = FidelityMonitor(live, real_time=False).verdict()
    assert verdict.samples["lost_outside_queues"] == 7
    assert verdict.reasons[0].startswith("devices lost 7 packets")


@_WATCHED
def test_a_queue_slower_than_its_link_makes_a_run_invalid() -> None:
    with network(flat(2, rate="100Mbps")) as live:
        _replace_queue(live, "h0", flat(2, rate="50Mbps").links[0])
        verdict = _loaded(live, lambda: _watched(live, 2.5)).verdict()
    lateness = verdict.samples["queue_lateness"]
    assert lateness == pytest.approx(0.5, abs=0.1)
    assert _reason(verdict.reasons, "behind their rate")


@_WATCHED
def test_a_shaper_that_loses_tokens_makes_a_run_invalid() -> None:
    """A bucket of one frame never makes up for a late timer. At 200 Mb/s a frame takes 62 us."""
    shallow = RateOnlyArrangement(lateness_ns=0)
    with network(flat(2, rate="200Mbps"), arrangement=shallow) as live:
        verdict = _loaded(live, lambda: _watched(live, 1.5)).verdict()
    lateness = verdict.samples["queue_lateness"]
    assert lateness is not None
    assert lateness > 0.03
    assert _reason(verdict.reasons, "behind their rate")


@_WATCHED
@pytest.mark.parametrize("rate", ["20Mbps", "100Mbps"])
def test_a_queue_that_keeps_its_rate_is_not_blamed(rate: str) -> None:
    with network(flat(2, rate=rate)) as live:

        def lateness() -> float:
            seen = _loaded(live, lambda: _watched(live, 1.5)).verdict().samples["queue_lateness"]
            assert seen is not None, "h0 had enough to send"
            return seen

        assert believed(live, lateness, lambda late: late <= 0.03) <= 0.03


@_WATCHED
def test_a_port_that_waits_for_nothing_is_not_judged() -> None:
    with network(flat(2, rate="100Mbps")) as live:
        verdict = _watched(live, 0.6).verdict()
    assert verdict.samples["queue_lateness"] is None


@_WATCHED
def test_what_a_queue_drops_does_not_wait_for_good() -> None:
    """A port whose queue dropped packets is not judged: they seem to wait."""
    fabric = flat(2, rate="100Mbps", kind="droptail", buffer="8KB")
    with network(fabric) as live:
        _loaded(live, lambda: _watched(live, 0.6))
        monitor = _watched(live, 0.3)
        assert sum(port.queue.drops for port in live.port_counters()) > 0
        assert monitor.verdict().samples["queue_lateness"] in (None, 0.0)


@_WATCHED
def test_what_an_idle_link_lets_through_at_once_is_no_more_than_its_bucket() -> None:
    """The price of making up for late timers, as token_depth.py states it."""
    with network(flat(2, rate="10Mbps")) as live:
        assert live.watch is not None
        _loaded(live, lambda: _watched(live, 1.0))
        service = live.watch.read_all(live.fabric)["h0-eth0"]
    frame_ns = (1514 + 24) * 8 * 100
    assert service.periods >= 1
    assert service.gained_ns <= service.periods * (LATENESS_NS + frame_ns)
    assert service.served_ns == pytest.approx(service.busy_ns, rel=0.03)


def test_stolen_time_makes_a_run_invalid(monkeypatch: pytest.MonkeyPatch) -> None:
    """The monitor takes the hypervisor's time off the time that the kernel counts as idle."""

    def with_a_tenth_stolen() -> tuple[CoreTimes, ...]:
        return tuple(
            CoreTimes(core.total, core.busy + core.total // 10, core.stolen + core.total // 10)
            for core in read_cores()
        )

    monkeypatch.setattr("emulator.fidelity.monitor.read_cores", with_a_tenth_stolen)
    with network(flat(2)) as live:
        verdict = _watched(live, 1.2).verdict()
    share = verdict.samples["steal_share"]
    assert share is not None
    assert share >= 0.08
    assert _reason(verdict.reasons, "the hypervisor took")


def test_late_timers_make_a_run_invalid() -> None:
    """The interpreter's lock keeps the monitor's own timers waiting, as a kernel that is too busy
    does."""
    done = threading.Event()
    busy = threading.Thread(target=lambda: [None for _ in iter(done.is_set, True)])
    usual = sys.getswitchinterval()
    sys.setswitchinterval(0.02)
    busy.start()
    try:
        with network(flat(2)) as live:
            verdict = _watched(live, 1.0).verdict()
    finally:
        done.set()
        busy.join()
        sys.setswitchinterval(usual)
    late = verdict.samples["timer_lateness_ns"]
    assert late is not None
    assert late > 10_000_000
    assert _reason(verdict.reasons, "one timer in a hundred")


def test_a_capture_that_lost_packets_makes_a_run_invalid() -> None:
    with network(flat(2)) as live:
        monitor = FidelityMonitor(live, real_time=False)
        assert monitor.verdict(capture_drops=0).valid
        verdict = monitor.verdict(capture_drops=3)
    assert verdict.reasons[0].startswith("the capture lost 3 packets")


def test_the_virtual_kernel_is_judged_by_losses_alone() -> None:
    with network(flat(2)) as live, _hogs(1):
        monitor = FidelityMonitor(live, real_time=False)
        monitor.start([os.getpid()])
        time.sleep(0.3)
        verdict = monitor.verdict()
    assert verdict.valid
    assert verdict.samples["saturated_share"] is None


def _replace_queue(live: Network, node: str, link: Link) -> None:
    """Gives a node's port another link's rate and burst, behind the monitor's back."""
    context = live.contexts(node)[0]
    with live.netlink(node) as netlink:
        netlink.execute(
            [rtnetlink.qdisc(context.ifindex, "tbf", options=tbf_options(link, 4_000_000))]
        )


def _loaded(live: Network, action: Callable[[], FidelityMonitor]) -> FidelityMonitor:
    """Runs the action while h0 has more to send than its link can take."""
    done = threading.Event()
    target = (str(live.fabric.by_name["h1"].address), 9)
    with open_socket(live, "h0", UDP) as sender:
        sender.setsockopt(socket.SOL_SOCKET, 32, 1 << 20)  # SO_SNDBUFFORCE: keep a long queue
        sender.settimeout(0.2)

        def push() -> None:
            while not done.is_set():
                with suppress(OSError):  # refused by h1, or the queue is full
                    sender.sendto(bytes(1400), target)

        thread = threading.Thread(target=push)
        thread.start()
        try:
            return action()
        finally:
            done.set()
            thread.join()


def test_doing_nothing_on_an_idle_machine_is_valid() -> None:
    with network(flat(2)) as live:
        verdict = on_an_idle_machine(
            lambda: _watched(live, 1.2).verdict(), lambda verdict: verdict.valid
        )
    assert verdict.valid, verdict.reasons
