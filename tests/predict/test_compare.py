"""Comparisons of run directories with predictors, and what gaps are made of."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer

from analysis.compare.comparison import compare
from analysis.compare.decomposition import PARTS, decompose
from analysis.predict.interface import PredictorError, load_predictor
from analysis.predict.models.alpha_beta import AlphaBeta
from analysis.predict.models.external import External
from analysis.predict.models.flow import Flow, FlowIdealEcmp
from analysis.runs.run import load_run
from groundwire.commands.calibrate import calibrate_command
from groundwire.commands.compare import compare_command
from groundwire.commands.predict import predict_command
from tests.predict.measured_run import write_run

_OPERATIONS = ", ".join(
    f"{{kind: {kind}, size: {size}}}"
    for kind in ("all_reduce", "all_to_all", "broadcast")
    for size in ("64KB", "1MB")
)
_LEAF_SPINE = "{kind: leaf-spine, leaves: 2, spines: 2, hosts_per_leaf: 4}"


@pytest.fixture
def run_directory(tmp_path: Path) -> Path:
    """Measured: flow's own times, 10% longer in the second iteration."""
    directory = tmp_path / "run"
    write_run(directory, _LEAF_SPINE, _OPERATIONS, Flow(), lambda _, iteration: 1 + iteration / 10)
    return directory


def test_errors_are_those_of_the_contract(run_directory: Path) -> None:
    """error = predicted/measured - 1; geomean = exp(mean |ln|) - 1."""
    comparison = compare(load_run(run_directory), ["flow"])
    errors = [row.error("flow") for row in comparison.rows]
    assert errors[:6] == pytest.approx([0.0] * 6, abs=1e-4)
    assert errors[6:] == pytest.approx([1 / 1.1 - 1] * 6, abs=1e-4)
    summary = comparison.summary()["flow"]
    assert summary["geomean"] == pytest.approx(1.1**0.5 - 1, abs=1e-4)
    assert summary["worst"] == pytest.approx(0.1, abs=1e-4)
    groups = comparison.groups()
    assert [(g.kind, g.size_bytes, g.count) for g in groups][:2] == [
        ("all_reduce", 64_000, 2),
        ("all_reduce", 1_000_000, 2),
    ]
    assert groups[0].bias["flow"] == pytest.approx((1 / 1.1 - 1) / 2, abs=1e-4)


def test_a_whole_workloads_time_is_no_collectives(run_directory: Path, tmp_path: Path) -> None:
    """A run of several collectives beside ASTRA-sim's time for all of them together."""
    log = tmp_path / "astra.log"
    log.write_text("sys[0] finished, 900 cycles, exposed communication 900 cycles.\n")
    load = {"astra-sim": External("astra-sim", log)}.__getitem__
    comparison = compare(load_run(run_directory), ["astra-sim"], load)
    assert comparison.summary()["astra-sim"]["count"] == 0
    assert all("a whole workload" in row.refusals["astra-sim"] for row in comparison.rows)


def test_a_predictor_without_an_answer_says_why(run_directory: Path) -> None:
    comparison = compare(load_run(run_directory), ["astra-analytical", "textbook"])
    reasons = {row.collective.kind: row.refusals for row in comparison.rows if row.refusals}
    assert "broadcast" in reasons["broadcast"]["textbook"]
    assert comparison.summary()["textbook"]["count"] == 8
    with pytest.raises(PredictorError, match="unknown predictor 'magic'"):
        compare(load_run(run_directory), ["magic"])


def test_parts_add_up_to_the_measured_time(run_directory: Path) -> None:
    for part in decompose(load_run(run_directory)):
        total = sum(getattr(part, name) or 0 for _, name in PARTS)
        assert total == pytest.approx(part.measured_ns, abs=2)
        assert part.incast_ns is None
        assert part.payload_ns > 0 and part.header_ns > 0
        assert part.overlap_ns == pytest.approx(0, abs=1)


