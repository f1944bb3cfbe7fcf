"""Capture in the virtual kernel, where the reader has all the time it wants."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.capture.veth_pair import (
    check_both_backends_agree,
    check_numbered_datagrams,
    paced_datagrams,
)

pytestmark = pytest.mark.guest


def test_both_backends_agree_to_the_nanosecond(tmp_path: Path) -> None:
    check_both_backends_agree(tmp_path, exact_times=True)


@pytest.mark.parametrize("backend", ["scapy", "ring"])
def test_every_packet_once_and_in_order(tmp_path: Path, backend: str) -> None:
    check_numbered_datagrams(tmp_path, backend)


def test_a_time_stamp_is_taken_behind_the_queue(tmp_path: Path) -> None:
    # 1600 bytes of burst are 558 more than a frame: the last is sent that much earlier.
    for spread_ns, limit_ns in paced_datagrams(tmp_path):
        assert spread_ns == pytest.approx(limit_ns, abs=1_042_000)
