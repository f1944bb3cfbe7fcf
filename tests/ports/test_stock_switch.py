"""Lossless, shared and voq queues as the native kernel makes them: of stock qdiscs, eBPF counters
and the pause controller. Here in virtual time, where the controller is never late unless it is
stopped, so that every figure follows from the link.
"""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest

from emulator.fidelity import FidelityMonitor
from emulator.native.kernel import missing_for_fabric
from emulator.network.deadlock import find_deadlocks
from emulator.ports.arrangement import UnsupportedPort
from emulator.ports.counters import PortCounters
from testing.queue_lab import (
    CE,
    ECT0,
    Lab,
    fabric,
    frame_ns,
    lab,
    line,
    payload_of,
    ring,
    send,
    star,
)
from topologies.fabrics.fabric import headroom_bytes

pytestmark = pytest.mark.guest

FRAME, RATE_BPS, DELAY_NS = 1514, 100_000_000, 500_000
FRAME_NS = frame_ns(FRAME, RATE_BPS)
XOFF, XON = 30_000, 20_000
LINK: dict[str, Any] = {"rate": f"{RATE_BPS}bps", "delay": f"{DELAY_NS}ns"}
TRAVEL_NS = DELAY_NS + 84 * 8e9 / RATE_BPS


def _pid(it: Lab) -> int:
    """The pause controller's process."""
    pid = it.controller().pid
    assert pid is not None
    return pid


def _lossless(**changes: Any) -> dict[str, Any]:
    return {"kind": "lossless", "xoff": XOFF, "xon": XON, "buffer": "2MB"} | changes


def _ports(it: Lab) -> dict[tuple[str, str], PortCounters]:
    return {(c.node, c.peer): c for c in it.network.port_counters()}


def _incast(it: Lab, senders: list[str], to: str, count: int) -> None:
    for source in [it.udp_source(name, to) for name in senders]:
        send(source, count, payload_of(FRAME))


def _drain_time_s(packets: int) -> float:
    return packets * FRAME_NS / 1e9 + 0.05


@pytest.mark.parametrize("senders", [2, 4, 16])
def test_incast_loses_nothing(senders: int) -> None:
    count = 640 // senders
    names = [f"h{i}" for i in range(senders)]
    with lab(star(senders + 1, queue=_lossless(), **LINK), stock=True) as it:
        sink = it.udp_sink(f"h{senders}")
        _incast(it, names, f"h{senders}", count)
        time.sleep(_drain_time_s(640))
        packets = sink.drain()
        assert len(packets) == 640
        # The last port never idles: pausing its sources costs it nothing.
        took = packets[-1].time_ns - packets[0].time_ns
        assert took == pytest.approx(639 * FRAME_NS, rel=1e-3)
        ports = _ports(it)
        assert all(port.queue.drops == 0 for port in ports.values())
        assert all(ports[name, "s"].queue.pauses > 0 for name in names)
        assert all(0 < ports[name, "s"].queue.paused_ns < 640 * FRAME_NS for name in names)
        assert ports[f"h{senders}", "s"].queue.pauses == 0
        # Nobody is left over in the counters, or paused.
        assert it.waiting() == {}
        assert all(closed == 0 for closed, _ in it.controller().held().values())


def test_the_reaction_is_a_pause_frames_and_is_stated() -> None:
    with lab(star(3, queue=_lossless(), **LINK), stock=True) as it:
        it.udp_sink("h2")
        _incast(it, ["h0", "h1"], "h2", 300)
        time.sleep(_drain_time_s(600))
        reaction = it.controller().reaction()
        assert reaction is not None
        # Early by the guard, and never late; a look takes no time here.
        assert TRAVEL_NS - 200_000 - 1 <= reaction.mean_ns <= reaction.worst_ns <= TRAVEL_NS
        assert reaction.allowed_ns == pytest.approx(TRAVEL_NS, abs=1000)
        assert reaction.pauses == sum(p.queue.pauses for p in _ports(it).values())
        verdict = FidelityMonitor(it.network, real_time=False).verdict()
        assert verdict.valid
        assert verdict.samples["pause_reaction_ns"] == reaction.worst_ns


