"""The predictor `packet` where TCP's segments overtake each other, and after its losses, beside the
guest's figures.

`measured_tcp.jsonl` has a spec a line, with the run's ports, the time of each of its collectives in
the virtual kernel, and what was sent again and dropped: sprays by turns, by chance and by the less
loaded of two, flowlets, and flows that are hashed onto half of the uplinks; three congestion
controls. Captures of these runs have the packets that the engine sends, in the same nanoseconds.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analysis.predict.models.packet import Packet
from analysis.predict.planned_run import predict_workload
from analysis.predict.setting import setting_of_spec
from topologies.spec.spec import parse_dict

_LINES = Path(__file__).with_name("measured_tcp.jsonl").read_text().splitlines()
_RUNS: list[dict[str, Any]] = [json.loads(line) for line in _LINES]


@pytest.mark.parametrize("run", _RUNS, ids=lambda run: str(run["name"]))
def test_collectives_take_what_ranks_measured(run: dict[str, Any]) -> None:
    """To the nanosecond, with as many segments sent again and lost."""
    spec = parse_dict({"name": "measured", **run["spec"]})
    ports = {(a, b): (mine, theirs) for a, b, mine, theirs in run["ports"]}
    predictor = Packet()
    found = predict_workload(spec, replace(setting_of_spec(spec), ports=ports), predictor)
    assert [one.duration_ns for one in found.collectives.values()] == run["measured_ns"]
    assert predictor.last is not None
    assert int(predictor.last.columns["end.retransmitted"].sum()) == run["sent_again"]
    assert int(predictor.last.drops.sum()) == run["drops"]


def test_the_runs_reorder_lose_and_wait_for_timers() -> None:
    """So that what the runs hold the predictor to is not nothing."""
    assert sum(run["sent_again"] > 30 and not run["drops"] for run in _RUNS) >= 2
    assert sum(run["drops"] > 20 for run in _RUNS) >= 2
    assert sum(max(run["measured_ns"]) > 4_000_000 for run in _RUNS) >= 2  # a probe, or a time-out
