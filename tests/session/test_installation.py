"""An installation's messages name no file that only a clone has."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.session.command import ROOT, copy_clone

_ONLY_IN_CLONES = ("make setup", "setup.sh", "benchmarks/", "studies/ has")
_COMMANDS = ("--help", "run --help", "study --help", "design --help", "doctor")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rooms alone, as a wheel has them."""
    place = copy_clone(tmp_path_factory.mktemp("site") / "site-packages")
    for name in ("setup.sh", "Makefile", "README.md", "CONTRIBUTING.md", "pyproject.toml"):
        (place / name).unlink()
    return place


def _said(place: Path, *command: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "groundwire.cli", *command],
        cwd=place,
        env=os.environ | {"COLUMNS": "400", "PYTHONPATH": str(place)},
        capture_output=True,
        text=True,
    )
    return " ".join((done.stdout + done.stderr).split())


@pytest.mark.parametrize("command", _COMMANDS)
def test_an_installation_points_to_what_it_has(command: str, installed: Path) -> None:
    said = _said(installed, *command.split())
    assert not [name for name in _ONLY_IN_CLONES if name in said]
    if command == "run --help":
        assert f"{installed / 'topologies'}/" in said


def test_a_clone_points_to_its_own(installed: Path) -> None:
    assert "topologies/ has ready ones" in _said(ROOT, "run", "--help")
    assert "studies/ has ready ones" in _said(ROOT, "study", "--help")
