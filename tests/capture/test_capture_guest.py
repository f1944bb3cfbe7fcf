"""Capture in the virtual kernel, where the reader has all the time it wants."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from emulator.capture import capture_ports, start_capture
from testing.queue_lab import lab, payload_of, send, star
from tests.capture.veth_pair import (
    check_both_backends_agree,
    check_numbered_datagrams,
    paced_datagrams,
)

pytestmark = pytest.mark.guest


def test_both_backends_agree_to_the_nanosecond(tmp_path: Path) -> None:
    check_both_backends_agree(tmp_path, exact_times=True)


@pytest.mark.parametrize("backend", ["socket", "ring"])
def test_every_packet_once_and_in_order(tmp_path: Path, backend: str) -> None:
    check_numbered_datagrams(tmp_path, backend)


def test_a_ring_three_times_smaller_than_its_traffic_loses_nothing(tmp_path: Path) -> None:
    # At 8 Mb/s, as ports of a fabric send one frame after the other, unlike a veth of its own.
    check_numbered_datagrams(tmp_path, "ring", rate_bps=8_000_000, real_time=False)


def test_a_time_stamp_is_taken_behind_the_queue(tmp_path: Path) -> None:
    # 1600 bytes of burst are 558 more than a frame: the last is sent that much earlier.
    for spread_ns, limit_ns in paced_datagrams(tmp_path):
        assert spread_ns == pytest.approx(limit_ns, abs=1_042_000)


def test_the_smallest_frames_at_line_rate_both_ways_find_room_until_they_are_read(
    tmp_path: Path,
) -> None:
    count = 6000
    there_and_back = [("h0", "h1"), ("h1", "h0")]
    with lab(star(2, queue={"kind": "droptail", "buffer": "16MB"})) as it:
        sinks = [it.udp_sink(to) for _, to in there_and_back]
        sources = [it.udp_source(name, to) for name, to in there_and_back]
        ports = capture_ports(it.fabric, ["hosts"], it.network.netns_path)
        capture = start_capture(ports, tmp_path, real_time=False)
        for source in sources:
            send(source, count, payload_of(64))
        time.sleep(0.001)
        assert [len(sink.drain()) for sink in sinks] == [count, count]
        stats = capture.stop()
    assert [s.invalid_reason for s in stats] == [None, None]
    assert [s.written for s in stats] == [2 * count, 2 * count]
    assert json.loads((tmp_path / "index.json").read_text())["backend"] == "ring"