def test_each_part_is_what_its_effect_costs(run_directory: Path) -> None:
    run = load_run(run_directory)
    parts = {p.collective.id: p for p in decompose(run)}
    small, large = parts["i0.all_reduce.0"], parts["i0.all_reduce.1"]
    # 64 KB over eight ranks: 28 messages of a packet each, so waiting for RECV_READY dominates.
    assert small.rendezvous_ns > 0.4 * small.measured_ns
    assert large.payload_ns > 0.5 * large.measured_ns
    exchange = parts["i0.all_to_all.3"]
    assert exchange.collision_ns > 0
    from analysis.predict.run_predictions import call_of
    from analysis.predict.setting import setting_of

    setting, call = setting_of(run), call_of(exchange.collective)
    hashed, ideal = (each.predict(setting, call) for each in (Flow(), FlowIdealEcmp()))
    assert exchange.collision_ns == pytest.approx(hashed - ideal)
    idle = AlphaBeta().predict(setting, call)
    assert exchange.sharing_ns == pytest.approx(ideal - idle)
    # The second iteration took 10% more than flow knows of.
    late = parts["i1.all_to_all.3"]
    assert late.congestion_control_ns == pytest.approx(late.measured_ns / 11, rel=0.01)


def test_compare_prints_tables_and_json(
    run_directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare_command([run_directory], ["flow", "textbook"]) == 0
    text = capsys.readouterr().out
    assert "What the measured time is made of" in text and "payload" in text
    assert "textbook: ring: found broadcast" in text
    assert compare_command([run_directory], ["flow"], as_json=True) == 0
    (document,) = json.loads(capsys.readouterr().out)
    assert document["summary"]["flow"]["count"] == 12
    assert len(document["collectives"]) == len(document["decomposition"]) == 12


def test_figures_are_whole_where_there_is_no_room(
    run_directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    predictors = ["alpha-beta", "textbook", "flow", "flow-ideal-ecmp", "astra-analytical"]
    assert compare_command([run_directory], predictors) == 0
    text = capsys.readouterr().out
    assert "…" not in text and max(map(len, text.splitlines())) <= 120


def test_compare_takes_other_simulators_results(
    run_directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "theirs.csv"
    table.write_text("kind,size_bytes,duration_us\nall_reduce,1000000,200\n")
    assert compare_command([run_directory], ["flow"], [f"csv={table}"], as_json=True) == 0
    (document,) = json.loads(capsys.readouterr().out)
    assert document["summary"]["csv"]["count"] == 2
    rows = {row["id"]: row for row in document["collectives"]}
    assert rows["i0.all_reduce.1"]["predicted_ns"]["csv"] == 200_000
    assert "no timing of broadcast" in rows["i0.broadcast.4"]["refusals"]["csv"]


def test_results_of_one_simulator_may_be_compared_with_each_other(
    run_directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = []
    for us in (100, 200):
        table = tmp_path / f"{us}.csv"
        table.write_text(f"kind,size_bytes,duration_us\nall_reduce,1000000,{us}\n")
        texts.append(f"csv={table}")
    assert compare_command([run_directory], ["flow"], texts, as_json=True) == 0
    (document,) = json.loads(capsys.readouterr().out)
    predicted = {row["id"]: row["predicted_ns"] for row in document["collectives"]}
    assert [predicted["i0.all_reduce.1"][text] for text in texts] == [100_000, 200_000]


@pytest.mark.parametrize("text", ["csv", "csv=", "times.csv"])
def test_an_external_result_without_its_file_is_refused(run_directory: Path, text: str) -> None:
    with pytest.raises(typer.BadParameter, match="expected FORMAT=FILE"):
        compare_command([run_directory], external=[text])


def test_calibrate_writes_what_predict_and_compare_take(
    run_directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slower = tmp_path / "slower"
    truth = load_predictor("flow", {"bandwidth_efficiency": 0.8})
    write_run(slower, _LEAF_SPINE, _OPERATIONS, truth, name="slower")
    file = tmp_path / "calibration.json"
    assert calibrate_command([slower], ["flow"], out=file) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "bandwidth_efficiency" in text and "held out" in text and "every other size" in text
    assert compare_command([slower], ["flow"], calibration=file, as_json=True) == 0
    (document,) = json.loads(capsys.readouterr().out)
    assert document["summary"]["flow"]["geomean"] < 0.02
    spec = slower / "spec.yaml"
    assert predict_command(spec, ["flow"], calibration=file, as_json=True) == 0
    calibrated = json.loads(capsys.readouterr().out)["iteration"]["flow"]
    assert predict_command(spec, ["flow"], as_json=True) == 0
    ideal = json.loads(capsys.readouterr().out)["iteration"]["flow"]
    assert calibrated > 1.1 * ideal
