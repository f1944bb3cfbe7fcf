"""The predictor `packet` answers as it did before, to the nanosecond, on runs that were drawn.

`packet_reference.jsonl` has a spec a line, with every time, and what was sent, sent again, dropped
and marked. Fabrics, disciplines, congestion controls, programs and sizes are drawn. The engine said
the lines itself, so they show what a change moves, and not that it is right: the tests against the
guest do that (`test_losses.py` where packets are lost).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from analysis.predict.models.packet import Packet
from analysis.predict.planned_run import predict_workload
from analysis.predict.setting import setting_of_spec
from topologies.spec.spec import parse_dict

_LINES = Path(__file__).with_name("packet_reference.jsonl").read_text().splitlines()
_RUNS: list[dict[str, Any]] = [json.loads(line) for line in _LINES]


def _name(run: dict[str, Any]) -> str:
    spec = run["spec"]
    return f"{spec['fabric']['queue']['kind']}-{spec['transport']['congestion_control']}"


@pytest.mark.parametrize("run", _RUNS, ids=_name)
def test_every_time_is_the_reference_s(run: dict[str, Any]) -> None:
    spec = parse_dict({"name": "drawn", **run["spec"]})
    predictor = Packet()
    found = predict_workload(spec, setting_of_spec(spec), predictor)
    collectives = found.collectives.values()
    assert [one.duration_ns for one in collectives] == run["collectives_ns"]
    assert [one.start_ns for one in collectives] == run["starts_ns"]
    iterations = [[each.duration_ns, each.exposed_comm_ns] for each in found.iterations]
    assert iterations == run["iterations_ns"]
    assert predictor.last is not None
    resent = sum(end.retransmitted for end in predictor.last.ends.values())
    counted = [predictor.last.packets, resent, predictor.last.drops.sum()]
    assert counted == [run["packets"], run["retransmitted"], run["drops"]]
    assert predictor.last.marks.sum() == run["marks"]


def test_losses_are_among_them() -> None:
    assert sum(run["retransmitted"] > 0 for run in _RUNS) > len(_RUNS) / 3
