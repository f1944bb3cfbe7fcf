"""The times of collectives, expected and measured; and the verdict on native runs that rests on
them."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from analysis.predict.models.flow import Flow
from analysis.predict.setting import setting_of
from analysis.results.expected import Expectation
from analysis.results.judged import TWIN, judged_times
from analysis.results.result import build_result
from analysis.runs.collectives import collectives_of
from analysis.runs.records import VerdictRecord
from analysis.runs.run import Run, load_run
from emulator.session import run_session
from tests.predict.measured_run import write_run
from topologies.spec.spec import parse_dict

_STAR = "{kind: flat, hosts: 8, link: {rate: 10Gbps, delay: 1us, mtu: 9000}}"
_OPERATIONS = "{kind: all_reduce, size: 8MB}, {kind: all_to_all, size: 4MB}"
_SMALL = "{kind: all_reduce, size: 64KB}, {kind: all_gather, size: 64KB}"


@pytest.mark.parametrize(
    ("hosts", "link"),
    [
        (2, {"rate": "100Mbps", "delay": 0, "mtu": 1500}),
        (5, {"rate": "1Gbps", "delay": 0, "mtu": 9000}),
    ],
)
def test_what_is_expected_is_what_is_measured_exactly(
    hosts: int, link: dict[str, object], tmp_path: Path
) -> None:
    """The exact time lies between the least and the most, where nothing is lost and windows are
    wide, and near both where bytes decide."""
    operations = [{"kind": kind, "size": "2MB"} for kind in ("all_reduce", "all_gather")]
    spec = parse_dict(
        {
            "name": "expected",
            "fabric": {"kind": "flat", "hosts": hosts, "link": link},
            "workload": {
                "kind": "collectives",
                "ranks": hosts,
                "iterations": 1,
                "operations": operations,
            },
            "capture": {"points": []},
        }
    )
    run_session(spec, "virtual", tmp_path / "out", lambda progress: None)
    run = load_run(tmp_path / "out")
    expected = Expectation(setting_of(run), collectives_of(run), run.port_counters, 1).of_all()
    assert len(expected) == 2
    for each in expected:
        assert -0.005 < each.slower < 0.04
        assert -0.005 < each.faster < 0.04


@pytest.mark.parametrize(
    ("factor", "words"),
    [(1.0, None), (1.1, "longer than their bytes take")],
)
def test_native_times_are_judged(factor: float, words: str | None, tmp_path: Path) -> None:
    run = _native(tmp_path, factor)
    result = build_result(run)
    assert result["valid"] == (words is None)
    if words is None:
        assert result["judged"]["wrong"] == 0
        assert result["judged"]["by"] == "bytes"
    else:
        (reason,) = result["invalid_reasons"]
        assert words in reason
        assert "4 of 4 collectives" in reason and "i0.all_" in reason
        assert result["judged"]["wrong"] == 4


def test_messages_that_wait_for_each_other_take_their_time(tmp_path: Path) -> None:
    """Bytes alone forbid nothing of small messages, and only a twin knows when their times are
    right."""
    result = build_result(_native(tmp_path / "soon", 0.9, _SMALL))
    assert any("sooner than on such a fabric" in reason for reason in result["invalid_reasons"])
    result = build_result(_native(tmp_path / "right", 1.0, _SMALL))
    (reason,) = result["invalid_reasons"]
    assert "only a twin on the virtual kernel tells" in reason


def test_the_least_of_a_message_is_its_way_and_that_of_its_invitation(tmp_path: Path) -> None:
    """Bytes alone allow a third of a frame's time: the frame is stored and forwarded, and invited
    before."""
    write_run(tmp_path, _STAR, "{kind: send_recv, size: 6000}", Flow(), iterations=1)
    run = load_run(tmp_path)
    (expected,) = Expectation(setting_of(run), collectives_of(run), run.port_counters, 1).of_all()
    invitation_bytes, message_bytes = 48 + 90, 6000 + 48 + 90
    over_two_links_ns = 2 * (invitation_bytes + message_bytes) * 8 / 10
    assert expected.least_ns == pytest.approx(over_two_links_ns + 4 * 1000, rel=1e-3)


def test_links_that_carry_notifications_alone_are_no_bound(tmp_path: Path) -> None:
    write_run(tmp_path, _STAR, "{kind: broadcast, size: 1MB}", Flow(), iterations=1)
    run = load_run(tmp_path)
    (expected,) = Expectation(setting_of(run), collectives_of(run), run.port_counters, 1).of_all()
    assert 0 < expected.least_ns <= 1.001 * expected.most_ns < 2 * expected.measured_ns


def test_the_virtual_kernels_times_are_not_judged(tmp_path: Path) -> None:
    write_run(tmp_path, _STAR, _OPERATIONS, Flow(), lambda call, iteration: 1.5)
    result = build_result(load_run(tmp_path))
    assert result["valid"] and result["judged"] is None


def test_a_slowed_run_is_held_against_target_times(tmp_path: Path) -> None:
    run = _native(tmp_path, 10.0)
    slowed = replace(run, environment=run.environment.model_copy(update={"scale": 10}))
    assert build_result(slowed)["valid"]
    assert not build_result(run)["valid"]


@pytest.mark.parametrize(("exact", "wrong"), [(1.0, 0), (1.04, 0), (1.2, 4), (0.9, 4)])
def test_a_twin_is_believed_instead(exact: float, wrong: int, tmp_path: Path) -> None:
    """Also where bytes would say otherwise: the transport was as slow exactly."""
    run = _native(tmp_path, 1.5)
    write_run(tmp_path / TWIN, _STAR, _OPERATIONS, Flow(), lambda call, iteration: 1.5 * exact)
    judged = judged_times(run)
    assert judged is not None
    assert (judged.by, judged.judged, judged.wrong) == ("twin", 4, wrong)
    assert bool(judged.reasons) == bool(wrong)
    share = 1 / exact - 1
    assert judged.slower == pytest.approx(share, abs=1e-4)
    assert judged.faster == pytest.approx(-share, abs=1e-4)
    assert build_result(run)["valid"] == (wrong == 0)


@pytest.mark.parametrize(("of_time", "valid"), [(True, True), (False, False)])
def test_a_twin_outweighs_what_only_threatens_times(
    of_time: bool, valid: bool, tmp_path: Path
) -> None:
    run = _native(tmp_path, 1.0)
    write_run(tmp_path / TWIN, _STAR, _OPERATIONS, Flow())
    doubt = "something was seen"
    noticed = VerdictRecord(valid=False, reasons=[doubt], of_time=[doubt] if of_time else [])
    doubted = replace(run, environment=run.environment.model_copy(update={"verdict": noticed}))
    result = build_result(doubted)
    assert result["valid"] == valid
    assert result["judged"]["outweighed"] == ([doubt] if of_time else [])
    assert [row["exact_ns"] for row in result["collectives"]] == [
        row["duration_ns"] for row in result["collectives"]
    ]
    # Its bytes alone do not outweigh it: they say nothing of the ranks.
    shutil.rmtree(tmp_path / TWIN)
    assert not build_result(doubted)["valid"]


@pytest.mark.parametrize(("ports_behind", "valid"), [(None, False), (0.01, True)])
def test_what_could_not_be_judged_at_all_is_not_valid(
    ports_behind: float | None, valid: bool, tmp_path: Path
) -> None:
    """A program's run without collectives, of whose ports none was ever busy for long."""
    run = _native(tmp_path, 1.0)
    silent = tuple(replace(log, collectives=()) for log in run.ranks)
    verdict = VerdictRecord(valid=True, samples={"queue_lateness": ports_behind})
    environment = run.environment.model_copy(update={"verdict": verdict})
    result = build_result(replace(run, ranks=silent, environment=environment))
    assert result["valid"] == valid
    assert valid or "nothing of it could be judged" in result["invalid_reasons"][0]


def _native(directory: Path, factor: float, operations: str = _OPERATIONS) -> Run:
    """Collectives that took so many times what is predicted, on the native kernel."""
    write_run(directory, _STAR, operations, Flow(), lambda call, iteration: factor)
    path = directory / "environment.json"
    environment = json.loads(path.read_text()) | {"kernel": "native"}
    path.write_text(json.dumps(environment))
    return load_run(directory)


def test_what_early_ranks_sent_is_no_reason_to_doubt(tmp_path: Path) -> None:
    """A collective starts when its last rank posts it. Over before its bytes can have moved since
    then, it is right if another rank posted it early enough, and too short if none did."""
    run = _native(tmp_path, 0.9, _SMALL)
    assert any("sooner" in reason for reason in build_result(run)["invalid_reasons"])
    early = []
    for log in run.ranks:
        moved = 1_000_000_000 if log.rank == 0 else 0
        records = tuple(
            c.model_copy(update={"start_ns": c.start_ns - moved}) for c in log.collectives
        )
        early.append(replace(log, collectives=records))
    reasons = build_result(replace(run, ranks=tuple(early)))["invalid_reasons"]
    assert not any("sooner" in reason for reason in reasons)
