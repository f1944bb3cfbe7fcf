"""Cells: how long a packet takes through the fabric of a switch, what egress ports grant, where
packets without credits wait, and which are lost."""

from __future__ import annotations

import time
from typing import Any

import pytest

from testing.queue_lab import frame_ns, lab, payload_of, send, star

pytestmark = pytest.mark.guest

FRAME, MTU, RATE_BPS, DELAY_NS, FABRIC_NS = 9014, 9000, 100 * 10**9, 500, 200
HEADER = 8


def _cells(**keys: Any) -> dict[str, Any]:
    return {"kind": "cells", "ports": 1, "links": 5, "link_rate": "100Gbps"} | keys


def _star(hosts: int, **keys: Any) -> Any:
    return star(hosts, mtu=MTU, delay=f"{DELAY_NS}ns", queue=_cells(**keys))


def _sources(it: Any, first: int, last: int, to: str) -> list[Any]:
    return [it.udp_source(f"h{i}", to) for i in range(first, last)]


def _over_a_link(cells_ns: list[float]) -> float:
    """Cells that one after the other take the link to an element, and then that from it."""
    come = free = 0.0
    for cell_ns in cells_ns:
        come += cell_ns
        free = max(free, come) + cell_ns
    return free


@pytest.mark.parametrize(("links", "cell"), [(1, 256), (5, 256), (5, 64), (100, 256)])
def test_a_packet_takes_its_cells_in_turn_over_all_links(links: int, cell: int) -> None:
    """Request and grant cross the fabric, two links each, and then the cells."""
    rate = 400 if links == 1 else 100
    keys = {"links": links, "cell": f"{cell}B", "link_rate": f"{rate}Gbps"}
    with lab(_star(2, **keys)) as it:
        sink, source = it.udp_sink("h1"), it.udp_source("h0", "h1")
        sent_ns = time.clock_gettime_ns(time.CLOCK_REALTIME)
        send(source, 1, payload_of(FRAME))
        time.sleep(0.001)
        (packet,) = sink.drain()
    carried = [cell] * (FRAME // cell) + [FRAME % cell]
    through = max(
        _over_a_link([(each + HEADER) * 8 / rate for each in carried[first::links]])
        for first in range(min(links, len(carried)))
    )
    at_ports = 2 * (frame_ns(FRAME, RATE_BPS) + DELAY_NS)
    expected = at_ports + 6 * FABRIC_NS + through
    assert packet.time_ns - sent_ns == pytest.approx(expected, abs=5)


def test_packets_keep_their_order_whatever_their_size() -> None:
    with lab(_star(2)) as it:
        sink, source = it.udp_sink("h1"), it.udp_source("h0", "h1")
        for number in range(200):
            send(source, 1, payload_of(FRAME if number % 3 else 70), first=number)
        time.sleep(0.002)
        assert [packet.sequence for packet in sink.drain()] == list(range(200))


def test_an_incast_waits_at_its_ingress_and_keeps_the_port_busy() -> None:
    """Eight cards have as much for one port: it never idles, and serves each card as often."""
    with lab(_star(9)) as it:
        sink = it.udp_sink("h8")
        for number, source in enumerate(_sources(it, 0, 8, "h8")):
            send(source, 100, payload_of(FRAME), first=1000 * number)
        time.sleep(0.002)
        packets = sink.drain()
        assert len(packets) == 800
        took = packets[-1].time_ns - packets[0].time_ns
        assert took == pytest.approx(799 * frame_ns(FRAME, RATE_BPS), abs=2)
        half = [packet.sequence // 1000 for packet in packets[:400]]
        assert all(abs(half.count(number) - 50) <= 1 for number in range(8))
        assert it.statistics("s", "h8").dropped == 0


def test_a_port_that_many_want_does_not_hold_up_others() -> None:
    """One host sends to a port in an incast and to another one: it gets what the first one leaves
    of its line, as its packets for the two wait apart."""
    with lab(_star(6)) as it:
        hot, free = it.udp_sink("h5"), it.udp_sink("h4")
        for source in _sources(it, 1, 4, "h5"):
            send(source, 200, payload_of(FRAME))
        to_hot, to_free = it.udp_source("h0", "h5"), it.udp_source("h0", "h4")
        for number in range(100):
            send(to_hot, 1, payload_of(FRAME), first=number)
            send(to_free, 1, payload_of(FRAME), first=number)
        time.sleep(0.003)
        came = [packet.time_ns for packet in free.drain()]
        assert len(came) == 100
        assert came[-1] - came[0] == pytest.approx(99 * 2 * frame_ns(FRAME, RATE_BPS), rel=0.01)
        assert len(hot.drain()) == 700


def test_a_card_that_is_full_loses_what_comes_and_others_nothing() -> None:
    """Two ports of a card share its buffer. An egress port is granted to both cards alike."""
    buffer = 20 * FRAME
    with lab(_star(5, ports=2, buffer=f"{buffer}B")) as it:
        sink = it.udp_sink("h4")
        for number, source in enumerate(_sources(it, 0, 3, "h4")):
            send(source, 100 if number < 2 else 15, payload_of(FRAME), first=1000 * number)
        time.sleep(0.003)
        found = [packet.sequence // 1000 for packet in sink.drain()]
        dropped = it.statistics("s", "h4").drops["buffer"]
        assert found.count(2) == 15
        assert dropped == 200 - found.count(0) - found.count(1)
        assert 70 < dropped < 120
        assert it.statistics("s", "h4").max_backlog_bytes <= 2 * buffer + 15 * FRAME


def test_what_finds_more_than_k_in_its_queue_is_marked() -> None:
    with lab(_star(3, k=f"{10 * FRAME}B")) as it:
        sink = it.udp_sink("h2")
        for source in [it.udp_source(f"h{i}", "h2", tos=2) for i in range(2)]:
            send(source, 60, payload_of(FRAME))
        time.sleep(0.002)
        marked = sum(packet.ecn == 3 for packet in sink.drain())
        assert marked == it.statistics("s", "h2").ecn_marks > 20


def test_a_fabric_of_a_cards_own_rate_lets_all_ports_be_busy() -> None:
    """A permutation over four cards of two ports: all of the fabric's links are needed, evenly."""
    with lab(_star(8, ports=2, links=7, link_rate="30Gbps")) as it:
        sinks = [it.udp_sink(f"h{i}") for i in range(8)]
        for i in range(8):
            send(it.udp_source(f"h{i}", f"h{(i + 3) % 8}"), 100, payload_of(FRAME))
        time.sleep(0.002)
        for sink in sinks:
            came = [packet.time_ns for packet in sink.drain()]
            assert len(came) == 100
            busy = 99 * frame_ns(FRAME, RATE_BPS)
            assert came[-1] - came[0] == pytest.approx(busy, rel=0.02)


def test_a_pulled_cable_loses_what_was_for_it_and_works_again() -> None:
    with lab(_star(3)) as it:
        sink = it.udp_sink("h2")
        for source in _sources(it, 0, 2, "h2"):
            send(source, 200, payload_of(FRAME))
        time.sleep(0.0001)
        it.network.set_link(2, up=False)
        time.sleep(0.01)
        assert it.statistics("s", "h2").backlog_bytes == 0
        it.network.set_link(2, up=True)
        time.sleep(0.01)
        assert 100 < len(sink.drain()) < 400
        for source in _sources(it, 0, 2, "h2"):
            send(source, 200, payload_of(FRAME))
        time.sleep(0.01)
        assert len(sink.drain()) == 400