def test_a_controller_that_is_late_makes_the_run_invalid_with_the_figure() -> None:
    with lab(star(3, queue=_lossless(), **LINK), stock=True) as it:
        it.udp_sink("h2")
        os.kill(_pid(it), signal.SIGSTOP)
        _incast(it, ["h0", "h1"], "h2", 200)
        time.sleep(0.015)
        os.kill(_pid(it), signal.SIGCONT)
        time.sleep(_drain_time_s(400))
        reaction = it.controller().reaction()
        assert reaction is not None and reaction.worst_ns > 8_000_000 > reaction.allowed_ns
        # Packets that came in the meantime did not fit, and are lost as they would be in a switch.
        dropped = _ports(it)["s", "h2"].queue
        assert dropped.drops == dropped.drops_by_reason["headroom"] == it.controller().lost() > 0
        verdict = FidelityMonitor(it.network, real_time=False).verdict()
        assert not verdict.valid
        (reason,) = verdict.reasons
        assert f"was paused {reaction.worst_ns:,} ns after XOFF" in reason
        assert f"(limit {reaction.allowed_ns:,})" in reason


def test_a_pause_that_the_controller_has_slept_through_is_late() -> None:
    with lab(star(3, queue=_lossless(), **LINK), stock=True) as it:
        it.udp_sink("h2")
        os.kill(_pid(it), signal.SIGSTOP)
        # 29 of the 58 packets of each wait at last: above XOFF, within the headroom.
        _incast(it, ["h0", "h1"], "h2", 58)
        time.sleep(0.05)
        assert it.memory_word("s", "h0", "XOFFS") == it.memory_word("s", "h0", "XONS") == 1
        os.kill(_pid(it), signal.SIGCONT)
        time.sleep(0.05)
        assert sum(port.queue.pauses for port in _ports(it).values()) == 0
        verdict = FidelityMonitor(it.network, real_time=False).verdict()
        assert not verdict.valid and "ns after XOFF" in verdict.reasons[0]


def test_too_little_headroom_loses_packets_and_is_not_the_controllers_fault() -> None:
    with lab(star(3, queue=_lossless(headroom=4_000), **LINK), stock=True) as it:
        sink = it.udp_sink("h2")
        _incast(it, ["h0", "h1"], "h2", 300)
        time.sleep(_drain_time_s(600))
        dropped = _ports(it)["s", "h2"].queue
        assert dropped.drops == dropped.drops_by_reason["headroom"] > 0
        assert len(sink.drain()) == 600 - dropped.drops
        assert it.controller().lost() == 0
        assert FidelityMonitor(it.network, real_time=False).verdict().valid


def test_the_default_headroom_is_used_but_not_up() -> None:
    # The last port is slow, so that next to nothing leaves while the pause takes effect.
    links = [("h0", "s"), ("h1", "s"), ("s", "to")]
    rates = {("s", "to"): "1Mbps"}
    the_fabric = fabric(links, queue=_lossless(), rates=rates, **LINK)
    headroom = headroom_bytes(the_fabric.links[0])
    with lab(the_fabric, stock=True) as it:
        it.udp_sink("to")
        _incast(it, ["h0", "h1"], "to", 100)
        time.sleep(0.1)
        used = it.memory_word("s", "h0", "INGRESS_MAX") - XOFF
        on_the_wire = 2 * RATE_BPS * DELAY_NS / 8e9
        guard = 200_000 * RATE_BPS / 8e9
        assert on_the_wire * 1500 / 1538 - guard < used <= headroom


def test_a_switch_whose_memory_is_full_loses_packets() -> None:
    queue = _lossless(buffer=60_000)
    with lab(star(5, queues={"s": queue}, **LINK), stock=True) as it:
        sink = it.udp_sink("h4")
        _incast(it, ["h0", "h1", "h2", "h3"], "h4", 100)
        time.sleep(_drain_time_s(400))
        dropped = _ports(it)["s", "h4"].queue
        assert dropped.drops == dropped.drops_by_reason["buffer"] > 0
        assert len(sink.drain()) == 400 - dropped.drops
        assert dropped.max_backlog_bytes is not None
        assert 60_000 - FRAME < dropped.max_backlog_bytes <= 60_000


