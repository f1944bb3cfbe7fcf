"""RED: the marking probability follows the line, within its statistical error.

Draws are seeded, so each test either always passes or never does; the bounds are those that a right
implementation exceeds with a probability of less than 1e-4 (4 standard deviations).
"""

from __future__ import annotations

import math
import time
from typing import Any

import pytest

from testing.queue_lab import CE, ECT0, Lab, lab, line, payload_of, send

pytestmark = pytest.mark.guest

FRAME = 1000
RATE_BPS = 10_000_000_000
PACKET_NS = (FRAME + 24) * 8e9 / RATE_BPS
KMIN, KMAX, PMAX = 40_000, 160_000, 0.3


def _red(**changes: Any) -> dict[str, Any]:
    queue = {"kind": "red", "kmin": KMIN, "kmax": KMAX, "pmax": PMAX, "weight": 1}
    return {"a": queue | {"buffer": 1_000_000} | changes}


def _line(average: float) -> float:
    if average < KMIN:
        return 0
    return 1 if average >= KMAX else PMAX * (average - KMIN) / (KMAX - KMIN)


def _within(hits: int, probabilities: list[float]) -> bool:
    sigma = math.sqrt(sum(p * (1 - p) for p in probabilities))
    return abs(hits - sum(probabilities)) <= 4 * sigma + 1e-9


def _bursts(it: Lab, count: int, size: int, tos: int = ECT0) -> list[dict[int, int]]:
    """Per burst: sequence number -> ECN bits of what arrived."""
    sink, source = it.udp_sink("b"), it.udp_source("a", "b", tos=tos)
    found = []
    for _ in range(count):
        send(source, size, payload_of(FRAME))
        time.sleep(0.001)
        found.append({p.sequence: p.ecn for p in sink.drain()})
    return found


def test_marks_follow_the_line() -> None:
    with lab(line(1, rate=f"{RATE_BPS}bps", queues=_red())) as it:
        bursts = _bursts(it, 60, 200)
        statistics = it.statistics("a", "b")
    assert all(len(burst) == 200 for burst in bursts)
    marks = [[burst[i] == CE for burst in bursts] for i in range(200)]
    assert statistics.ecn_marks == sum(map(sum, marks))
    # Packet 0 goes into transmission; packet i finds i - 1 in the queue.
    for i, of_packet in enumerate(marks):
        p = _line((i - 1) * FRAME)
        assert p not in (0, 1) or sum(of_packet) == p * 60
    for first in range(41, 161, 20):
        chosen = range(first, first + 20)
        hits = sum(sum(marks[i]) for i in chosen)
        assert _within(hits, [_line((i - 1) * FRAME) for i in chosen for _ in range(60)])


def test_the_average_moves_by_its_weight_and_decays_while_idle() -> None:
    weight = 0.01
    with lab(line(1, rate=f"{RATE_BPS}bps", queues=_red(weight=weight))) as it:
        sink, source = it.udp_sink("b"), it.udp_source("a", "b", tos=ECT0)
        gaps_us = [10 + 12 * (i % 5) for i in range(150)]
        for gap in gaps_us:
            send(source, 180, payload_of(FRAME))
            time.sleep(gap * 1e-6 + 180 * PACKET_NS / 1e9)
        marks = [p.ecn == CE for p in sink.drain()]
    # Floyd and Jacobson's average, as the definition has it.
    average, probabilities = 0.0, []
    for burst, _ in enumerate(gaps_us):
        if burst:
            idle_ns = gaps_us[burst - 1] * 1000
            average *= (1 - weight) ** int(idle_ns / ((1500 + 38) * 8e9 / RATE_BPS))
        for i in range(180):
            average += weight * (max(i - 1, 0) * FRAME - average)
            probabilities.append(_line(average))
    assert 0.05 < sum(probabilities) / len(probabilities) < 0.25
    assert _within(sum(marks), probabilities)


def test_without_ecn_it_drops_by_the_same_line() -> None:
    with lab(line(1, rate=f"{RATE_BPS}bps", queues=_red(ecn=False))) as it:
        bursts = _bursts(it, 40, 300)
        statistics = it.statistics("a", "b")
    probabilities = []
    for burst in bursts:
        waiting = -1  # the first one does not wait
        for i in range(300):
            probabilities.append(_line(max(waiting, 0) * FRAME))
            waiting += i in burst
    dropped = sum(300 - len(burst) for burst in bursts)
    assert statistics.drops["red"] == statistics.dropped == dropped
    assert _within(dropped, probabilities)


def test_with_ecn_nothing_is_dropped_below_the_buffer() -> None:
    with lab(line(1, rate=f"{RATE_BPS}bps", queues=_red())) as it:
        (burst,) = _bursts(it, 1, 900, tos=0)
        statistics = it.statistics("a", "b")
    assert len(burst) == 900
    assert statistics.dropped == statistics.ecn_marks == 0
    assert statistics.ecn_refused > 700


def test_another_seed_draws_other_packets() -> None:
    def marked(seed: int) -> list[int]:
        with lab(line(1, rate=f"{RATE_BPS}bps", queues=_red()), seed=seed) as it:
            (burst,) = _bursts(it, 1, 160)
            return [i for i, ecn in burst.items() if ecn == CE]

    assert marked(1) == marked(1) != marked(2)
