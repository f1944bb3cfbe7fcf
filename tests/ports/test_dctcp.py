"""DCTCP: step marking on the instantaneous queue, and what it does to long flows at 100 Gb/s."""

from __future__ import annotations

import socket
import struct
import time
from dataclasses import dataclass

import pytest

from emulator.ports.own_queues import Sampling
from emulator.ports.port_qdisc import read_samples
from testing.queue_lab import CE, ECT0, fabric, lab, line, payload_of, send
from testing.tcp_flows import TcpFlow, transfer

pytestmark = pytest.mark.guest

_TCP_CC_INFO = 26


@pytest.mark.parametrize("kind", ["dctcp", "shared", "voq", "lossless"])
def test_marks_exactly_what_finds_more_than_k(kind: str) -> None:
    frame, k = 1514, 20_000
    queues = {"a": {"kind": kind, "k": k, "buffer": "4MB"}}
    with lab(line(1, queues=queues)) as it:
        sink, source = it.udp_sink("b"), it.udp_source("a", "b", tos=ECT0)
        send(source, 60, payload_of(frame))
        time.sleep(0.001)
        marked = [p.sequence for p in sink.drain() if p.ecn == CE]
        # Packet 0 goes into transmission; packet i finds i - 1 in the queue.
        assert marked == [i for i in range(60) if (i - 1) * frame > k]
        assert it.statistics("a", "b").ecn_marks == len(marked)


def test_what_cannot_be_marked_is_let_through_and_counted() -> None:
    with lab(line(1, queues={"a": {"kind": "dctcp", "k": 10_000}})) as it:
        sink, source = it.udp_sink("b"), it.udp_source("a", "b")
        send(source, 50, payload_of(1514))
        time.sleep(0.001)
        assert len(sink.drain()) == 50
        statistics = it.statistics("a", "b")
        assert (statistics.ecn_marks, statistics.ecn_refused) == (0, 42)


@dataclass
class _LongFlows:
    utilisation: float
    mark_rate: float
    alpha: float
    backlogs: list[int]
    marks: int
    ce_received: int


def _long_flows(k_bytes: int) -> _LongFlows:
    """Two flows from hosts of their own through one 100 Gb/s port, RTT 21 us, after 3 ms."""
    rate_bps, warm_up_s, measured_s = 100_000_000_000, 0.003, 0.006
    queue = {"kind": "dctcp", "k": k_bytes, "buffer": "4MB"}
    links = [("h0", "s"), ("h1", "s"), ("s", "to")]
    alphas: list[float] = []
    window: list[tuple[int, int, int]] = []
    the_fabric = fabric(links, delay="5us", queues={"s": queue})
    sampling = Sampling(1000, frozenset({"s-eth2"}))
    with lab(the_fabric, congestion_control="dctcp", ecn=True, sampling=sampling) as it:

        def port() -> tuple[int, int, int]:
            statistics = it.statistics("s", "to")
            return statistics.wire_bytes, statistics.ecn_marks, statistics.tx_packets

        def watch(flows: list[TcpFlow]) -> None:
            time.sleep(warm_up_s)
            window.append(port())
            for _ in range(200):
                time.sleep(measured_s / 200)
                for flow in flows:
                    assert flow.sender is not None
                    info = flow.sender.getsockopt(socket.IPPROTO_TCP, _TCP_CC_INFO, 16)
                    alphas.append(struct.unpack("=HHIII", info)[2] / 1024)
            window.append(port())

        transfer(it, [("h0", "to"), ("h1", "to")], seconds=0, during=watch)
        with it.network.enter("s"):
            backlogs = [s.backlog_bytes for s in read_samples()]
        marks = it.statistics("s", "to").ecn_marks
        received = it.network.tcp_counters()["to"].ce_packets_received
    (wire0, marks0, packets0), (wire1, marks1, packets1) = window
    return _LongFlows(
        utilisation=(wire1 - wire0) * 8 / (rate_bps * measured_s),
        mark_rate=(marks1 - marks0) / (packets1 - packets0),
        alpha=sum(alphas) / len(alphas),
        backlogs=backlogs[len(backlogs) // 2 :],
        marks=marks,
        ce_received=received,
    )


def test_long_flows_fill_the_link_when_k_is_above_the_guideline() -> None:
    # K > C * RTT / 7 (Alizadeh et al., SIGCOMM 2010, section 3.4): 37.5 KB at 100 Gb/s and 21 us.
    k = 65_000
    got = _long_flows(k)
    assert got.utilisation >= 0.98
    # The queue oscillates around K: both sides of it, and never far above.
    assert min(got.backlogs) < k < max(got.backlogs) < 3 * k
    # Each packet that a port marked has come in marked, no more and no less.
    assert got.marks == got.ce_received > 0
    # alpha is the sender's estimate of the marked fraction (RFC 8257 section 3.3).
    assert got.alpha == pytest.approx(got.mark_rate, rel=0.25)


def test_long_flows_leave_the_link_idle_when_k_is_far_below_it() -> None:
    assert _long_flows(3_000).utilisation < 0.95
