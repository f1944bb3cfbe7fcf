"""The predictor `packet` beside a run whose ranks told what they measured when they connected.

`measured_handshakes.json` has a run of the virtual kernel: 1.6 MB over double binary trees of eight
ranks, eight chunks in flight, CUBIC. HyStart ends slow start by a threshold in whole microseconds
that hangs on the smoothed round trip, and so on whether a handshake of 2.5 us measured 2 or 3.
`measured_sockets.json.gz` has one of 16 ranks on a k=4 fat-tree, with four sockets of each two: of
an all-to-all, and ring, hierarchical and tree all-reduces of 1 MB; the last one loses packets.
`measured_greetings.json.gz` has two runs of several collectives: over SRv6 with CUBIC, where a
greeting measured 5 us and the handshake 4, and with BBR, whose pace begins with the handshake.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.predict.engines.joint_programs import JointPrograms
from analysis.predict.interface import Setting
from analysis.predict.models.packet import Packet, scenario_of
from analysis.predict.run_predictions import Answer, RunPredictor, call_of
from analysis.predict.scenario import GroupedCall
from analysis.predict.setting import setting_of
from analysis.runs.collectives import alignments_of, collectives_of
from analysis.runs.run import Run, load_run

_HERE = Path(__file__).parent


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return _written(tmp_path, json.loads((_HERE / "measured_handshakes.json").read_bytes()))


def _written(tmp_path: Path, told: dict[str, Any]) -> Run:
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


def test_further_sockets_of_two_ranks_have_handshakes_of_their_own(tmp_path: Path) -> None:
    """The tree waits 200 ms for what is lost, and so does the prediction."""
    told = gzip.decompress((_HERE / "measured_sockets.json.gz").read_bytes())
    run = _written(tmp_path, json.loads(told))
    setting = setting_of(run)
    measured = collectives_of(run)
    calls = [GroupedCall(call_of(one), one.group) for one in measured]
    columns = scenario_of(setting, JointPrograms(calls, {}, setting.seed, setting.transport))
    first, number = columns["pair.source"], 16 * np.arange(4)
    told_us = np.asarray(columns["pair.handshakes"]).reshape(-1, 2)
    for end in number.tolist():  # those of a socket after those of the one before it
        mine = (first >= end) & (first < end + 16)
        assert mine.any() and told_us[mine, 0].all()
    answers = RunPredictor(setting, Packet()).together(measured, 1, alignments_of(run))
    errors = []
    for one, answer in zip(measured, answers, strict=True):
        assert isinstance(answer, Answer)
        errors.append(abs(answer.duration_ns / one.duration_ns - 1))
    assert max(errors) < 0.02 and errors[3] < 0.001


@pytest.fixture(params=["srv6", "bbr"])
def several(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Run]:
    told = json.loads(gzip.decompress((_HERE / "measured_greetings.json.gz").read_bytes()))
    return request.param, _written(tmp_path, told[request.param])


def test_later_collectives_are_the_run_s(several: tuple[str, Run]) -> None:
    """SRv6's wait for what ranks told of late, BBR's for what its pace tells of handshakes, and for
    pure acknowledgements, which count for the pace."""
    name, run = several
    setting, measured = setting_of(run), collectives_of(run)
    assert _durations(run, setting) == [each.duration_ns for each in measured]
    if name == "srv6":
        first = {pair: (each, -1) for pair, (each, _) in setting.handshakes_us.items()}
        assert _durations(run, replace(setting, handshakes_us=first)) != [
            each.duration_ns for each in measured
        ]


def _durations(run: Run, setting: Setting) -> list[int]:
    found = []
    measured = collectives_of(run)
    for answer in RunPredictor(setting, Packet()).together(measured, 1, alignments_of(run)):
        assert isinstance(answer, Answer)
        found.append(answer.duration_ns)
    return found
