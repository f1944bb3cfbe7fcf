"""The predictor `packet` beside a run whose ranks told what they measured when they connected.

`measured_handshakes.json` has a run of the virtual kernel: 1.6 MB over double binary trees of eight
ranks, eight chunks in flight, CUBIC. HyStart ends slow start by a threshold in whole microseconds
that hangs on the smoothed round trip, and so on whether a handshake of 2.5 us measured 2 or 3.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from analysis.predict.models.packet import Packet
from analysis.predict.run_predictions import Answer, RunPredictor
from analysis.predict.setting import setting_of
from analysis.runs.collectives import alignments_of, collectives_of
from analysis.runs.run import Run, load_run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    told = json.loads(Path(__file__).with_name("measured_handshakes.json").read_text())
    (tmp_path / "ranks").mkdir()
    (tmp_path / "spec.yaml").write_text(told["spec"])
    (tmp_path / "links.jsonl").write_text(told["links"])
    (tmp_path / "environment.json").write_text(json.dumps(told["environment"]))
    for name, events in told["ranks"].items():
        lines = "".join(f"{json.dumps(event)}\n" for event in events)
        (tmp_path / "ranks" / name).write_text(lines)
    return load_run(tmp_path)


@pytest.mark.parametrize("knows", [True, False])
def test_with_handshakes_the_prediction_is_the_run(run: Run, knows: bool) -> None:
    setting = setting_of(run)
    assert len(setting.handshakes_us) == 8 * 7
    if not knows:
        setting = replace(setting, handshakes_us={})
    (measured,) = collectives_of(run)
    (found,) = RunPredictor(setting, Packet()).together([measured], 1, alignments_of(run))
    assert isinstance(found, Answer)
    if knows:
        assert found.duration_ns == measured.duration_ns
    else:
        assert abs(found.duration_ns / measured.duration_ns - 1) > 0.01
