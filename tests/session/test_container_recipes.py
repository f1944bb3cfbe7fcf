"""The recipes of images: read in CI, and their steps done in clean systems by the long test."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from emulator.virtual.building.build import find_kernel
from tests.remote.system import made_system
from tests.session.command import ROOT
from tests.session.recipe import System, steps_of, suite_of

_IMAGE, _DEVELOPMENT = ROOT / "Containerfile", ROOT / ".devcontainer" / "Containerfile"
_SPEC = "/opt/groundwire/lib/python3.11/site-packages/topologies/dlrm-fat-tree-k4.yaml"


def _devcontainer() -> dict[str, object]:
    text = (ROOT / ".devcontainer" / "devcontainer.json").read_text()
    found: dict[str, object] = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.M))
    return found


@pytest.mark.parametrize("recipe", [_IMAGE, _DEVELOPMENT], ids=["image", "devcontainer"])
def test_a_recipe_ends_as_a_plain_user_and_asks_for_no_privilege(recipe: Path) -> None:
    steps = steps_of(recipe)
    assert {step.name for step in steps} <= {"FROM", "RUN", "COPY", "ENV", "USER", "WORKDIR", "CMD"}
    assert [step.text for step in steps if step.name == "USER"] == ["student"]
    # Root's programs are on its path.
    last_of_root = max(number for number, step in enumerate(steps) if step.name == "RUN")
    paths = [n for n, step in enumerate(steps) if step.text.startswith("PATH=")]
    assert all(number > last_of_root for number in paths)
    said = recipe.read_text() + (ROOT / ".devcontainer" / "devcontainer.json").read_text()
    assert not re.search(r"--privileged|--cap-add|seccomp=unconfined|capAdd|securityOpt", said)
    assert "x86-64" in said


def test_the_devcontainer_is_made_of_files_that_are_there() -> None:
    found = _devcontainer()
    build = found["build"]
    assert isinstance(build, dict)
    assert (ROOT / ".devcontainer" / str(build["dockerfile"])).is_file()
    target = str(found["onCreateCommand"]).split()[-1]
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.M)
    users = [step.text for step in steps_of(_DEVELOPMENT) if step.name == "USER"]
    assert [found["remoteUser"]] == users


def _system(suite: str, context: Path, place: Path) -> System:
    if shutil.which("mmdebstrap") is None or shutil.which("bwrap") is None:
        pytest.skip("needs mmdebstrap and bubblewrap")
    return System(made_system(place, suite, ["--variant=minbase"]), context)


@pytest.mark.long
@pytest.mark.timeout(5400)
@pytest.mark.skipif(find_kernel() is None, reason="needs the virtual kernel (make setup)")
def test_the_image_runs_the_demo_without_a_privilege(tmp_path: Path) -> None:
    """With 64 MB of /dev/shm, as containers have."""
    packed = subprocess.run(
        [sys.executable, "-m", "emulator.virtual.building.wheel", str(tmp_path / "dist")],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert packed.returncode == 0, packed.stderr
    steps = steps_of(_IMAGE)
    system = _system(suite_of(steps), tmp_path, tmp_path / "systems")
    try:
        system.build(steps)
        assert system.command == ["bash"] and system.user == "student"
        ran = system.run(["groundwire", "run", _SPEC, "--out", "demo", "--json"])
        assert ran.returncode == 0, ran.stderr[-3000:]
        assert json.loads(ran.stdout)["valid"] is True
        # Nothing that is said points to what only a clone has.
        for command in (
            ["groundwire", "--help"],
            ["groundwire", "doctor"],
            ["groundwire", "lab", "list"],
        ):
            said = system.run(command)
            assert not re.search(
                r"\bmake (?:setup|demo|test|wheel)\b|setup\.sh|\bdocs/[a-z-]+\.md(?! of)",
                said.stdout + said.stderr,
            )
    finally:
        shutil.rmtree(system.root)


@pytest.mark.long
@pytest.mark.timeout(5400)
def test_the_devcontainer_runs_the_demo_of_a_clone(tmp_path: Path) -> None:
    steps = steps_of(_DEVELOPMENT)
    system = _system(suite_of(steps), tmp_path, tmp_path / "systems")
    try:
        system.build(steps)
        subprocess.run(
            ["git", "clone", "-q", str(ROOT), str(system.root / "home/student/groundwire")],
            check=True,
        )
        owner = (system.root / "home/student").stat()
        for path in (system.root / "home/student/groundwire").rglob("*"):
            os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
        os.chown(system.root / "home/student/groundwire", owner.st_uid, owner.st_gid)
        system.directory = "/home/student/groundwire"
        made = system.run(["make", "demo"], building=True, timeout_s=5000)
        assert made.returncode == 0, made.stdout[-2000:] + made.stderr[-3000:]
        assert "VALID" in made.stdout
    finally:
        shutil.rmtree(system.root)
