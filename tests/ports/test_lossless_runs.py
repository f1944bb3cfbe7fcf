"""Whole native runs over lossless queues, in virtual time: the machine cannot be too slow, so their
verdicts and figures are the code's."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulator.native.kernel import missing_for
from tests.ports.lossless_runs import (
    RATE_BPS,
    SENDERS,
    SIZE_BYTES,
    lossless_spec,
    parsed,
    run_natively,
)

pytestmark = pytest.mark.guest


def test_an_incast_loses_nothing_and_the_reaction_is_stated(tmp_path: Path) -> None:
    got = run_natively(tmp_path, lossless_spec())
    assert got.exit_code == 0, got.told
    assert got.result["kernel"] == "native" and got.result["valid"]
    assert got.result["summary"]["drops"] == 0
    towards_switch = [link for link in got.links if link["node"] != "s0"]
    assert got.result["summary"]["pauses"] == sum(link["pauses"] for link in towards_switch) > 0
    assert all((link["pauses"] > 0) == (link["paused_ns"] > 0) for link in got.links)
    assert all(link["pauses"] == 0 for link in got.links if link["node"] == "s0")
    controller = got.environment["details"]["pause_controller"]
    # A pause frame needs 5 ms and its serialisation; the controller closes 200 us before that.
    assert 4_800_000 <= controller["mean_ns"] <= controller["worst_ns"] <= controller["allowed_ns"]
    samples = got.environment["verdict"]["samples"]
    assert samples["pause_reaction_ns"] == controller["worst_ns"]
    # The root gets as much as its link carries; pausing the senders costs it next to nothing. It
    # counts from the last sender's start, when the others have sent a little already.
    ideal_ns = SENDERS * SIZE_BYTES * 8e9 / RATE_BPS * (1538 / 1448)
    for collective in got.result["collectives"]:
        if collective["kind"] == "incast":
            assert 0.95 * ideal_ns < collective["duration_ns"] < 1.5 * ideal_ns


def test_too_little_headroom_shows_in_the_result(tmp_path: Path) -> None:
    got = run_natively(tmp_path, lossless_spec({"headroom": "4KB"}))
    # Losses are what the spec asked for, not the machine's fault: the run is valid.
    assert got.exit_code == 0, got.told
    dropped = sum(link["drops_by_reason"].get("headroom", 0) for link in got.links)
    assert got.result["summary"]["drops"] == dropped > 0


def test_what_would_upset_the_counters_is_refused_by_name() -> None:
    fault = {"kind": "link-down", "link": "h0-s0", "iteration": 1}
    told = missing_for(parsed(lossless_spec(faults=[fault])))
    assert len(told) == 1 and "links going down" in told[0]
    told = missing_for(parsed(lossless_spec(counters={"interval": "1ms"})))
    assert len(told) == 1 and "counters.interval" in told[0]
    assert missing_for(parsed(lossless_spec())) == []
