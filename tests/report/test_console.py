"""A result in a terminal of 80 columns."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from analysis.results.run_result import error_summary
from groundwire.commands.app import app
from groundwire.commands.console.figures import OutputConsole, size_scale, time_scale
from groundwire.commands.console.result_table import print_result
from groundwire.sweeping import SweepCase

# 2 of alpha-beta's are -49.0% and -30.4%, of which the table once said 67.9% and 96.3%.
_ERRORS = {"alpha-beta": (-0.49, -0.304), "flow": (0.04, -0.101), "tcp": (0.01, -0.017)}


def _predicted(duration_ns: int, number: int, predictors: Sequence[str]) -> dict[str, Any]:
    return {
        name: {
            "duration_ns": round(duration_ns * (1 + _ERRORS[name][number])),
            "error": _ERRORS[name][number],
        }
        for name in predictors
    }


def _result(predictors: Sequence[str], duration_ns: int = 1_425_640) -> dict[str, Any]:
    names = ("i0.embedding_backward.0", "i0.mlp_gradient.0")
    return {
        "collectives": [
            {
                "id": name,
                "size_bytes": size,
                "duration_ns": duration_ns,
                "busbw_gbps": 44.22,
                "predicted": _predicted(duration_ns, number, predictors),
            }
            for number, (name, size) in enumerate(zip(names, (1_048_576, 4_202_500), strict=True))
        ],
        "iterations": [
            {
                "index": 0,
                "duration_ns": 2 * duration_ns,
                "compute_ns": 195_580,
                "exposed_comm_ns": duration_ns,
                "predicted": _predicted(2 * duration_ns, 0, predictors),
            }
        ],
        "summary": {
            "error": {name: error_summary(_ERRORS[name]) for name in predictors},
            "drops": 0,
            "ecn_marks": 8921,
            "pauses": 0,
            "retransmits": 0,
        },
        "kernel": "virtual",
        "valid": True,
        "wall_s": 5.9,
    }


def _printed(result: dict[str, Any], width: int = 80) -> str:
    console = OutputConsole(file=io.StringIO(), width=width, color_system=None)
    print_result(result, Path("runs/dlrm-fat-tree-k4-20261125-143230"), console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("predictors", [(), ("flow",), ("alpha-beta", "flow"), tuple(_ERRORS)])
def test_tables_fit_80_columns_and_keep_figures_whole(predictors: tuple[str, ...]) -> None:
    said = _printed(_result(predictors))
    assert max(len(line) for line in said.splitlines()) <= 80
    for figure in ("1,425.64", "2,851.28", "1.05", "4.20", "44.22", "50.0%"):
        assert figure in said.split(), figure
    for name in predictors:
        for error in _ERRORS[name]:
            assert f"{error:+.1%}" in said.split()


def test_the_best_predictor_comes_first_and_errors_stand_beside_what_was_measured() -> None:
    said = _printed(_result(tuple(_ERRORS)))
    heading = next(line for line in said.splitlines() if "size" in line)
    assert heading.split() == ["size", "measured", "tcp", "flow", "alpha-beta", "busbw"]
    row = next(line for line in said.splitlines() if line.startswith("i0.embedding_backward.0"))
    assert row.split()[1:] == ["1.05", "1,425.64", "+1.0%", "+4.0%", "-49.0%", "44.22"]


def test_a_wide_terminal_has_the_times_of_all_predictors() -> None:
    said = _printed(_result(tuple(_ERRORS)), width=120)
    row = next(line for line in said.splitlines() if line.startswith("i0.embedding_backward.0"))
    assert {"1,439.90", "1,482.67", "727.08"} <= set(row.split())


def test_a_narrow_terminal_folds_names_and_no_figures() -> None:
    said = _printed(_result(("alpha-beta", "flow")), width=40)
    assert {"1,425.64", "-49.0%", "44.22"} <= set(said.split())
    assert "i0.embedding_backward.0" not in said


def test_the_summary_says_what_the_rows_say() -> None:
    said = _printed(_result(("alpha-beta",)))
    row = next(line for line in said.splitlines() if line.startswith("alpha-beta"))
    assert row.split() == ["alpha-beta", "39.7%", "-49.0%", "2"]


@given(st.lists(st.floats(-0.999, 100.0), min_size=1))
def test_no_error_is_larger_than_the_largest_and_the_mean_is_between(errors: list[float]) -> None:
    summary = error_summary(errors)
    mean, largest = summary["mean"], summary["largest"]
    assert mean is not None and largest is not None
    assert any(largest == pytest.approx(error, abs=1e-6) for error in errors)
    sizes = [abs(error) for error in errors]
    assert min(sizes) - 1e-6 <= mean <= abs(largest) + 1e-6


def test_a_column_has_one_unit_in_which_its_least_and_its_largest_can_be_read() -> None:
    assert [size_scale(sizes).unit for sizes in ((8, 2**25), (1_048_576, 4_202_500), ())] == [
        "B",
        "MB",
        "B",
    ]
    assert size_scale((1_048_576,)).cell(1_048_576) == "1.05"
    times = [(128_370, 1_425_640), (10**9,), (2 * 10**12,), (), (None,)]
    assert [time_scale(each).unit for each in times] == ["us", "ms", "s", "us", "us"]
    assert time_scale((1,)).cell(None) == "-"


def test_a_sweep_says_what_predictors_say_and_where_its_runs_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def made(number: int) -> Any:
        result = _result(("flow", "tcp"), duration_ns=number * 1_000_000)
        return SimpleNamespace(result=result, directory=tmp_path / "runs" / f"{number:03d}")

    def sweep(spec: Path, axes: dict[str, list[str]], **options: Any) -> list[SweepCase]:
        [(key, values)] = axes.items()
        return [SweepCase({key: v}, made(n)) for n, v in enumerate(values, start=1)]

    monkeypatch.setattr("groundwire.sweeping.sweep", sweep)
    axis = ("--set", "fabric.link.rate=10Gbps,100Gbps", "--workers", "1")
    done = CliRunner().invoke(app, ["sweep", "topologies/two-hosts.yaml", *axis])
    assert done.exit_code == 0
    title, *lines = done.stdout.splitlines()
    assert title.startswith("Iterations: their mean, and the error of what is predicted for it")
    assert lines[0].split() == ["iteration", "flow", "tcp", "exposed"]
    assert lines[3].split()[:5] == ["001", "10Gbps", "2,000.00", "+4.0%", "+1.0%"]
    assert lines[4].split()[:2] == ["002", "100Gbps"]
    assert f"runs: {tmp_path / 'runs'}" in done.stdout
    assert max(len(line) for line in lines[:5]) <= 80


def test_iterations_without_a_prediction_say_why() -> None:
    result = _result(("flow", "tcp"))
    why = "workload.kind: command is not predicted as a whole"
    none = {"duration_ns": None, "error": None, "reason": why}
    result["iterations"][0]["predicted"] = {"flow": none, "tcp": none}
    shown = " ".join(_printed(result).split())
    assert f"flow and tcp have no answer for one iteration: {why}" in shown
