"""Other simulators' results: their parameters come back, and compare takes a fit along."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.calibration.calibration import calibrate
from analysis.calibration.external import CorrectedResults, file_of_run, with_external
from analysis.calibration.observations import Observation, split_by_size
from analysis.predict.engines.message_costs import Effects
from analysis.predict.interface import PredictorError, Setting
from analysis.predict.models.alpha_beta import AlphaBeta
from groundwire import comparing
from groundwire.commands.calibrate import calibrate_command
from tests.predict.measured_run import write_run
from tests.predict.settings import make_call, make_setting

_PAYLOAD = Effects(headers=False, rendezvous=False)
_KINDS = ("all_reduce", "all_to_all", "broadcast")
_SIZES = (16_000, 64_000, 256_000, 1_000_000, 4_000_000)
_TRUTH = {"hop_overhead_ns": 350.0, "bandwidth_efficiency": 0.9}


def _observed(run: str, setting: Setting) -> list[Observation]:
    """As a simulator's would be that is alpha-beta without a protocol, with other parameters."""
    truth = AlphaBeta.counting(_PAYLOAD, **_TRUTH)
    calls = [make_call(setting, kind, size) for kind in _KINDS for size in _SIZES]
    return [
        Observation(run, setting.fabric.kind, setting, c, 0, round(truth.predict(setting, c)))
        for c in calls
    ]


def _table(path: Path, setting: Setting) -> None:
    ideal = AlphaBeta.counting(_PAYLOAD)
    rows = ["kind,size_bytes,duration_ns"]
    for kind in _KINDS:
        for size in _SIZES:
            found = ideal.predict(setting, make_call(setting, kind, size))
            rows.append(f"{kind},{size},{found}")
    path.write_text("\n".join(rows) + "\n")


def test_what_a_simulator_would_need_is_found_over_several_runs(tmp_path: Path) -> None:
    settings = {"near": make_setting("flat"), "far": make_setting("flat", delay="5us")}
    for run, setting in settings.items():
        _table(tmp_path / f"{run}.csv", setting)
    observed = [o for run, setting in settings.items() for o in _observed(run, setting)]
    load = with_external({"mine": {"format": "csv", "path": str(tmp_path)}}, observed)
    record = calibrate(split_by_size(observed), ["mine"], load).predictors["mine"]
    assert record.held_out_uncalibrated.worst is not None
    assert record.held_out_uncalibrated.worst > 0.1
    assert record.held_out.worst is not None and record.held_out.worst < 0.002
    for name, value in _TRUTH.items():
        fitted = record.parameters[name]
        assert fitted.fixed is None and fitted.value == pytest.approx(value, rel=0.02)
        assert fitted.low <= fitted.value <= fitted.high
    # On a flat fabric every message passes two links, so the two overheads cannot be told apart.
    assert "same effect" in str(record.parameters["message_overhead_ns"].fixed)


def test_a_directory_has_one_file_for_each_run(tmp_path: Path) -> None:
    (tmp_path / "near.csv").write_text("")
    assert file_of_run(tmp_path, "near") == tmp_path / "near.csv"
    assert file_of_run(tmp_path / "near.csv", "far") == tmp_path / "near.csv"
    with pytest.raises(PredictorError, match="found 0 files of the run 'far'"):
        file_of_run(tmp_path, "far")
    (tmp_path / "near.log").write_text("")
    with pytest.raises(PredictorError, match="found 2 files"):
        file_of_run(tmp_path, "near")


def test_runs_without_results_and_unknown_parameters_are_refused() -> None:
    setting = make_setting("flat")
    results = CorrectedResults("mine", {setting: AlphaBeta()})
    with pytest.raises(PredictorError, match="mine has no results of this run"):
        results.predict(make_setting("flat"), make_call(setting, "all_reduce", 1000))
    with pytest.raises(PredictorError, match="found 'fan_out_factor', allowed hop_overhead_ns"):
        CorrectedResults("mine", {}, fan_out_factor=2.0)


def test_the_command_fits_results_and_compare_applies_the_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, table, fit = tmp_path / "run", tmp_path / "theirs.csv", tmp_path / "fit.json"
    fabric = "{kind: flat, hosts: 8, link: {rate: 100Gbps, delay: 500ns, mtu: 9000}}"
    operations = ", ".join(f"{{kind: {k}, size: {s}B}}" for k in _KINDS for s in _SIZES)
    setting = write_run(run, fabric, operations, AlphaBeta.counting(_PAYLOAD, **_TRUTH))
    _table(table, setting)
    assert calibrate_command([run], external=[f"csv={table}"], out=fit) == 0
    said = capsys.readouterr().out
    assert "csv: parameters" in said and "What the measured time is made of" in said
    assert "alpha-beta" not in said
    for calibration, worst in ((None, 0.1), (fit, 0.002)):
        (compared,) = comparing.compare(
            run,
            predictors=[],
            external={"csv": {"format": "csv", "path": str(table)}},
            calibration=calibration,
        )
        error = compared.comparison.summary()["csv"]["worst"]
        assert error is not None and (error > worst) == (calibration is None)
