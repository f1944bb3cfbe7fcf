"""The newest torch, which is not the one that pyproject.toml pins: what would have to change."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from testing.torch_interfaces import LACKED, listed

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]  # for gigabytes to come


@pytest.fixture(scope="module")
def newest(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The Python of a virtual environment in which torch is the newest one, and all else is ours.
    It is the build of GROUNDWIRE_TORCH_INDEX, else what pip finds, which may have gigabytes for
    accelerators."""
    place = tmp_path_factory.mktemp("newest")
    python = str(place / "bin" / "python")
    subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
    index = os.environ.get("GROUNDWIRE_TORCH_INDEX")
    more = ["--extra-index-url", index] if index else []
    subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--no-compile", *more, "torch"],
        env=os.environ | {"PIP_CONSTRAINT": os.devnull},
        check=True,
    )
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = Path(_python(python, "-c", code).strip())
    ours = f"{sysconfig.get_path('purelib')}\n{ROOT}\n"
    (packages / "ours.pth").write_text(ours)  # behind its own
    return python


def _python(python: str, *arguments: str) -> str:
    done = subprocess.run([python, *arguments], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_is_newer(newest: str) -> None:
    pinned = _python(sys.executable, "-c", "import torch; print(torch.__version__)")
    found = _python(newest, "-c", "import torch; print(torch.__version__)")
    print(f"torch {found.strip()}, where pyproject.toml has {pinned.strip()}")
    assert tuple(map(int, found.split(".")[:2])) >= tuple(map(int, pinned.split(".")[:2]))


def test_it_has_what_we_use_of_it(newest: str) -> None:
    assert _python(newest, "-c", LACKED, *listed()).split() == []


def test_it_runs_collectives(newest: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    spec = "topologies/two-hosts.yaml"
    _python(newest, "-m", "groundwire.cli", "run", spec, "--kernel", "virtual", "--out", str(out))
    assert json.loads((out / "result.json").read_text())["valid"]


def test_it_runs_a_training_script_that_is_observed(newest: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    command = ["exec", "topologies/two-hosts.yaml", "--kernel", "virtual", "--out", str(out)]
    script = str(ROOT / "tests" / "torch_backend" / "ddp_script.py")
    program = [newest, script, "gloo"]
    _python(newest, "-m", "groundwire.cli", *command, "--", *program)
    result = json.loads((out / "result.json").read_text())
    assert result["valid"]
    assert {each["kind"] for each in result["collectives"]} >= {"all_reduce"}
