"""Shared buffers with dynamic thresholds, and virtual output queues."""

from __future__ import annotations

import time

import pytest

from testing.queue_lab import Lab, fabric, lab, payload_of, send, star

pytestmark = pytest.mark.guest

FRAME = 1514
BUFFER = 600_000


def _overload(it: Lab, sources: tuple[str, ...], to: str, count: int) -> None:
    for source in [it.udp_source(name, to) for name in sources]:
        send(source, count, payload_of(FRAME))


@pytest.mark.parametrize("alpha", [0.125, 0.5, 1, 4])
def test_one_queue_may_have_its_share_of_what_is_free(alpha: float) -> None:
    # In balance Q = alpha * (B - Q) (Choudhury and Hahne 1998, equation 3).
    queue = {"kind": "shared", "buffer": BUFFER, "alpha": alpha}
    with lab(star(3, queues={"s": queue})) as it:
        it.udp_sink("h2")
        _overload(it, ("h0", "h1"), "h2", 800)
        time.sleep(0.001)
        limit = alpha * BUFFER / (1 + alpha)
        statistics = it.statistics("s", "h2")
        assert limit - 2 * FRAME < statistics.max_backlog_bytes <= limit
        assert statistics.drops["buffer"] == statistics.dropped > 0
        assert statistics.switch_bytes == 0


def test_a_second_queue_takes_from_the_first() -> None:
    alpha = 1.0
    queue = {"kind": "shared", "buffer": BUFFER, "alpha": alpha}
    with lab(star(6, queues={"s": queue})) as it:
        it.udp_sink("h4"), it.udp_sink("h5")
        _overload(it, ("h0", "h1"), "h4", 8000)
        time.sleep(0.0003)
        alone = it.statistics("s", "h4").backlog_bytes
        assert alone == pytest.approx(alpha * BUFFER / (1 + alpha), abs=2 * FRAME)
        _overload(it, ("h2", "h3"), "h5", 4000)
        time.sleep(0.0004)
        # Q = alpha * (B - 2 Q)
        limit = alpha * BUFFER / (1 + 2 * alpha)
        for to in ("h4", "h5"):
            assert it.statistics("s", to).backlog_bytes == pytest.approx(limit, abs=3 * FRAME)
        assert it.statistics("s", "h4").switch_bytes == pytest.approx(2 * limit, abs=6 * FRAME)


def _received_by_source(kind: str) -> list[int]:
    """Packets of two sources of unequal speed that a shared port has let through meanwhile."""
    links = [("h0", "s"), ("h1", "s"), ("s", "to")]
    rates = {("h0", "s"): "400Gbps"}
    queues = {"s": {"kind": kind, "buffer": "60KB"}}
    with lab(fabric(links, rates=rates, queues=queues)) as it:
        sinks = [it.udp_sink("to", 5000 + i) for i in range(2)]
        fast, slow = it.udp_source("h0", "to", 5000), it.udp_source("h1", "to", 5001)
        send(fast, 8000, payload_of(FRAME))
        send(slow, 2000, payload_of(FRAME))
        time.sleep(0.0002)
        return [len(sink.drain()) for sink in sinks]


def test_virtual_output_queues_serve_ingress_ports_in_turn() -> None:
    fast, slow = _received_by_source("voq")
    assert abs(fast - slow) <= 4 and slow > 750
    # The same traffic through one queue is served as it comes.
    fast, slow = _received_by_source("droptail")
    assert fast > 3 * slow
