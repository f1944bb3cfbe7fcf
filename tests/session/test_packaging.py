"""What is not Python, but needed to run, is part of the package also when it is installed."""

from __future__ import annotations

import tomllib
from pathlib import Path

from tests.session.command import ROOT


def test_every_data_file_is_in_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packed: set[Path] = set()
    for package, patterns in project["tool"]["setuptools"]["package-data"].items():
        for pattern in patterns:
            packed |= set((ROOT / package).glob(pattern))
    for package in ("topologies", "emulator", "workloads", "analysis", "labs"):
        for path in (ROOT / package).rglob("*"):
            plain = path.is_file() and path.suffix != ".py" and "__pycache__" not in path.parts
            assert not plain or path in packed, path


def test_the_licences_are_there() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert all((ROOT / name).is_file() for name in project["license-files"])
