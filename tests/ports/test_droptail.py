"""Drop-tail: loses exactly what exceeds the buffer, which is counted in bytes."""

from __future__ import annotations

import time

import pytest

from testing.queue_lab import fabric, lab, line, payload_of, send

pytestmark = pytest.mark.guest


@pytest.mark.parametrize("frame", [64, 777, 1514])
@pytest.mark.parametrize("buffer", [1514, 20_000, 100_001])
def test_a_burst_loses_what_exceeds_the_buffer(frame: int, buffer: int) -> None:
    with lab(line(1, queues={"a": {"kind": "droptail", "buffer": buffer}})) as it:
        sink, source = it.udp_sink("b"), it.udp_source("a", "b")
        fits = 1 + buffer // frame  # one in transmission, the others wait
        for burst in (fits, fits + 1, 3 * fits):
            before = it.statistics("a", "b")
            send(source, burst, payload_of(frame))
            time.sleep(0.01)
            after = it.statistics("a", "b")
            assert [p.sequence for p in sink.drain()] == list(range(fits))
            assert after.drops["buffer"] - before.drops["buffer"] == burst - fits
            assert after.dropped == after.drops["buffer"]
        assert after.max_backlog_bytes == (fits - 1) * frame


def test_two_senders_lose_what_the_port_can_neither_send_nor_hold() -> None:
    frame, count, buffer = 1514, 400, 50_000
    links = [("a", "s"), ("b", "s"), ("s", "sink")]
    with lab(fabric(links, queues={"s": {"kind": "droptail", "buffer": buffer}})) as it:
        sink = it.udp_sink("sink")
        for source in [it.udp_source(name, "sink") for name in ("a", "b")]:
            send(source, count, payload_of(frame))
        time.sleep(0.01)
        # Pairs arrive as fast as one packet leaves: the queue grows by one each time until it is
        # full, and then loses one of each pair.
        waiting = sent = lost = 0
        for _ in range(count):
            for _ in range(2):
                if (waiting + 1) * frame <= buffer or sent == 0:
                    waiting, sent = (waiting, 1) if sent == 0 else (waiting + 1, sent)
                else:
                    lost += 1
            waiting -= waiting > 0 and 1
        statistics = it.statistics("s", "sink")
        assert abs(statistics.drops["buffer"] - lost) <= 1
        assert len(sink.drain()) == 2 * count - statistics.drops["buffer"]


def test_higher_classes_go_first_and_count_apart() -> None:
    with lab(line(1)) as it:
        sink = it.udp_sink("b")
        low, high = it.udp_source("a", "b"), it.udp_source("a", "b", tos=5 << 5)
        send(low, 10, 1000)
        send(high, 10, 1000, first=100)
        time.sleep(0.001)
        order = [p.sequence for p in sink.drain()]
        assert order == [0, *range(100, 110), *range(1, 10)]
        statistics = it.statistics("a", "b")
        assert statistics.class_tx_bytes[0] == statistics.class_tx_bytes[5] == 10 * 1042


def test_the_mean_backlog_is_the_time_weighted_one() -> None:
    frame, count = 1514, 50
    with lab(line(1)) as it:
        it.udp_sink("b")
        source = it.udp_source("a", "b")
        before = it.statistics("a", "b")
        send(source, count, payload_of(frame))
        time.sleep(0.001)
        after = it.statistics("a", "b")
        # Packet i waits i serialisations: the integral of the backlog is the sum of the waits.
        one_ns = (frame + 24) * 8 / 100
        waits_ns = one_ns * count * (count - 1) / 2
        integral = (after.backlog_byte_us - before.backlog_byte_us) * 1000
        assert integral == pytest.approx(frame * waits_ns, rel=1e-3)
        assert after.wait_sum_ns - before.wait_sum_ns == pytest.approx(waits_ns, rel=1e-3)
        assert after.wait_max_ns == pytest.approx(one_ns * (count - 1), abs=1)
