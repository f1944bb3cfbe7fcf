"""Classes of traffic at a port: order, shares, and a queue discipline of its own for each."""

from __future__ import annotations

import socket
import time
from typing import Any

import pytest

from testing.queue_lab import CE, ECT0, Lab, fabric, lab, line, payload_of, send, star
from workloads.execution.traffic_class import TrafficClass

pytestmark = pytest.mark.guest

MTU, FRAME = 9000, 9014


def _classes(**classes: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "classes", "classes": classes}


def _class(priority: int, queue: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"priority": priority, "queue": queue or {"kind": "droptail", "buffer": "100MB"}} | more


def _order(it: Lab, tos: list[int], count: int, payload: int = 1000) -> list[int]:
    """The class selectors of packets as they come out, `count` of each having come in at once."""
    sink = it.udp_sink("b")
    sources = [it.udp_source("a", "b", tos=each) for each in tos]
    for number, source in enumerate(sources):
        send(source, count, payload, first=1000 * number)
    time.sleep(0.001)
    return [tos[packet.sequence // 1000] >> 5 for packet in sink.drain()]


def test_strict_classes_go_first_and_others_share_by_weight() -> None:
    queue = _classes(
        control=_class(6), bulk=_class(0, weight=1), train=_class(3, weight=3), other=_class(1)
    )
    with lab(line(1, queue=queue)) as it:
        order = _order(it, [0 << 5, 3 << 5, 6 << 5, 1 << 5], 40)
        assert len(order) == 160
        # The first packet found the port idle.
        assert order[:41] == [0] + [6] * 40
        assert order[41:81] == [1] * 40
        # Quanta are of full frames, 1538 bytes on the wire and three times that.
        while_both = order[81 : 81 + 50]
        assert while_both.count(3) / while_both.count(0) == pytest.approx(3, rel=0.15)
        statistics = it.statistics("a", "b")
        assert [statistics.class_tx_packets[n] for n in (0, 1, 3, 6)] == [40] * 4
        assert statistics.class_tx_bytes[3] == 40 * 1042


def test_shares_are_of_bytes_on_the_wire() -> None:
    queue = _classes(small=_class(0, weight=2), large=_class(1, weight=1))
    with lab(line(1, queue=queue)) as it:
        sink = it.udp_sink("b")
        small, large = it.udp_source("a", "b"), it.udp_source("a", "b", tos=1 << 5)
        send(small, 600, 200 - 42)
        send(large, 100, payload_of(1514), first=1000)
        time.sleep(0.001)
        order = [packet.sequence // 1000 for packet in sink.drain()]
        both = order[: max(i for i, each in enumerate(order) if each == 0)]
        sent = {each: both.count(each) * size for each, size in ((0, 224), (1, 1538))}
        assert sent[0] / sent[1] == pytest.approx(2, rel=0.05)


def test_packets_of_no_class_are_of_the_lowest() -> None:
    queue = _classes(low=_class(2), high=_class(5))
    with lab(line(1, queue=queue)) as it:
        order = _order(it, [7 << 5, 2 << 5, 5 << 5], 10)
        assert order == [7] + [5] * 10 + [7] * 9 + [2] * 10
        statistics = it.statistics("a", "b")
        assert statistics.class_tx_packets[2] == 20
        assert statistics.class_tx_packets[7] == 0


def test_each_class_has_its_own_buffer_and_marks() -> None:
    frame = 1514
    queue = _classes(
        bulk=_class(0, {"kind": "droptail", "buffer": 20 * frame}),
        marked=_class(1, {"kind": "dctcp", "k": 10 * frame, "buffer": "10MB"}),
    )
    with lab(fabric([("a", "s"), ("s", "b")], queue=queue, rates={("s", "b"): "1Gbps"})) as it:
        sink = it.udp_sink("b")
        bulk = it.udp_source("a", "b")
        marked = it.udp_source("a", "b", tos=1 << 5 | ECT0)
        send(bulk, 60, payload_of(frame))
        send(marked, 60, payload_of(frame), first=1000)
        time.sleep(0.01)
        packets = sink.drain()
        statistics = it.statistics("s", "b")
        assert statistics.class_drops[1] == 0
        assert statistics.class_drops[0] > 0
        assert statistics.class_max_backlog_bytes[0] == 20 * frame
        assert statistics.class_max_backlog_bytes[1] > 30 * frame
        found = sum(packet.ecn == CE for packet in packets)
        assert found == statistics.class_ecn_marks[1] == statistics.ecn_marks > 0
        assert len(packets) == 120 - statistics.class_drops[0]
        counters = {
            each.port: each.queue
            for each in it.network.port_counters()
            if each.node == "s" and each.peer == "b"
        }
        (port,) = counters.values()
        assert [(each.name, each.priority) for each in port.classes] == [("bulk", 0), ("marked", 1)]
        assert [each.drops for each in port.classes] == [statistics.class_drops[0], 0]
        assert port.classes[1].ecn_marks == found


def test_a_lossless_class_beside_one_that_may_be_lost() -> None:
    queue = _classes(
        bulk=_class(0, {"kind": "droptail", "buffer": "200KB"}),
        rdma=_class(3, {"kind": "lossless", "xoff": 100_000, "xon": 80_000}),
    )
    with lab(star(4, mtu=MTU, delay="1us", queue=queue)) as it:
        sink = it.udp_sink("h3")
        for name in ("h0", "h1", "h2"):
            send(it.udp_source(name, "h3"), 200, payload_of(FRAME))
            send(it.udp_source(name, "h3", tos=3 << 5), 200, payload_of(FRAME))
        time.sleep(0.02)
        statistics = it.all_statistics()
        last = statistics["s", "h3"]
        assert last.class_drops[3] == 0
        assert last.class_tx_packets[3] == 600
        assert last.class_drops[0] == last.drops["buffer"] > 0
        assert len(sink.drain()) == 1200 - last.class_drops[0]
        for name in ("h0", "h1", "h2"):
            assert statistics[name, "s"].class_paused_ns[3] > 0
            assert statistics[name, "s"].class_paused_ns[0] == 0
            # The host's own port marks and drops nothing.
            assert statistics[name, "s"].dropped == 0


@pytest.mark.parametrize("kind", ["red", "codel", "fq_codel", "shared", "voq"])
def test_every_discipline_can_be_that_of_a_class(kind: str) -> None:
    queue = _classes(plain=_class(0), special=_class(4, {"kind": kind, "buffer": "20MB"}))
    with lab(star(3, mtu=MTU, queue=queue)) as it:
        sink = it.udp_sink("h2")
        for name in ("h0", "h1"):
            for tos in (0, 4 << 5):
                send(it.udp_source(name, "h2", tos=tos), 50, payload_of(FRAME))
        time.sleep(0.005)
        statistics = it.statistics("s", "h2")
        assert len(sink.drain()) == 200
        assert (statistics.class_tx_packets[0], statistics.class_tx_packets[4]) == (100, 100)
        assert statistics.backlog_bytes == statistics.switch_bytes == 0


def test_the_sockets_of_a_task_begin_with_its_class() -> None:
    TrafficClass(sockets=5, rdma=3).use()
    try:
        with lab(line(1)) as it:
            it.udp_sink("b")
            with it.network.enter("a"):
                source = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            assert source.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) == 5 << 5
            source.connect((it.address("b"), 5000))
            send(source, 3, 100)
            source.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 1 << 5)
            send(source, 2, 100)
            time.sleep(0.001)
            sent = it.statistics("a", "b").class_tx_packets
            assert (sent[5], sent[1]) == (3, 2)
    finally:
        TrafficClass(rdma=1).use()  # as good as none, for sockets
