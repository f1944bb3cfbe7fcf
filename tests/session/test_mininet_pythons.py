"""Mininet's command line on a fabric, by each Python that pyproject.toml admits."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from emulator.virtual.building.cache import kernel_cache
from tests.remote.system import CERTIFICATES, made_system, moved
from tests.session.command import ROOT
from tests.session.test_mininet import pythons

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for the native kernel"),
]
_SHELL = (
    "-W error::SyntaxWarning -m groundwire.cli shell --topo single,2 --kernel native"
    " --command 'h1 ping -c1 h2' --command nodes"
)


def _needed() -> str:
    """The packages that Groundwire needs but torch, which no shell imports."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return shlex.join(d for d in project["dependencies"] if not d.startswith("torch=="))


def _bash(script: str) -> str:
    done = subprocess.run(
        ["unshare", "--mount", "bash", "-euc", script],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("python", [p for p in pythons() if p != sys.executable])
def test_the_shell_works_in_this_machines_pythons(python: str, tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    made = f"{python} -m venv {venv} && {venv}/bin/pip install -q {_needed()}"
    said = _bash(f"{made} && {venv}/bin/python {_SHELL}")
    assert " 0% packet loss" in said and "h1 h2 s1" in said


@pytest.fixture(scope="module")
def sid() -> Path:
    """A system of Debian's unstable, with its Python."""
    if shutil.which("mmdebstrap") is None:
        pytest.skip("needs mmdebstrap, of the package mmdebstrap")
    cache = kernel_cache().parent / "test-roots"
    root = cache / "sid-python"
    if not root.is_dir():
        options = [
            "--variant=minbase",
            "--include=python3.14-venv,iproute2,iputils-ping,mount",
            '--aptopt=Acquire::Check-Valid-Until "false"',  # mirrors that are kept as they were
        ]
        made = made_system(cache, "sid", options)
        (made / CERTIFICATES.relative_to("/")).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(CERTIFICATES, made / CERTIFICATES.relative_to("/"))
        (made / "work").mkdir()
        moved(made, root)
    return root


def test_the_shell_works_in_python_3_14(sid: Path, tmp_path: Path) -> None:
    (tmp_path / "upper").mkdir()
    (tmp_path / "over").mkdir()
    root = tmp_path / "root"
    root.mkdir()
    layers = f"lowerdir={sid},upperdir={tmp_path}/upper,workdir={tmp_path}/over"
    inside = (
        "cd /work && python3.14 -m venv /root/venv"
        f" && /root/venv/bin/pip install -q {_needed()} && /root/venv/bin/python {_SHELL}"
    )
    said = _bash(
        f"mount -t overlay -o {layers} system {root}; cd {root}\n"
        "mount -t proc proc proc; mount --rbind /dev dev; mount --rbind /sys sys\n"
        f"mount --bind {ROOT} work; mount -t tmpfs run run\n"
        "cp -L /etc/resolv.conf /etc/hosts etc/\n"
        "exec chroot . env HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin"
        f" PYTHONDONTWRITEBYTECODE=1 PIP_CERT={CERTIFICATES} bash -euc {shlex.quote(inside)}"
    )
    assert " 0% packet loss" in said and "h1 h2 s1" in said
