"""CoDel and FQ-CoDel against the pseudo-code of RFC 8289 and the promises of RFC 8290."""

from __future__ import annotations

import math
import time
from collections import deque

import pytest

from testing.queue_lab import CE, ECT0, frame_ns, lab, line, payload_of, send, send_paced

pytestmark = pytest.mark.guest

FRAME, MTU_FRAME = 1514, 1514
RATE_BPS = 1_000_000_000
TARGET_NS, INTERVAL_NS = 60_000, 1_000_000


def _codel(arrivals: list[int], ecn: bool) -> tuple[list[int], list[int]]:
    """RFC 8289 section 5, fed with arrival times: sequence numbers dropped, and those marked."""
    service = frame_ns(FRAME, RATE_BPS)
    queue: deque[tuple[int, int]] = deque()
    dropped: list[int] = []
    marked: list[int] = []
    first_above: float = 0
    drop_next: float = 0
    count = last_count = 0
    dropping = False
    free_at = 0.0
    waiting = [(i, time_ns - arrivals[0] + 1) for i, time_ns in enumerate(arrivals)][::-1]

    def pop(now: float) -> tuple[tuple[int, int] | None, bool]:
        nonlocal first_above
        if not queue:
            first_above = 0
            return None, False
        packet = queue.popleft()
        if now - packet[1] < TARGET_NS or len(queue) * FRAME <= MTU_FRAME:
            first_above = 0
            return packet, False
        if first_above == 0:
            first_above = now + INTERVAL_NS
            return packet, False
        return packet, now >= first_above

    def law(start: float) -> float:
        return start + math.isqrt(INTERVAL_NS**2 // count)

    while waiting or queue:
        if not queue:
            free_at = max(free_at, waiting[-1][1])
        now = math.ceil(free_at - 1e-6)
        while waiting and waiting[-1][1] <= now:
            queue.append(waiting.pop())
        packet, late = pop(now)
        if packet is None or not late:
            dropping = False
        elif not dropping:
            dropping = True
            delta = count - last_count
            count = delta if delta > 1 and now - drop_next < 16 * INTERVAL_NS else 1
            if ecn:
                marked.append(packet[0])
            else:
                dropped.append(packet[0])
                packet, late = pop(now)
            drop_next = law(now)
            last_count = count
        else:
            while packet is not None and dropping and now >= drop_next:
                count += 1
                if ecn:
                    marked.append(packet[0])
                    drop_next = law(drop_next)
                    break
                dropped.append(packet[0])
                packet, late = pop(now)
                if late:
                    drop_next = law(drop_next)
                else:
                    dropping = False
        if packet is not None:
            free_at += service
    return dropped, marked


@pytest.mark.parametrize("ecn", [False, True])
def test_acts_on_the_packets_that_the_rfc_acts_on(ecn: bool) -> None:
    codel = {"kind": "codel", "target": "60us", "interval": "1ms", "ecn": ecn}
    with lab(line(1, rate=f"{RATE_BPS}bps", queues={"a": codel})) as it:
        sink, source = it.udp_sink("b"), it.udp_source("a", "b", tos=ECT0)
        # Overload, a pause in which the queue drains, and overload again (with another count).
        arrivals = send_paced(source, 900, payload_of(FRAME), 10_000)
        time.sleep(0.004)
        arrivals += send_paced(source, 400, payload_of(FRAME), 9_000, first=900)
        time.sleep(0.03)
        packets = sink.drain()
        statistics = it.statistics("a", "b")
    dropped, marked = _codel(arrivals, ecn)
    assert len(dropped) + len(marked) > 5
    assert [p.sequence for p in packets if p.ecn == CE] == marked
    assert sorted(set(range(1300)) - {p.sequence for p in packets}) == dropped
    assert (statistics.drops["codel"], statistics.ecn_marks) == (len(dropped), len(marked))


def test_ce_threshold_marks_by_time() -> None:
    codel = {"kind": "codel", "ce_threshold": "100us"}
    with lab(line(1, rate=f"{RATE_BPS}bps", queues={"a": codel})) as it:
        sink, source = it.udp_sink("b"), it.udp_source("a", "b", tos=ECT0)
        send(source, 40, payload_of(FRAME))
        time.sleep(0.002)
        marked = [p.sequence for p in sink.drain() if p.ecn == CE]
    service = frame_ns(FRAME, RATE_BPS)
    assert marked == [i for i in range(40) if math.ceil(i * service) > 100_000]


def test_flows_share_whatever_each_of_them_sends() -> None:
    queue = {"kind": "fq_codel", "target": "10ms", "interval": "100ms"}
    with lab(line(1, rate=f"{RATE_BPS}bps", queues={"a": queue})) as it:
        sinks = [it.udp_sink("b", 5000 + i) for i in range(3)]
        sources = [it.udp_source("a", "b", 5000 + i) for i in range(3)]
        # One flow puts in three times as much as the other; the third a packet now and then.
        send(sources[0], 600, payload_of(FRAME))
        send(sources[1], 200, payload_of(FRAME))
        time.sleep(0.0001)
        sparse = send_paced(sources[2], 10, payload_of(200), 300_000)
        served_by = sparse[-1]
        counts = [len([p for p in sink.drain() if p.time_ns <= served_by]) for sink in sinks[:2]]
        time.sleep(0.02)
        rare = sinks[2].drain()
        assert abs(counts[0] - counts[1]) <= 2 and counts[0] > 90
        # A sparse flow goes first: it waits for the packet in transmission only.
        for sent, packet in zip(sparse, rare, strict=True):
            least = frame_ns(200, RATE_BPS) + 500
            assert least <= packet.time_ns - sent <= least + frame_ns(FRAME, RATE_BPS) + 2


def test_a_full_buffer_costs_the_longest_flow() -> None:
    queue = {"kind": "fq_codel", "buffer": 100 * FRAME}
    with lab(line(1, rate=f"{RATE_BPS}bps", queues={"a": queue})) as it:
        sinks = [it.udp_sink("b", 5000 + i) for i in range(2)]
        sources = [it.udp_source("a", "b", 5000 + i) for i in range(2)]
        send(sources[0], 300, payload_of(FRAME))
        send(sources[1], 30, payload_of(FRAME))
        time.sleep(0.02)
        assert len(sinks[1].drain()) == 30
        assert len(sinks[0].drain()) == 1 + 100 - 30
        assert it.statistics("a", "b").drops["buffer"] == 300 - 71
