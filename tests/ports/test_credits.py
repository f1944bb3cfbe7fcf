"""Credits: what is sent has a place at the far end. How fast they let a link be, what fills, what
stands still."""

from __future__ import annotations

import time
from typing import Any

import pytest

from emulator.network.deadlock import find_deadlocks
from testing.queue_lab import frame_ns, lab, line, payload_of, ring, send, star
from topologies.units import q32

pytestmark = pytest.mark.guest

FRAME, MTU, DELAY_NS = 9014, 9000, 5000


def _credits(buffer: int) -> dict[str, Any]:
    return {"kind": "credits", "buffer": buffer}


@pytest.mark.parametrize("places", [1, 2, 5])
@pytest.mark.parametrize("hops", [1, 3])
def test_a_link_sends_as_many_frames_a_round_as_the_far_end_has_places(
    places: int, hops: int
) -> None:
    """A place is taken when a frame's first bit leaves, and known to be free a delay after its last
    has come: it goes no further, or on at once. More links in a row are no slower."""
    serial_ns = frame_ns(FRAME, 100 * 10**9)
    round_ns = serial_ns + 2 * DELAY_NS
    queue = _credits(places * FRAME + 1000)
    queues = {"hosts": queue, "switches": queue}
    with lab(line(hops, mtu=MTU, delay=f"{DELAY_NS}ns", queues=queues)) as it:
        sink = it.udp_sink("b")
        send(it.udp_source("a", "b"), 20, payload_of(FRAME))
        time.sleep(0.001)
        came = [packet.time_ns for packet in sink.drain()]
        assert len(came) == 20
        for number, at_ns in enumerate(came):
            rounds, within = divmod(number, places)
            # A part of a nanosecond more for each frame at each hop.
            expected_ns = rounds * round_ns + within * serial_ns
            assert at_ns - came[0] == pytest.approx(expected_ns, abs=2 * (number + hops))


def test_incast_loses_nothing_and_fills_no_buffer_beyond_its_places() -> None:
    buffer = 50_000
    with lab(star(9, mtu=MTU, delay="500ns", queue=_credits(buffer))) as it:
        sink = it.udp_sink("h8")
        for source in [it.udp_source(f"h{i}", "h8") for i in range(8)]:
            send(source, 200, payload_of(FRAME))
        time.sleep(0.005)
        packets = sink.drain()
        assert len(packets) == 1600
        statistics = it.all_statistics()
        assert all(found.dropped == 0 for found in statistics.values())
        # The last port never idles, and each sender has stood still most of the time.
        took = packets[-1].time_ns - packets[0].time_ns
        assert took == pytest.approx(1599 * frame_ns(FRAME, 100 * 10**9), abs=2)
        for i in range(8):
            assert buffer - 2 * FRAME < statistics["s", f"h{i}"].ingress_max_bytes <= buffer
            assert statistics[f"h{i}", "s"].pauses == statistics[f"h{i}", "s"].resumes > 0
            assert statistics[f"h{i}", "s"].paused_ns > took / 2


def test_a_lost_frame_gives_its_place_back() -> None:
    with lab(
        line(2, mtu=MTU, queues={"hosts": _credits(20_000), "switches": _credits(20_000)})
    ) as it:
        sink = it.udp_sink("b")
        it.change("a", "s0", loss_q32=q32(0.3))
        send(it.udp_source("a", "b"), 300, payload_of(FRAME))
        time.sleep(0.01)
        lost = it.statistics("a", "s0").drops["loss"]
        assert 50 < lost < 130
        assert len(sink.drain()) == 300 - lost
        assert it.statistics("a", "s0").backlog_packets == 0


def test_a_pulled_cable_takes_its_credits_with_it() -> None:
    with lab(star(3, mtu=MTU, queue=_credits(50_000))) as it:
        sink = it.udp_sink("h2")
        for source in [it.udp_source(f"h{i}", "h2") for i in range(2)]:
            send(source, 200, payload_of(FRAME))
        time.sleep(0.00012)
        it.network.set_link(0, up=False)
        time.sleep(0.01)
        it.network.set_link(0, up=True)
        time.sleep(0.01)
        assert 200 < len(sink.drain()) < 400
        for source in [it.udp_source(f"h{i}", "h2") for i in range(2)]:
            send(source, 200, payload_of(FRAME))
        time.sleep(0.01)
        assert len(sink.drain()) == 400


def test_a_ring_of_switches_deadlocks_and_is_said_to() -> None:
    with lab(ring(_credits(100_000), mtu=MTU)) as it:
        around = it.route_around()
        sinks = [it.udp_sink(f"h{i}") for i in range(3)]
        for source in [it.udp_source(f"h{i}", f"h{(i + 2) % 3}") for i in range(3)]:
            send(source, 400, payload_of(FRAME))
        time.sleep(0.05)
        assert sum(len(sink.drain()) for sink in sinks) < 1200
        order = " -> ".join([*around, around[0]])
        assert [str(found) for found in find_deadlocks(it.network)] == [
            f"deadlock of lossless queues, class 0: {order}"
        ]