def _victim(queue: dict[str, Any]) -> float:
    """As in test_lossless.py: h0 -> hot and h1 -> cool share the link s0 - s1."""
    links = [("h0", "s0"), ("h1", "s0"), ("s0", "s1"), ("h2", "s1"), ("h3", "s1")]
    links += [("s1", "hot"), ("s1", "cool")]
    rates = {("s0", "s1"): f"{2 * RATE_BPS}bps"}
    queues = {"s0": queue, "s1": queue}
    with lab(fabric(links, queues=queues, rates=rates, **LINK), stock=True) as it:
        it.udp_sink("hot")
        cool = it.udp_sink("cool")
        _incast(it, ["h0", "h2", "h3"], "hot", 600)
        send(it.udp_source("h1", "cool"), 600, payload_of(FRAME))
        time.sleep(300 * FRAME_NS / 1e9)
        arrived = len(cool.drain())
        time.sleep(0.5)
        return arrived / 300


def test_a_victim_is_slowed_by_head_of_line_blocking() -> None:
    assert _victim({"kind": "droptail", "buffer": "1MB"}) > 0.9
    assert _victim(_lossless()) < 0.6


def test_pauses_go_upstream_hop_by_hop() -> None:
    links = [("h0", "s0"), ("s0", "s1"), ("s1", "s2"), ("h1", "s2"), ("s2", "to")]
    with lab(fabric(links, queue=_lossless(), **LINK), stock=True) as it:
        sink = it.udp_sink("to")
        _incast(it, ["h0", "h1"], "to", 300)
        time.sleep(_drain_time_s(600))
        assert len(sink.drain()) == 600
        ports = _ports(it)
        on_the_way = (("s1", "s2"), ("s0", "s1"), ("h0", "s0"))
        paused = [ports[port].queue.paused_ns for port in on_the_way]
        assert paused[0] > paused[1] > paused[2] > 0
        assert sum(port.queue.drops for port in ports.values()) == 0


def test_a_ring_of_switches_deadlocks_and_is_said_to() -> None:
    with lab(ring(_lossless(), **LINK), stock=True) as it:
        around = it.route_around()
        sinks = [it.udp_sink(f"h{i}") for i in range(3)]
        for source in [it.udp_source(f"h{i}", f"h{(i + 2) % 3}") for i in range(3)]:
            send(source, 200, payload_of(FRAME))
        time.sleep(0.2)
        order = " -> ".join([*around, around[0]])
        (found,) = find_deadlocks(it.network)
        assert str(found) == f"deadlock of lossless queues, class 0: {order}"
        before = it.waiting()
        time.sleep(1)
        assert it.waiting() == before != {}
        assert sum(len(sink.drain()) for sink in sinks) < 600


@pytest.mark.parametrize("alpha", [0.5, 1, 4])
def test_a_shared_buffer_gives_its_share_of_what_is_free(alpha: float) -> None:
    buffer = 120_000
    queue = {"kind": "shared", "buffer": buffer, "alpha": alpha}
    with lab(star(3, queues={"s": queue}, **LINK), stock=True) as it:
        it.udp_sink("h2")
        _incast(it, ["h0", "h1"], "h2", 300)
        time.sleep(0.05)
        # Q = alpha (B - Q); a packet gets in when with it Q is at most what alpha makes of the
        # buffer without it.
        limit = alpha * buffer / (1 + alpha)
        port = _ports(it)["s", "h2"].queue
        assert port.max_backlog_bytes is not None
        assert limit - FRAME < port.max_backlog_bytes <= limit + FRAME * alpha / (1 + alpha)
        assert port.drops == port.drops_by_reason["buffer"] > 0


def test_virtual_output_queues_serve_ingress_ports_in_turn() -> None:
    def received(kind: str) -> list[int]:
        links = [("h0", "s"), ("h1", "s"), ("s", "to")]
        rates = {("h0", "s"): f"{4 * RATE_BPS}bps"}
        queues = {"s": {"kind": kind, "buffer": "60KB"}}
        with lab(fabric(links, rates=rates, queues=queues, **LINK), stock=True) as it:
            sinks = [it.udp_sink("to", 5000 + i) for i in range(2)]
            send(it.udp_source("h0", "to", 5000), 3000, payload_of(FRAME))
            send(it.udp_source("h1", "to", 5001), 800, payload_of(FRAME))
            time.sleep(600 * FRAME_NS / 1e9)
            return [len(sink.drain()) for sink in sinks]

    fast, slow = received("voq")
    assert abs(fast - slow) <= 4 and slow > 280
    fast, slow = received("droptail")
    assert fast > 3 * slow


