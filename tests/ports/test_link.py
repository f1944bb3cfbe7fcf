"""A link of the virtual kernel, against physics: serialisation, propagation, sharing."""

from __future__ import annotations

import time
from typing import Any

import pytest

from testing.queue_lab import ECT0, ETHERNET, fabric, frame_ns, lab, line, payload_of, send
from testing.tcp_flows import transfer

pytestmark = pytest.mark.guest

WIRE = ETHERNET + 24  # what a packet of MTU size has on the wire beyond the MTU
TCP_HEADERS = 52  # IPv4 20, TCP 20, timestamps 12


@pytest.mark.parametrize("hops", [1, 2, 4, 6])
@pytest.mark.parametrize("rate_bps", [1_000_000_000, 100_000_000_000, 800_000_000_000])
def test_a_packet_takes_the_sum_of_serialisation_and_propagation(hops: int, rate_bps: int) -> None:
    with lab(line(hops, rate=f"{rate_bps}bps", delay="777ns")) as it:
        sink, source = it.udp_sink("b"), it.udp_source("a", "b")
        for frame in (43, 60, 61, 777, 1514):
            offset = time.clock_gettime_ns(time.CLOCK_REALTIME)
            send(source, 1, payload_of(frame))
            time.sleep(0.001)
            (packet,) = sink.drain()
            expected = hops * (frame_ns(frame, rate_bps) + 777)
            assert 0 <= packet.time_ns - offset - expected < hops


def _send_train(it: Any, hops: int, rate_bps: int, count: int, frame: int, **options: int) -> None:
    """Send packets in a row: all arrive, in order, each within a nanosecond per hop of its time."""
    sink, source = it.udp_sink("b"), it.udp_source("a", "b", **options)
    start = time.clock_gettime_ns(time.CLOCK_REALTIME)
    send(source, count, payload_of(frame))
    time.sleep(0.01)
    packets = sink.drain()
    assert [p.sequence for p in packets] == list(range(count))
    for i, packet in enumerate(packets):
        expected = (i + hops) * frame_ns(frame, rate_bps) + hops * 500
        assert 0 <= packet.time_ns - start - expected < hops


def test_a_train_of_packets_leaves_without_drift() -> None:
    # 1538 bytes at 33.33 Gb/s take 369.157... ns: the fraction must be carried, not dropped.
    rate_bps, count, frame = 33_330_000_000, 5000, 1514
    with lab(line(2, rate=f"{rate_bps}bps")) as it:
        _send_train(it, hops=2, rate_bps=rate_bps, count=count, frame=frame)


@pytest.mark.parametrize(
    "queue",
    [
        {"kind": "droptail"},
        {"kind": "dctcp", "k": "1500B"},
        {"kind": "red", "kmin": "3KB", "kmax": "30KB"},
        {"kind": "codel"},
        {"kind": "shared", "alpha": 1},
        {"kind": "voq"},
        {"kind": "lossless", "xoff": "3KB", "xon": "2KB"},
    ],
    ids=lambda queue: queue["kind"],
)
def test_a_train_at_line_rate_meets_no_queue_on_further_links(queue: dict[str, Any]) -> None:
    # Frames of 369.157... ns arrive in whole nanoseconds: some of them before, some of them after
    # the one in which the port becomes free. Neither may let two of them wait, nor lose any time.
    rate_bps, count, frame, hops = 33_330_000_000, 2000, 1514, 5
    with lab(line(hops, rate=f"{rate_bps}bps", queue={"buffer": "1MB"} | queue)) as it:
        _send_train(it, hops=hops, rate_bps=rate_bps, count=count, frame=frame, tos=ECT0)
        for i in range(hops - 1):
            port = it.statistics(f"s{i}", f"s{i + 1}" if i < hops - 2 else "b")
            assert port.tx_packets == port.delivered_packets == count
            assert port.max_backlog_bytes == frame and port.backlog_bytes == 0
            assert port.wait_max_ns <= 1
            assert port.ecn_marks == port.pauses == port.switch_bytes == port.ingress_bytes == 0


@pytest.mark.parametrize("mtu", [1500, 9000])
@pytest.mark.parametrize("gbps", [1, 10, 100, 400, 800])
def test_one_tcp_flow_gets_the_goodput_that_headers_leave(gbps: int, mtu: int) -> None:
    limit = gbps * 1e9 * (mtu - TCP_HEADERS) / (mtu + WIRE)
    size_bytes = 10**8
    with lab(line(1, rate=f"{gbps}Gbps", delay="1us", mtu=mtu)) as it:
        (flow,) = transfer(it, [("a", "b")], size_bytes)
        # Both ends of the interval are whole nanoseconds.
        interval_ns = 0.8 * size_bytes * 8e9 / limit
        assert 0.995 * limit <= flow.steady_bps() <= limit * (1 + 2 / interval_ns)


def _shares(flows: int) -> list[float]:
    """Goodputs of flows from hosts of their own that meet at one port, after they have settled."""
    links = [(f"h{i}", "s") for i in range(flows)] + [("s", "sink")]
    queue = {"kind": "dctcp", "k": "200KB", "buffer": "4MB"}
    with lab(fabric(links, rate="25Gbps", mtu=9000, queue=queue), congestion_control="dctcp") as it:
        pairs = [(f"h{i}", "sink") for i in range(flows)]
        got = transfer(it, pairs, seconds=0.06, low_water_bytes=32_000)
        end = max(f.points[-1][0] for f in got)
        return [f.goodput_bps(end - 50e6, end - 10e6) for f in got]


def test_two_flows_share_a_port_equally() -> None:
    a, b = _shares(2)
    assert a / (a + b) == pytest.approx(0.5, abs=0.01)


def test_ten_flows_share_a_port_fairly() -> None:
    goodputs = _shares(10)
    jain = sum(goodputs) ** 2 / (len(goodputs) * sum(g * g for g in goodputs))
    assert jain >= 0.99


def test_tcp_takes_no_more_than_its_small_queue_of_a_port() -> None:
    # A socket's packets count against TCP's limit until they have left the port, as with a NIC:
    # tcp_limit_output_bytes (1 MiB and at most two packets more), not the congestion window.
    with lab(line(1, rate="100Gbps", mtu=9000)) as it:
        transfer(it, [("a", "b")], 40_000_000)
        assert 200_000 < it.statistics("a", "b").max_backlog_bytes < (1 << 20) + 2 * 9014


def test_held_packets_come_together_and_none_is_lost() -> None:
    # 20 us at 100 Gb/s are 3000 small packets, more than the device's ring of 256 holds: the port
    # keeps those that have arrived until there is room.
    with lab(line(2), receive_coalescing_ns=20_000) as it:
        sink, source = it.udp_sink("b"), it.udp_source("a", "b")
        send(source, 4000, 4)
        time.sleep(0.001)
        packets = sink.drain()
        assert [p.sequence for p in packets] == list(range(4000))
        assert len({p.time_ns for p in packets}) < 400


@pytest.mark.parametrize("hold_ns", [0, 5_000])
def test_coalescing_saves_wake_ups_and_no_goodput(hold_ns: int) -> None:
    with lab(line(2, mtu=9000), receive_coalescing_ns=hold_ns) as it:
        (flow,) = transfer(it, [("a", "b")], 20_000_000, low_water_bytes=1)
        limit = 100e9 * (9000 - TCP_HEADERS) / (9000 + WIRE)
        assert flow.steady_bps() > 0.99 * limit
        assert (len(flow.points) < 600) == (hold_ns > 0)
