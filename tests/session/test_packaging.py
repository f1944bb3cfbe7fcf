"""Files that are not Python, but needed to run, are part of the package also when it is
installed."""

from __future__ import annotations

import tomllib
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from groundwire.rooms import ROOMS
from tests.session.command import ROOT

_ROOMS = (*ROOMS, "labs", "playbooks")


def test_every_data_file_is_in_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packed: set[Path] = set()
    for package, patterns in project["tool"]["setuptools"]["package-data"].items():
        for name in _ROOMS if package == "*" else (package,):
            for pattern in patterns:
                packed |= set((ROOT / name).glob(pattern))
    for package in _ROOMS:
        for path in (ROOT / package).rglob("*"):
            plain = path.is_file() and path.suffix != ".py" and "__pycache__" not in path.parts
            assert not plain or path in packed, path


def test_all_that_names_the_version_names_the_same() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## {version}\n" in (ROOT / "CHANGELOG.md").read_text()


def test_the_licences_are_there() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert all((ROOT / name).is_file() for name in project["license-files"])


def test_the_versions_that_setup_installs_are_those_that_the_package_allows() -> None:
    """`make constraints` is to be run where pyproject.toml asks for something else."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pinned: dict[str, list[str]] = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if not line.startswith("#"):
            pin = Requirement(line)
            [version] = [each.version for each in pin.specifier]
            pinned.setdefault(canonicalize_name(pin.name), []).append(version)
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *(w for each in extras.values() for w in each)]
    for text in wanted:
        requirement = Requirement(text)
        if requirement.name in ("groundwire", "ns3"):  # setup does not install ns3
            continue
        found = pinned.get(canonicalize_name(requirement.name), [])
        assert found, f"constraints.txt lacks {text}"
        for version in found:
            assert requirement.specifier.contains(version, prereleases=True), (text, version)


def test_every_list_of_rooms_has_all_of_them() -> None:
    """The rooms that are copied to other machines, and checked, are those of an installation."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    assert set(project["importlinter"]["root_packages"]) == set(ROOMS)
    packed = {each.rstrip("*") for each in project["setuptools"]["packages"]["find"]["include"]}
    assert packed == set(_ROOMS)
    variables = yaml.safe_load((ROOT / "playbooks" / "group_vars" / "all.yml").read_text())
    assert set(variables["groundwire_rooms"]) == {*ROOMS, "playbooks"}