@pytest.mark.parametrize("kind", ["shared", "voq", "lossless"])
def test_what_finds_more_than_k_is_marked(kind: str) -> None:
    k = 20 * FRAME
    links = [("a", "s"), ("s", "b")]
    rates = {("a", "s"): f"{100 * RATE_BPS}bps"}
    queues = {"s": {"kind": kind, "k": k, "buffer": "4MB"}}
    with lab(fabric(links, queues=queues, rates=rates, **LINK), stock=True) as it:
        sink, source = it.udp_sink("b"), it.udp_source("a", "b", tos=ECT0)
        send(source, 60, payload_of(FRAME))
        time.sleep(0.05)
        marked = [p.sequence for p in sink.drain() if p.ecn == CE]
        assert marked == list(range(marked[0], 60))
        # More than 20 wait before it; the shaper has let one or two go by then.
        assert 21 <= marked[0] <= 24
        assert _ports(it)["s", "b"].queue.ecn_marks == len(marked)


def test_a_pause_stops_its_class_only() -> None:
    queue = _lossless(lossy_priorities=[0])
    with lab(star(4, queue=queue, **LINK), stock=True) as it:
        lossless, lossy = it.udp_sink("h2", 5000), it.udp_sink("h3", 5001)
        congesting = [it.udp_source(name, "h2", tos=3 << 5) for name in ("h0", "h1")]
        other = it.udp_source("h0", "h3", 5001)
        for source in congesting:
            send(source, 300, payload_of(FRAME))
        send(other, 50, payload_of(FRAME))
        # Class 3 goes first but is paused half of the time; class 0 gets the other half.
        time.sleep(250 * FRAME_NS / 1e9)
        assert len(lossy.drain()) == 50
        assert len(lossless.drain()) < 300
        time.sleep(_drain_time_s(600))
        ports = _ports(it)
        assert ports["h0", "s"].queue.pauses > 0
        assert ports["h0", "s"].queue.paused_ns > 100 * FRAME_NS
        assert all(port.queue.drops == 0 for port in ports.values())
        reaction = it.controller().reaction()
        assert reaction is not None and reaction.worst_ns <= reaction.allowed_ns
        assert it.waiting() == {}


def test_the_lossy_class_is_not_paused_and_leaves_room_for_the_lossless_one() -> None:
    queue = _lossless(lossy_priorities=[0], buffer=200_000)
    made = star(4, queue=queue, **LINK)
    headroom = 4 * headroom_bytes(made.links[0])
    with lab(made, stock=True) as it:
        sink = it.udp_sink("h3")
        _incast(it, ["h0", "h1"], "h3", 300)
        for source in [it.udp_source("h2", "h3", tos=3 << 5)]:
            send(source, 300, payload_of(FRAME))
        time.sleep(_drain_time_s(900))
        ports = _ports(it)
        # A link of class 3 fills the port, so that nothing of class 0 leaves meanwhile: what
        # exceeds the buffer less everybody's headroom is lost, and nothing else.
        dropped = ports["s", "h3"].queue
        assert dropped.drops == dropped.drops_by_reason["buffer"] > 0
        assert 600 - (200_000 - headroom) / FRAME - 20 < dropped.drops
        packets = sink.drain()
        assert len(packets) == 900 - dropped.drops
        assert it.memory_word("s", "h3", "DROPS_BUFFER", 3) == 0
        assert ports["h0", "s"].queue.pauses == ports["h1", "s"].queue.pauses == 0


def test_a_discipline_that_cannot_be_paused_is_refused_by_name() -> None:
    mixed = line(2, queue=_lossless(), queues={"a": {"kind": "codel"}})
    assert any("a codel queue cannot be paused" in text for text in missing_for_fabric(mixed))
    with (
        pytest.raises(UnsupportedPort, match="a-eth0: a codel queue cannot be paused"),
        lab(mixed, stock=True),
    ):
        pass


def test_this_kernel_can_run_them() -> None:
    for kind in ("shared", "voq", "lossless"):
        assert missing_for_fabric(line(2, queue={"kind": kind})) == []
