"""Lossless queues: nothing is lost with enough headroom, and what that costs others."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import pytest

from emulator.network.deadlock import find_deadlocks
from testing.queue_lab import Lab, fabric, lab, payload_of, ring, send, star
from topologies.fabrics.fabric import headroom_bytes

pytestmark = pytest.mark.guest

FRAME, MTU = 9014, 9000


def _lossless(**changes: Any) -> dict[str, Any]:
    return {"kind": "lossless", "xoff": 100_000, "xon": 80_000, "buffer": "100MB"} | changes


def _incast(it: Lab, senders: list[str], to: str, count: int, tos: int = 0) -> None:
    for source in [it.udp_source(name, to, tos=tos) for name in senders]:
        send(source, count, payload_of(FRAME))


@pytest.mark.parametrize("senders", [2, 8, 64])
def test_incast_loses_nothing(senders: int) -> None:
    count = 1600 // senders
    names = [f"h{i}" for i in range(senders)]
    the_fabric = star(senders + 1, mtu=MTU, delay="1us", queue=_lossless())
    headroom = headroom_bytes(the_fabric.links[0])
    with lab(the_fabric) as it:
        to = f"h{senders}"
        sink = it.udp_sink(to)
        _incast(it, names, to, count)
        time.sleep(0.005)
        packets = sink.drain()
        assert len(packets) == senders * count
        statistics = it.all_statistics()
        assert all(s.dropped == 0 for s in statistics.values())
        # The last port never idles: pausing its sources costs it nothing.
        took = packets[-1].time_ns - packets[0].time_ns
        assert took == pytest.approx((senders * count - 1) * (FRAME + 24) * 8 / 100, abs=2)
        for name in names:
            assert statistics["s", name].ingress_max_bytes <= 100_000 + headroom
            if count * FRAME > 100_000 + headroom:
                assert statistics[name, "s"].pauses == statistics["s", name].xoffs_sent > 0
                assert statistics[name, "s"].paused_ns > 0
            assert statistics[name, "s"].pauses == statistics[name, "s"].resumes


@pytest.mark.parametrize("delay_ns", [100, 5_000])
def test_headroom_is_used_up_to_what_the_link_needs(delay_ns: int) -> None:
    links = [("h0", "s"), ("h1", "s"), ("s", "to")]
    # The last port is slow, so that next to nothing leaves while the pause takes effect.
    slow = {("s", "to"): "1Gbps"}
    the_fabric = fabric(links, mtu=MTU, delay=f"{delay_ns}ns", queue=_lossless(), rates=slow)
    headroom = headroom_bytes(the_fabric.links[0])
    on_the_wire = 2 * 100 * delay_ns // 8
    with lab(the_fabric) as it:
        sink = it.udp_sink("to")
        # Also on the way back, so that a pause frame has to wait for a frame in transmission.
        it.udp_sink("h0")
        _incast(it, ["h1"], "h0", 100)
        _incast(it, ["h0", "h1"], "to", 100)
        time.sleep(0.02)
        assert len(sink.drain()) == 200
        used = it.statistics("s", "h0").ingress_max_bytes - 100_000
        assert on_the_wire * MTU / (MTU + 38) < used <= headroom
        # The formula is no more than about two frames above what this traffic made of it.
        assert headroom - used < 2.5 * FRAME


def test_too_little_headroom_loses_packets_and_says_so() -> None:
    queue = _lossless(headroom=20_000)
    with lab(star(3, mtu=MTU, delay="5us", queue=queue)) as it:
        sink = it.udp_sink("h2")
        _incast(it, ["h0", "h1"], "h2", 400)
        time.sleep(0.003)
        statistics = it.statistics("s", "h2")
        assert statistics.drops["headroom"] == statistics.dropped > 0
        assert len(sink.drain()) == 800 - statistics.dropped


def test_a_buffer_smaller_than_the_thresholds_loses_packets() -> None:
    queue = _lossless(buffer=150_000)
    with lab(star(5, mtu=MTU, queues={"s": queue})) as it:
        it.udp_sink("h4")
        _incast(it, ["h0", "h1", "h2", "h3"], "h4", 100)
        time.sleep(0.003)
        statistics = it.statistics("s", "h4")
        assert statistics.drops["buffer"] == statistics.dropped > 0


def _victim(queue: dict[str, Any]) -> float:
    """How much of what an unconcerned flow has sent arrives while others congest their own port.

    h0 -> hot and h1 -> cool share the link s0 - s1; h2 and h3 congest the port to hot.
    """
    links = [("h0", "s0"), ("h1", "s0"), ("s0", "s1"), ("h2", "s1"), ("h3", "s1")]
    links += [("s1", "hot"), ("s1", "cool")]
    queues, rates = {"s0": queue, "s1": queue}, {("s0", "s1"): "200Gbps"}
    with lab(fabric(links, mtu=MTU, queues=queues, rates=rates)) as it:
        it.udp_sink("hot")
        cool = it.udp_sink("cool")
        _incast(it, ["h0", "h2", "h3"], "hot", 600)
        send(it.udp_source("h1", "cool"), 600, payload_of(FRAME))
        time.sleep(300 * (FRAME + 24) * 8 / 100e9)
        arrived = len(cool.drain())
        time.sleep(0.005)
        return arrived / 300


def test_a_victim_is_slowed_by_head_of_line_blocking() -> None:
    assert _victim({"kind": "droptail", "buffer": "1MB"}) > 0.97
    # s1 takes from s0 as much for `cool` as for `hot`, which is a share of the hot port.
    assert _victim(_lossless()) < 0.6


def test_pauses_go_upstream_hop_by_hop() -> None:
    links = [("h0", "s0"), ("s0", "s1"), ("s1", "s2"), ("h1", "s2"), ("s2", "to")]
    with lab(fabric(links, mtu=MTU, queue=_lossless())) as it:
        sink = it.udp_sink("to")
        _incast(it, ["h0", "h1"], "to", 500)
        time.sleep(0.01)
        assert len(sink.drain()) == 1000
        statistics = it.all_statistics()
        paused = [statistics[port].paused_ns for port in (("s1", "s2"), ("s0", "s1"), ("h0", "s0"))]
        assert paused[0] > paused[1] > paused[2] > 0
        assert sum(s.dropped for s in statistics.values()) == 0


def test_a_pulled_cable_takes_its_pauses_with_it() -> None:
    with lab(star(3, mtu=MTU, queue=_lossless())) as it:
        sink = it.udp_sink("h2")
        _incast(it, ["h0", "h1"], "h2", 200)
        time.sleep(0.00012)
        while not it.statistics("h0", "s").paused_classes:
            time.sleep(0.000001)
        it.network.set_link(0, up=False)
        time.sleep(0.01)
        it.network.set_link(0, up=True)
        time.sleep(0.01)
        before = len(sink.drain())
        assert 200 < before < 400
        assert it.statistics("h0", "s").paused_classes == 0
        _incast(it, ["h0", "h1"], "h2", 200)
        time.sleep(0.01)
        assert len(sink.drain()) == 400
        statistics = it.all_statistics()
        assert statistics["s", "h2"].dropped == 0
        assert statistics["h0", "s"].pauses > 1


def test_a_pause_stops_its_class_only() -> None:
    queue = _lossless(lossy_priorities=[0], buffer=2_000_000)
    with lab(star(4, mtu=MTU, queues={"s": queue})) as it:
        lossless, lossy = it.udp_sink("h2", 5000), it.udp_sink("h3", 5001)
        congesting = [it.udp_source(name, "h2", tos=3 << 5) for name in ("h0", "h1")]
        other = it.udp_source("h0", "h3", 5001)
        for source in congesting:
            send(source, 600, payload_of(FRAME))
        time.sleep(0.0001)
        send(other, 100, payload_of(FRAME))
        time.sleep(0.0003)
        # Class 3 goes first but is paused half of the time; class 0 gets the other half.
        assert it.statistics("h0", "s").paused_classes in (0, 1 << 3)
        assert it.statistics("h0", "s").backlog_packets > 0
        assert len(lossy.drain()) == 100
        time.sleep(0.005)
        assert len(lossless.drain()) == 1200
        statistics = it.statistics("h0", "s")
        assert statistics.class_paused_ns[3] == statistics.paused_ns > 0
        assert statistics.class_paused_ns[0] == 0


def test_the_lossy_class_does_not_take_the_room_of_the_lossless_one() -> None:
    queue = _lossless(lossy_priorities=[0], buffer=1_500_000)
    with lab(star(4, mtu=MTU, queues={"s": queue})) as it:
        sink = it.udp_sink("h3")
        _incast(it, ["h0", "h1"], "h3", 300)
        _incast(it, ["h2"], "h3", 300, tos=3 << 5)
        time.sleep(0.005)
        statistics = it.statistics("s", "h3")
        assert statistics.class_drops[3] == 0
        assert statistics.class_drops[0] == statistics.drops["buffer"] > 0
        assert len(sink.drain()) == 900 - statistics.class_drops[0]


@dataclass
class _Ring:
    """Three switches in a ring, every flow two links around it."""

    received: int
    deadlocks: list[str]
    waiting: list[int]
    ports: list[str]


def _ring(queue: dict[str, Any]) -> _Ring:
    with lab(ring(queue, mtu=MTU)) as it:
        around = it.route_around()
        sinks = [it.udp_sink(f"h{i}") for i in range(3)]
        sources = [it.udp_source(f"h{i}", f"h{(i + 2) % 3}") for i in range(3)]
        for source in sources:
            send(source, 400, payload_of(FRAME))

        def waiting() -> list[int]:
            return [it.statistics(f"s{i}", f"s{(i + 1) % 3}").backlog_packets for i in range(3)]

        time.sleep(0.01)
        before = waiting()
        found = [str(deadlock) for deadlock in find_deadlocks(it.network)]
        time.sleep(1)
        assert waiting() == before
        received = sum(len(sink.drain()) for sink in sinks)
        return _Ring(received, found, before, around)


def test_a_ring_of_switches_deadlocks_and_is_said_to() -> None:
    got = _ring(_lossless())
    assert got.received < 1200 and all(got.waiting)
    order = " -> ".join([*got.ports, got.ports[0]])
    assert got.deadlocks == [f"deadlock of lossless queues, class 0: {order}"]


def test_the_same_ring_without_pauses_does_not() -> None:
    got = _ring({"kind": "droptail", "buffer": "100MB"})
    assert (got.received, got.deadlocks, got.waiting) == (1200, [], [0, 0, 0])
