"""The same run in real time, as the native kernel runs it: on a machine that may be too slow for
it, and then says so and why."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulator.fidelity.thresholds import THRESHOLDS
from tests.ports.lossless_runs import lossless_spec, run_natively

pytestmark = pytest.mark.guest(real_time=True)

_TOO_SLOW = {
    *("saturated_share", "steal_share", "queue_lateness", "rank_delay_share"),
    *("timer_lateness_ns", "pause_reaction_ns"),
}


def test_an_incast_in_real_time(tmp_path: Path) -> None:
    # As topologies/incast-lossless-real-time.yaml, but shorter: what may be late has 140 ms.
    document = lossless_spec({"headroom": "100KB"})
    document["fabric"]["link"] |= {"rate": "5Mbps", "delay": "10ms"}
    got = run_natively(tmp_path, document)
    assert got.exit_code in (0, 3), got.told
    assert (got.exit_code == 0) == got.result["valid"] == (got.result["invalid_reasons"] == [])
    reasons = got.environment["verdict"]["reasons"]  # its short messages only a twin could judge
    endings = tuple(t.reason for t in THRESHOLDS if t.name in _TOO_SLOW)
    assert all(reason.endswith((*endings, "delay lines were late")) for reason in reasons), reasons
    controller = got.environment["details"]["pause_controller"]
    if controller is None:  # no pause: the senders did not even meet
        assert reasons
        return
    # The reaction is part of the verdict, whichever it is.
    in_time = controller["worst_ns"] <= controller["allowed_ns"]
    told = [r for r in reasons if f"paused {controller['worst_ns']:,} ns after XOFF" in r]
    assert len(told) == (0 if in_time else 1)
    # Losses come from nothing but lateness, and a run that has any is not valid.
    dropped = sum(link["drops_by_reason"].get("headroom", 0) for link in got.links)
    assert got.result["summary"]["drops"] == dropped
    paused = [link for link in got.links if link["pauses"]]
    assert all(link["paused_ns"] > 0 and link["node"] != "s0" for link in paused)
    assert dropped == 0 or any("headroom was full" in reason for reason in reasons)
    if in_time:
        assert paused
