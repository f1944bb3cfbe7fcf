"""The gallery shows what its commands make."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

from emulator.virtual.building.build import find_kernel
from testing.gallery import EXPERIMENTS, PAGE, render, run_experiment

_KEPT = PAGE.parent / "gallery"


def test_the_page_is_what_is_kept() -> None:
    """`make gallery` is to be run where this fails."""
    assert PAGE.read_text() == render()
    names = {experiment.name for experiment in EXPERIMENTS}
    assert {path.stem for path in _KEPT.iterdir()} == names
    for experiment in EXPERIMENTS:
        kept = json.loads((_KEPT / f"{experiment.name}.json").read_text())
        assert kept["command"] == experiment.command
        assert kept["verdict"] == "VALID"


def test_pictures_load_nothing() -> None:
    for path in _KEPT.glob("*.svg"):
        assert not re.search(r"(?:href|src)=|@import|url\((?!#)", path.read_text()), path


@pytest.mark.skipif(find_kernel() is None, reason="needs the virtual kernel (make setup)")
def test_an_experiment_finds_the_same_again(tmp_path: Path) -> None:
    experiment = next(each for each in EXPERIMENTS if each.name == "ecmp")
    run_experiment(experiment, tmp_path)
    for kind in ("json", "svg"):
        name = f"{experiment.name}.{kind}"
        assert (tmp_path / name).read_text() == (_KEPT / name).read_text()


@pytest.mark.skipif(find_kernel() is None, reason="needs the virtual kernel (make setup)")
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the directory in which it lies, as Jupyter does it."""
    pytest.importorskip("pandas", reason="pandas (the extra `tables`) is not installed")
    (tmp_path / "topologies").symlink_to(PAGE.parents[1] / "topologies")
    (tmp_path / "docs").mkdir()
    monkeypatch.chdir(tmp_path / "docs")
    notebook = json.loads((PAGE.parent / "notebook.ipynb").read_text())
    names: dict[str, Any] = {}
    shown = []
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        assert not cell["outputs"] and cell["execution_count"] is None
        *before, last = ast.parse("".join(cell["source"])).body
        assert isinstance(last, ast.Expr)
        exec(compile(ast.Module(before, []), "notebook", "exec"), names)
        shown.append(eval(compile(ast.Expression(last.value), "notebook", "eval"), names))
    assert "VALID" in shown[0]._repr_html_()
    assert shown[2]._repr_svg_().startswith("<svg")
    assert all(1.5 < ratio < 2.5 for ratio in shown[-1])
