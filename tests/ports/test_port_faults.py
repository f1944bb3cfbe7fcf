"""Faults of a running link, samples over time, and requests that the kernel must refuse."""

from __future__ import annotations

import math
import time
from itertools import pairwise

import pytest

from emulator.linux.netlink import NetlinkError
from emulator.linux.rtnetlink import delete_qdisc, qdisc
from emulator.ports.arrangement import tbf_options
from emulator.ports.own_queues import QueueArrangement, Sampling
from emulator.ports.port_qdisc import Flag, PortOptions, QueueKind, read_samples
from testing.queue_lab import frame_ns, lab, line, payload_of, send, send_paced
from topologies.units import q32

pytestmark = pytest.mark.guest

FRAME = 1514


@pytest.mark.parametrize(("field", "reason"), [("loss_q32", "loss"), ("corrupt_q32", "corruption")])
def test_losses_have_their_probability_and_take_their_time(field: str, reason: str) -> None:
    count, p = 4000, 0.05
    lost = []
    for seed in (1, 1, 2):
        with lab(line(1), seed=seed) as it:
            it.change("a", "b", **{field: q32(p)})
            sink = it.udp_sink("b")
            source = it.udp_source("a", "b")
            start = time.clock_gettime_ns(time.CLOCK_REALTIME)
            send(source, count, payload_of(FRAME))
            time.sleep(0.01)
            packets = sink.drain()
            got = {p.sequence for p in packets}
            lost.append(sorted(set(range(count)) - got))
            assert it.statistics("a", "b").drops[reason] == len(lost[-1])
            # A lost packet has used the link all the same.
            last = packets[-1]
            expected = (last.sequence + 1) * frame_ns(FRAME, 100_000_000_000) + 500
            assert 0 <= last.time_ns - start - expected < 1
    assert abs(len(lost[0]) - count * p) <= 4 * math.sqrt(count * p * (1 - p))
    assert lost[0] == lost[1] != lost[2]


def test_a_link_that_is_down_carries_nothing_until_it_is_up() -> None:
    with lab(line(1)) as it:
        sink, source = it.udp_sink("b"), it.udp_source("a", "b")
        it.change("a", "b", flags=Flag.DOWN)
        send(source, 10, 100)
        time.sleep(0.001)
        assert sink.drain() == []
        assert it.statistics("a", "b").drops["link_down"] == 10
        it.change("a", "b", flags=Flag(0))
        send(source, 10, 100, first=10)
        time.sleep(0.001)
        assert [p.sequence for p in sink.drain()] == list(range(10, 20))


def test_a_new_delay_holds_from_the_next_packet_and_reorders_nothing() -> None:
    with lab(line(1)) as it:
        sink, source = it.udp_sink("b"), it.udp_source("a", "b")
        for extra in (7_000, 0):
            it.change("a", "b", extra_delay_ns=extra)
            send(source, 1, 1000, first=extra)
        time.sleep(0.001)
        first, second = sink.drain()
        assert (first.sequence, second.sequence) == (7_000, 0)
        assert first.time_ns == second.time_ns
        start = time.clock_gettime_ns(time.CLOCK_REALTIME)
        send(source, 1, 1000)
        time.sleep(0.001)
        expected = frame_ns(1042, 100_000_000_000) + 500
        assert 0 <= sink.drain()[0].time_ns - start - expected < 1


def test_a_new_rate_holds_from_the_next_packet() -> None:
    with lab(line(1)) as it:
        sink, source = it.udp_sink("b"), it.udp_source("a", "b")
        start = time.clock_gettime_ns(time.CLOCK_REALTIME)
        send(source, 3, payload_of(FRAME))
        it.change("a", "b", rate_bps=10_000_000_000)
        time.sleep(0.001)
        times = [p.time_ns - start - 500 for p in sink.drain()]
        fast, slow = frame_ns(FRAME, 100_000_000_000), frame_ns(FRAME, 10_000_000_000)
        # The change rounds the moment at which the port is free up to a whole nanosecond.
        assert times == [pytest.approx(fast + i * slow, abs=2) for i in range(3)]


def test_samples_follow_the_backlog() -> None:
    frame, count, interval = FRAME, 40, 500
    sampling = Sampling(interval, frozenset({"a-eth0"}))
    with lab(line(1, rate="10Gbps"), sampling=sampling) as it:
        it.udp_sink("b")
        source = it.udp_source("a", "b")
        time.sleep(0.001)
        start = time.monotonic_ns()
        send(source, count, payload_of(frame))
        time.sleep(0.001)
        with it.network.enter("a"):
            samples = list(read_samples())
    assert samples[0].backlog_bytes == samples[-1].backlog_bytes == 0
    assert all((s.time_ns - samples[0].time_ns) % interval == 0 for s in samples)
    for sample in samples[1:]:
        begun = math.ceil((sample.time_ns - start) / frame_ns(frame, 10_000_000_000))
        assert sample.backlog_bytes == max(0, count - begun) * frame
    states = [(s.backlog_bytes, s.sent_bytes, s.ecn_marks, s.paused_classes) for s in samples]
    assert all(a != b for a, b in pairwise(states))


