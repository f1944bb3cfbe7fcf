"""The predictor `packet` on several kinds of collectives in a row, whose connections remember those
before, beside the guest's figures.

`measured_later.jsonl` has a spec a line, with the run's ports, the time of each of its collectives
in the virtual kernel, and the packets that ports dropped: direct all-to-all, ring, hierarchical and
double binary trees in four chunks of 16 ranks with DCTCP, and two all-to-alls of 8 ranks.

- `adaptive`: the end that listened averages marks once with the connection's greeting. Trees in
  chunks take a thread that is idle and three new ones, in an order of its own.
- `flowlet`: two flows share an entry of a leaf's table.
- `least`: short segments ahead of a gap do not widen the window, and with ranges in the header full
  segments are shorter.
- `resilient`: segments that are sent in one go are all as short as what tells of one received twice
  has the first of them, with a link that goes down and CUBIC.
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

_LINES = Path(__file__).with_name("measured_later.jsonl").read_text().splitlines()
_RUNS: list[dict[str, Any]] = [json.loads(line) for line in _LINES]


@pytest.mark.parametrize("run", _RUNS, ids=lambda run: str(run["name"]))
def test_later_collectives_take_what_ranks_measured(run: dict[str, Any]) -> None:
    """To the nanosecond, with as many packets dropped."""
    spec = parse_dict({"name": "measured", **run["spec"]})
    ports = {(a, b): (mine, theirs) for a, b, mine, theirs in run["ports"]}
    predictor = Packet()
    found = predict_workload(spec, replace(setting_of_spec(spec), ports=ports), predictor)
    assert [one.duration_ns for one in found.collectives.values()] == run["measured_ns"]
    assert predictor.last is not None
    assert int(predictor.last.drops.sum()) == run["drops"]
