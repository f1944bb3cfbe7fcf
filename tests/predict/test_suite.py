"""`groundwire calibrate --suite`: goes on where it was cut short, and writes its own table."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from analysis.calibration.markdown import BEGIN, END, insert
from analysis.calibration.observations import CalibrationError
from analysis.calibration.suite import estimated_wall_s, standard_suite
from analysis.predict.interface import PredictorError, load_predictor
from groundwire.commands.calibrate import Suite, calibrate_command
from groundwire.commands.console import suite_runs
from groundwire.commands.console.suite_runs import make_runs
from groundwire.commands.run import KernelChoice
from tests.predict.measured_run import write_run
from topologies.spec.spec import Spec

_OPERATIONS = ", ".join(
    f"{{kind: {kind}, size: {size}}}"
    for kind in ("all_reduce", "all_to_all", "broadcast")
    for size in ("64KB", "256KB", "1MB", "4MB")
)


def test_only_what_is_missing_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def run(spec: Spec, kernel: KernelChoice, directory: Path, console: Console) -> None:
        made.append(spec.name)
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "spec.yaml").write_text(spec.to_yaml())
        (directory / "result.json").write_text("{}")

    monkeypatch.setattr(suite_runs, "run_showing", run)
    said = io.StringIO()
    console = Console(file=said, width=200)
    specs = standard_suite(4_000_000)
    names = [spec.name for spec in specs]

    def make() -> None:
        made.clear()
        places = make_runs(specs, tmp_path, KernelChoice.virtual, console)
        assert places == [tmp_path / name for name in names]

    make()
    assert made == names
    assert f"run 2 of {len(names)}: {names[1]}" in said.getvalue()
    make()
    assert made == []
    (tmp_path / names[1] / "result.json").unlink()  # cut short
    (tmp_path / names[2] / "spec.yaml").write_text("of an older suite")
    make()
    assert made == names[1:3]
    (tmp_path / names[0] / "result.json").unlink()
    (tmp_path / names[0] / "spec.yaml").rename(tmp_path / names[0] / "thesis.txt")
    with pytest.raises(CalibrationError, match="no run directory"):
        make()
    assert (tmp_path / names[0] / "thesis.txt").exists()


def test_an_interrupted_suite_says_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    specs = standard_suite(4_000_000)

    def run(spec: Spec, kernel: KernelChoice, directory: Path, console: Console) -> None:
        if spec.name == specs[2].name:
            raise KeyboardInterrupt
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "spec.yaml").write_text(spec.to_yaml())
        (directory / "result.json").write_text("{}")

    monkeypatch.setattr(suite_runs, "run_showing", run)
    for _ in range(2):  # the second time two runs are there already
        said = io.StringIO()
        with pytest.raises(KeyboardInterrupt):
            make_runs(specs, tmp_path, KernelChoice.virtual, Console(file=said, width=200))
        assert f"interrupted: 2 of {len(specs)} runs are made" in said.getvalue()
        assert f"goes on with {specs[2].name}" in said.getvalue()


def test_the_whole_suite_is_meant_to_take_less_than_25_minutes() -> None:
    assert 5 * 60 < sum(map(estimated_wall_s, standard_suite())) < 25 * 60


def test_the_table_is_written_into_a_document(tmp_path: Path) -> None:
    """Also what is missed, with what it is made of: here an all-to-all that takes 1.5 as long."""
    truth = load_predictor("flow", {"bandwidth_efficiency": 0.9})
    write_run(
        tmp_path / "run",
        "{kind: leaf-spine, leaves: 2, spines: 2, hosts_per_leaf: 4}",
        _OPERATIONS,
        truth,
        lambda call, _: 1.5 if (call.kind, call.size_bytes) == ("all_to_all", 4_000_000) else 1.0,
    )
    document = tmp_path / "prediction.md"
    document.write_text(f"# Before\n\n{BEGIN}\nold\n{END}\n\nAfter\n")
    out = tmp_path / "calibration.json"
    assert calibrate_command([tmp_path / "run"], ["flow"], out=out, table=document) == 0
    text = document.read_text()
    assert text.startswith(f"# Before\n\n{BEGIN}\nFitted to 12 collectives")
    assert text.endswith(f"{END}\n\nAfter\n") and "old" not in text
    assert "`flow`, everything (12) | 3% geomean, 8% worst |" in text
    assert "worst **missed**" in text
    cells, misses = (
        line for line in text.splitlines() if line.startswith("| leaf-spine | all_to_all |")
    )
    assert "**-33" in cells
    assert misses.startswith("| leaf-spine | all_to_all | 4MB | -33")
    # A predictor without a bar has its errors told all the same, where it has answers.
    names = ["astra-analytical"]
    assert calibrate_command([tmp_path / "run"], names, out=out, table=document) == 0
    text = document.read_text()
    assert "| `astra-analytical`, everything (8) |  |" in text
    assert "- all_to_all (4)" in text and "- broadcast" not in text
    insert(document, "anew\n")
    assert document.read_text() == f"# Before\n\n{BEGIN}\nanew\n{END}\n\nAfter\n"
    document.write_text("no marks")
    with pytest.raises(CalibrationError, match="no lines"):
        insert(document, "anew\n")
    assert document.read_text() == "no marks"


def test_what_cannot_end_well_is_refused_before_the_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("groundwire.commands.calibrate.make_runs", lambda *_: pytest.fail("ran"))
    out, plain = tmp_path / "calibration.json", tmp_path / "plain.md"
    plain.write_text("no marks")
    with pytest.raises(PredictorError, match="unknown predictor 'nope'"):
        calibrate_command(suite=Suite.standard, predictor=["nope"], out=out)
    with pytest.raises(CalibrationError, match="found a directory"):
        calibrate_command(suite=Suite.standard, out=tmp_path)
    with pytest.raises(CalibrationError, match="no lines"):
        calibrate_command(suite=Suite.standard, out=out, table=plain)
    with pytest.raises(CalibrationError, match="--hold-out is for named runs"):
        calibrate_command(suite=Suite.standard, hold_out=[tmp_path], out=out)
    assert not out.exists()


def test_a_run_does_not_judge_its_own_fit(tmp_path: Path) -> None:
    with pytest.raises(CalibrationError, match="both to fit and to judge"):
        run, same = tmp_path / "run", tmp_path / "other" / ".." / "run"
        calibrate_command([run], hold_out=[same], out=tmp_path / "calibration.json")
