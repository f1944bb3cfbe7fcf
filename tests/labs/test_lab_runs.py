"""Labs as a student takes them, by the command: the starter does not pass, the solution does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from emulator.virtual.building.build import find_kernel
from groundwire.labs.lab import lab_names
from tests.session.command import groundwire

pytestmark = pytest.mark.skipif(
    find_kernel() is None, reason="needs the virtual kernel (make setup)"
)
_IN_CI = ("packet-time", "ring-all-reduce")
"""The others take longer together than CI has."""


def _labs() -> list[Any]:
    return [
        name if name in _IN_CI else pytest.param(name, marks=pytest.mark.long)
        for name in lab_names()
    ]


def _check(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(groundwire("lab", "check", folder, "--json").stdout)
    return found


@pytest.mark.parametrize("name", _labs())
def test_the_solution_gets_full_marks(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "solved"
    started = groundwire("lab", "start", name, folder, "--name", "Ada", "--solution")
    assert started.returncode == 0, started.stderr
    ran = groundwire("lab", "run", folder)
    assert ran.returncode == 0, ran.stderr + ran.stdout
    verdict = _check(folder)
    assert verdict["points"] == verdict["of"], verdict
    assert groundwire("lab", "check", folder).returncode == 0
    page = groundwire("lab", "report", folder)
    assert (folder / "report.html").stat().st_size > 10_000, page.stderr


@pytest.mark.parametrize("name", _IN_CI)
def test_the_starter_runs_and_does_not_pass(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "begun"
    assert groundwire("lab", "start", name, folder, "--name", "Ada").returncode == 0
    assert all(each["missing"] for each in _check(folder)["questions"])
    ran = groundwire("lab", "run", folder)
    assert ran.returncode == 0, ran.stderr
    verdict = _check(folder)
    assert verdict["points"] <= 2  # the slow ring's sums are right
    (wrong,) = [
        each for each in verdict["questions"] if each["name"] in ("measured_ns", "measured_bytes")
    ]
    assert wrong["found"] is not None
    assert "TODO" in wrong["hint"]
    hint = groundwire("lab", "hint", wrong["name"], "--dir", folder)
    assert wrong["hint"] in " ".join(hint.stdout.split())
    program = next(folder.glob("*.py"))
    program.write_text(program.read_text() + "\n")
    assert all("have changed since the run" in why for why in _check(folder)["failures"].values())


def test_labs_are_listed_and_a_wrong_name_is_answered() -> None:
    listed = json.loads(groundwire("lab", "list", "--json").stdout)
    assert listed[0]["name"] == "packet-time"
    wrong = groundwire("lab", "start", "packet-tim")
    assert wrong.returncode == 2
    assert "found 'packet-tim'; allowed are" in wrong.stderr
