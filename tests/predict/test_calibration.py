"""Calibration: known parameters come back, what is not determined is said, held out stays out."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
import typer
import yaml

from analysis.calibration.breakdown import break_down
from analysis.calibration.calibration import (
    Calibration,
    ErrorSummary,
    PredictorRecord,
    calibrate,
    read_calibration,
    summarise,
)
from analysis.calibration.fit import Fitted, fit_predictor
from analysis.calibration.observations import (
    CalibrationError,
    Observation,
    observations_of,
    split_by_fabric_and_size,
    split_by_run,
    split_by_size,
)
from analysis.calibration.suite import FABRICS, KINDS, standard_suite
from analysis.exporters.write import TraceFormat
from analysis.predict.interface import Predictor, Setting, load_predictor
from analysis.predict.models.alpha_beta import AlphaBeta
from analysis.runs.run import load_run
from groundwire.commands.traces.trace import export
from tests.predict.measured_run import write_run
from tests.predict.settings import make_call, make_setting

_TRUTH = {
    "hop_overhead_ns": 150.0,
    "message_overhead_ns": 300.0,
    "bandwidth_efficiency": 0.93,
    "congestion_factor": 1.2,
    "fan_out_factor": 0.9,
}
_KINDS = ("all_reduce", "all_to_all", "broadcast", "barrier")
_SIZES = (16_000, 64_000, 1_000_000, 4_000_000)


def _observe(
    setting: Setting, truth: Predictor, noise: float = 0.0, kinds: tuple[str, ...] = _KINDS
) -> list[Observation]:
    chance = random.Random(7)
    found = []
    for kind in kinds:
        for size in (0,) if kind == "barrier" else _SIZES:
            call = make_call(setting, kind, size)
            measured = truth.predict(setting, call) * chance.uniform(1 - noise, 1 + noise)
            found.append(Observation("run", setting.fabric.kind, setting, call, 0, round(measured)))
    return found


_FABRICS = (make_setting("flat"), make_setting("leaf-spine"))
_NOISY = [o for s in _FABRICS for o in _observe(s, AlphaBeta(**_TRUTH), noise=0.003)]


def test_known_parameters_come_back_within_their_intervals() -> None:
    fit = fit_predictor("alpha-beta", _NOISY)
    for name, value in _TRUTH.items():
        fitted = fit[name]
        assert fitted.fixed is None
        # The intervals are of 95%; half as wide again to have no flaky test.
        slack = (fitted.high - fitted.low) / 4
        assert fitted.low - slack <= value <= fitted.high + slack, name
        assert fitted.high - fitted.low < max(0.2 * value, 200), name
    values = {name: fitted.value for name, fitted in fit.items()}
    left = summarise(load_predictor("alpha-beta", values), _NOISY).geomean
    assert left is not None and left < 0.003  # the noise


def test_a_few_wild_measurements_do_not_move_the_fit() -> None:
    wild = [
        replace(o, measured_ns=o.measured_ns * 5) if i % 9 == 0 else o for i, o in enumerate(_NOISY)
    ]
    clean, robust = fit_predictor("alpha-beta", _NOISY), fit_predictor("alpha-beta", wild)
    for name in ("bandwidth_efficiency", "congestion_factor", "fan_out_factor"):
        assert robust[name].value == pytest.approx(clean[name].value, rel=0.03)


def test_what_the_runs_do_not_determine_keeps_its_ideal_value_and_is_said() -> None:
    """Rings share no port, so nothing is known of incast or fan-out."""
    rings = [o for o in _NOISY if o.call.kind == "all_reduce"]
    fit = fit_predictor("alpha-beta", rings)
    for name in ("congestion_factor", "fan_out_factor"):
        assert fit[name].fixed == "it changes no prediction of these runs"
        assert fit[name].value == 1.0
    assert fit["bandwidth_efficiency"].fixed is None


def test_two_parameters_with_one_effect_are_not_both_fitted() -> None:
    """On one switch every message of a barrier has two hops each way: only a sum is determined."""
    barriers = _observe(_FABRICS[0], AlphaBeta(**_TRUTH), kinds=("barrier",))
    fit = fit_predictor("alpha-beta", barriers * 3)
    fixed = {name: p.fixed for name, p in fit.items() if p.fixed}
    assert "the same effect on these runs as" in str(fixed["message_overhead_ns"])
    assert fit["hop_overhead_ns"].fixed is None


def test_held_out_collectives_never_touch_the_fit() -> None:
    split = split_by_size(_NOISY)
    wrong = tuple(replace(o, measured_ns=o.measured_ns * 3) for o in split.held_out)
    first = calibrate(split, ["alpha-beta"]).predictors["alpha-beta"]
    second = calibrate(replace(split, held_out=wrong), ["alpha-beta"]).predictors["alpha-beta"]
    assert first.values == second.values
    before, after = first.held_out.geomean, second.held_out.geomean
    uncalibrated = first.held_out_uncalibrated.geomean
    assert before is not None and after is not None and uncalibrated is not None
    assert before < 0.02 and after > 1.5
    assert uncalibrated > 5 * before


def test_every_other_size_is_held_out_on_every_fabric() -> None:
    split = split_by_size(_NOISY)
    for kind in ("all_reduce", "broadcast"):
        trained = {o.call.size_bytes for o in split.train if o.call.kind == kind}
        held_out = {o.call.size_bytes for o in split.held_out if o.call.kind == kind}
        assert trained == set(_SIZES[::2]) and held_out == set(_SIZES[1::2])
    split = split_by_fabric_and_size(_NOISY, ["flat"])
    assert {o.fabric for o in split.train} == {"flat"}
    assert {o.fabric for o in split.held_out} == {"flat", "leaf-spine"}
    assert not {id(o) for o in split.train} & {id(o) for o in split.held_out}
    assert len(split.train) + len(split.held_out) == len(_NOISY)


def test_splits_with_an_empty_side_are_refused() -> None:
    one_size = [o for o in _NOISY if o.call.size_bytes == _SIZES[0]]
    with pytest.raises(CalibrationError, match=r"hold out.*--hold-out"):
        split_by_size(one_size)
    with pytest.raises(CalibrationError, match="no collectives to fit"):
        split_by_fabric_and_size(_NOISY, ["torus"])
    with pytest.raises(CalibrationError, match="no collectives to fit"):
        split_by_run([], _NOISY)


def test_predictors_without_parameters_or_answers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CalibrationError, match="'textbook' has no parameters to fit"):
        fit_predictor("textbook", _NOISY)
    barriers = [o for o in _NOISY if o.call.kind == "barrier"]
    with pytest.raises(CalibrationError, match=r"determine none of its parameters|predicts none"):
        fit_predictor("astra-analytical", barriers)


def test_a_calibration_survives_its_file(tmp_path: Path) -> None:
    split = split_by_size(_NOISY)
    found = calibrate(split, ["alpha-beta"])
    file = tmp_path / "calibration.json"
    found.write(file)
    again = read_calibration(file)
    assert again == found
    o = split.held_out[0]
    values = found.predictors["alpha-beta"].values
    expected = load_predictor("alpha-beta", values).predict(o.setting, o.call)
    assert again.load("alpha-beta").predict(o.setting, o.call) == expected
    ideal = load_predictor("flow").predict(o.setting, o.call)
    assert again.load("flow").predict(o.setting, o.call) == ideal


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[]", "the file"),
        ('{"schema": 2, "runs": [], "rule": "", "predictors": {}}', "schema"),
        ('{"schema": 1, "runs": [], "rule": "", "predictors": {"flow": {}}}', "predictors.flow"),
    ],
)
def test_damaged_calibration_files_are_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "calibration.json"
    file.write_text(text)
    with pytest.raises(CalibrationError, match=message):
        read_calibration(file)
    with pytest.raises(CalibrationError, match="No such file"):
        read_calibration(tmp_path / "absent.json")


def test_runs_are_read_and_invalid_ones_refused(tmp_path: Path) -> None:
    operations = "{kind: all_reduce, size: 64KB}, {kind: all_to_all, size: 1MB}"
    write_run(tmp_path / "good", "{kind: flat, hosts: 8}", operations, AlphaBeta())
    found = observations_of(load_run(tmp_path / "good"))
    assert [(o.call.kind, o.iteration) for o in found] == [
        ("all_reduce", 0),
        ("all_to_all", 0),
        ("all_reduce", 1),
        ("all_to_all", 1),
    ]
    assert all(o.measured_ns == round(AlphaBeta().predict(o.setting, o.call)) for o in found)
    write_run(tmp_path / "bad", "{kind: flat, hosts: 8}", operations, AlphaBeta(), valid=False)
    with pytest.raises(CalibrationError, match=r"not valid.*cores were saturated"):
        observations_of(load_run(tmp_path / "bad"))


def test_the_breakdown_has_every_held_out_cell() -> None:
    split = split_by_fabric_and_size(_NOISY, ["flat"])
    breakdown = break_down(AlphaBeta(**_TRUTH), split)
    cells = {(row.fabric, row.kind): row for row in breakdown.rows}
    assert cells["all", "all"].summary.count == len(split.held_out)
    assert cells["leaf-spine", "all_to_all"].summary.count == len(_SIZES)
    assert cells["flat", "all_to_all"].summary.count == len(_SIZES) // 2
    assert all(abs(e) < 0.004 for row in breakdown.rows for e in row.errors.values())


def test_the_standard_suite_is_the_issues() -> None:
    specs = standard_suite()
    assert {spec.fabric.kind for spec in specs} == set(FABRICS)
    for fabric in FABRICS:
        cells = {
            (operation.kind, operation.size_bytes)
            for spec in specs
            if spec.fabric.kind == fabric and spec.workload.listed is not None
            for operation in spec.workload.listed.operations
        }
        assert {kind for kind, _ in cells} == set(KINDS)
        assert {size for _, size in cells} == {64_000 * 4**i for i in range(2)} | {
            10**6 * 4**i for i in range(4)
        }
    assert {s.name for s in standard_suite(4_000_000)} == {f"{fabric}-small" for fabric in FABRICS}


def test_a_calibration_reaches_astra_sims_own_files(tmp_path: Path) -> None:
    """Half of the bandwidth in the calibration is half of the bandwidth in network.yml."""

    none = ErrorSummary(geomean=None, worst=None, count=0)
    half = Fitted(value=0.5, low=0.4, high=0.6)
    record = PredictorRecord(
        parameters={"bandwidth_efficiency": half},
        train_uncalibrated=none,
        train=none,
        held_out_uncalibrated=none,
        held_out=none,
    )
    found = Calibration(runs=("run",), rule="by hand", predictors={"astra-analytical": record})
    file = tmp_path / "calibration.json"
    found.write(file)
    spec = tmp_path / "spec.yaml"
    spec.write_text(
        "name: ring\nfabric: {kind: flat, hosts: 8}\n"
        "workload: {kind: collectives, ranks: 8, operations: [{kind: all_reduce, size: 1MB}]}\n"
    )
    networks = []
    for calibration in (None, file):
        out = tmp_path / ("ideal" if calibration is None else "fitted")
        with pytest.raises(typer.Exit) as ended:
            export(spec, TraceFormat.astra_sim, out, None, calibration)
        assert ended.value.exit_code == 0
        networks.append(yaml.safe_load((out / "network.yml").read_text()))
    ratio = networks[1]["bandwidth"][0] / networks[0]["bandwidth"][0]
    assert ratio == pytest.approx(0.5)
    with pytest.raises(CalibrationError, match="has no flow, only astra-analytical"):
        found.of("flow")


def test_the_ideal_is_kept_unless_a_fit_explains_more_than_chance() -> None:
    settings = (make_setting("flat"), make_setting("leaf-spine"))
    as_ideal = [o for setting in settings for o in _observe(setting, AlphaBeta())]
    fit = fit_predictor("alpha-beta", as_ideal)
    assert {fitted.value for fitted in fit.values()} == {0.0, 1.0}
    assert "no better than chance" in str(fit["bandwidth_efficiency"].fixed)