def test_samples_without_room_are_taken_at_twice_the_interval() -> None:
    frame, count, first, capacity = FRAME, 400, 500, 16
    sampling = Sampling(first, frozenset({"a-eth0"}), capacity, coarsens=True)
    with lab(line(1, rate="10Gbps"), sampling=sampling) as it:
        it.udp_sink("b")
        source = it.udp_source("a", "b")
        time.sleep(0.001)
        start = time.monotonic_ns()
        send(source, count, payload_of(frame))
        time.sleep(0.01)
        with it.network.enter("a"):
            samples = list(read_samples())
        statistics = it.statistics("a", "b")
    interval = samples[0].interval_ns
    lasted_ns = count * frame_ns(frame, 10_000_000_000)
    # As fine as the room allows: half the interval would not have fitted.
    assert lasted_ns / interval + 2 <= capacity < 2 * lasted_ns / interval + 4
    assert len(samples) <= capacity and interval % first == 0 and statistics.samples_lost == 0
    assert all((s.time_ns - samples[0].time_ns) % interval == 0 for s in samples)
    for before, sample in pairwise(samples[1:]):
        begun = math.ceil((sample.time_ns - start) / frame_ns(frame, 10_000_000_000))
        assert sample.backlog_bytes == max(0, count - begun) * frame
        assert sample.sent_bytes - samples[0].sent_bytes == min(begun, count) * frame
        assert sample.peak_bytes == before.backlog_bytes  # nothing came between them
    assert max(s.peak_bytes for s in samples) == statistics.max_backlog_bytes
    assert samples[-1].sent_bytes == statistics.tx_bytes


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"kind": QueueKind.DCTCP}, "keeps the kind"),
        ({"queues": 2, "quantum_bytes": 1}, "keeps the kind"),
        ({"rate_bps": 0}, "rate must be above 0"),
        ({"queues": 0}, "queues must be"),
        ({"queues": 2}, "quantum must be above 0"),
        ({"interval_ns": 5_000_000_000}, "interval must be below"),
        ({"sample_interval_ns": 5}, "samples need a capacity"),
    ],
)
def test_the_kernel_says_what_it_refuses(changed: dict[str, int], words: str) -> None:
    with lab(line(1)) as it, pytest.raises(NetlinkError, match=words):
        it.change("a", "b", **changed)


def test_a_port_is_a_root_only() -> None:
    with lab(line(1)) as it, it.network.netlink("a") as netlink:
        options = PortOptions(kind=QueueKind.DROPTAIL, rate_bps=1, delay_ns=0, buffer_bytes=1)
        ifindex = it.context("a", "b").ifindex
        shaper = qdisc(ifindex, "tbf", options=tbf_options(it.fabric.links[0], 100_000))
        leaf = qdisc(ifindex, "gwport", 0x10001, 0x20000, options.pack())
        netlink.execute([delete_qdisc(ifindex), shaper])
        with pytest.raises(NetlinkError, match="only be a device's root"):
            netlink.execute([leaf])
        assert isinstance(it.arrangement, QueueArrangement)
        netlink.execute(
            [delete_qdisc(ifindex), it.arrangement.options(it.context("a", "b")).add(ifindex)]
        )


def test_pacing_is_exact() -> None:
    # The sender's clock: packets paced in user space arrive at that pace to the nanosecond.
    with lab(line(1)) as it:
        sink = it.udp_sink("b")
        times = send_paced(it.udp_source("a", "b"), 50, 1000, 3_000)
        time.sleep(0.001)
        assert {p.time_ns - t for p, t in zip(sink.drain(), times, strict=True)} == {586}


def test_a_pulled_cable_loses_what_waits_and_carries_again_when_put_back() -> None:
    with lab(line(2, rate="1Gbps")) as it:
        sink, source = it.udp_sink("b"), it.udp_source("a", "b")
        send(source, 100, payload_of(FRAME))
        time.sleep(10.5 * frame_ns(FRAME, 1_000_000_000) / 1e9)
        it.network.set_link(0, up=False)
        time.sleep(0.01)
        arrived = len(sink.drain())
        assert 8 <= arrived <= 10
        assert it.statistics("a", "s0").drops["link_down"] == 100 - 10
        it.network.set_link(0, up=True)
        time.sleep(0.01)
        assert sink.drain() == []
        send(source, 5, 100, first=500)
        time.sleep(0.001)
        assert [p.sequence for p in sink.drain()] == list(range(500, 505))
        statistics = it.statistics("a", "s0")
        assert statistics.backlog_packets == statistics.inflight_packets == 0
