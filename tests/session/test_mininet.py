"""Mininet's topologies as fabrics of runs; runs where there is no Mininet; every Python of ours."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import yaml

from groundwire.commands.execute import execute
from groundwire.commands.run import KernelChoice, run

_DUMBBELL = """
from mininet.topo import Topo

class Dumbbell(Topo):
    def build(self, pairs=1):
        left, right = self.addSwitch("s1"), self.addSwitch("s2")
        self.addLink(left, right, bw=500)
        for number in range(2 * pairs):
            self.addLink(self.addHost(f"h{number}"), right if number % 2 else left)

topos = {"dumbbell": Dumbbell}
"""
_SPEC = """
fabric: {kind: flat, hosts: 4}
workload: {kind: collectives, ranks: 4, operations: [{kind: all_reduce, size: 100KB}]}
"""


@pytest.fixture
def custom(tmp_path: Path) -> Path:
    path = tmp_path / "lab.py"
    path.write_text(_DUMBBELL)
    return path


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "four.yaml"
    path.write_text(_SPEC)
    return path


def _narrow_link(directory: Path) -> int:
    ports = [json.loads(line) for line in (directory / "links.jsonl").read_text().splitlines()]
    return int(next(p["rate_bps"] for p in ports if {p["node"], p["peer"]} == {"s1", "s2"}))


def test_run_takes_a_mininet_topology(spec: Path, custom: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    code = run(spec, KernelChoice.virtual, out, topo="dumbbell,2", custom=custom)
    assert code == 0
    assert _narrow_link(out) == 500_000_000
    made = yaml.safe_load((out / "spec.yaml").read_text())
    assert made["fabric"]["kind"] == "graph"
    assert made["workload"]["ranks"] == 4


def test_exec_has_a_rank_on_each_host_of_the_topology(
    spec: Path, custom: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    command = ["sh", "-c", "echo $RANK of $WORLD_SIZE"]
    code = execute(
        spec, command, topo="dumbbell,pairs=3", custom=custom, kernel=KernelChoice.virtual, out=out
    )
    assert code == 0
    assert (out / "ranks" / "005.out").read_text() == "5 of 6\n"


@pytest.fixture
def without_mininet(tmp_path: Path) -> dict[str, str]:
    """An environment in which nobody finds Mininet."""
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "mininet.py").write_text("raise ModuleNotFoundError('hidden', name='mininet')")
    return os.environ | {"PYTHONPATH": f"{hidden}{os.pathsep}{Path.cwd()}"}


def _groundwire(
    environment: dict[str, str], *arguments: str | Path
) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-m", "groundwire.cli", *map(str, arguments)]
    return subprocess.run(program, env=environment, capture_output=True, text=True)


def test_run_works_without_mininet(
    spec: Path, tmp_path: Path, without_mininet: dict[str, str]
) -> None:
    out = tmp_path / "run"
    done = _groundwire(without_mininet, "run", spec, "--kernel", "virtual", "--out", out)
    assert done.returncode == 0, done.stderr
    assert (out / "result.json").exists()


@pytest.mark.parametrize(
    "arguments", [["shell", "--topo", "single,2"], ["run", "spec.yaml", "--topo", "single,2"]]
)
def test_what_needs_mininet_says_how_to_install_it(
    arguments: list[str], without_mininet: dict[str, str]
) -> None:
    done = _groundwire(without_mininet, *arguments)
    assert done.returncode == 2
    assert done.stderr.endswith("-m pip install mininet==2.3.0.dev6 setuptools\n")
    assert len(done.stderr.splitlines()) == 1


def test_help_lists_the_shell_without_mininet(without_mininet: dict[str, str]) -> None:
    done = _groundwire(without_mininet, "--help")
    assert done.returncode == 0, done.stderr
    assert "shell" in done.stdout


def pythons() -> list[str]:
    """Each minor version of Python that we support and that this machine has."""
    found = [sys.executable]
    for minor in range(11, 15):
        for path in (
            *sorted(Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python3.{minor}")),
            shutil.which(f"python3.{minor}"),
        ):
            if path and subprocess.run([path, "-c", ""], capture_output=True).returncode == 0:
                found.append(str(path))
                break
    return found


@pytest.mark.parametrize("python", pythons())
def test_mininet_is_imported_by_each_python(python: str) -> None:
    """Without site, so that nothing but our own import of setuptools can help."""
    places = [str(Path.cwd()), sysconfig.get_path("purelib")]
    program = (
        f"import sys; sys.path[:0] = {places!r}\n"
        "import emulator.mininet\n"
        "from mininet.cli import CLI\nfrom mininet.net import Mininet\n"
        "from mininet.topolib import TreeTopo\nfrom mininet.node import StrictVersion\n"
        "assert len(TreeTopo(depth=2, fanout=2).hosts()) == 4\n"
        "assert StrictVersion('2.10') > StrictVersion('2.9')\n"
    )
    done = subprocess.run(
        [python, "-S", "-W", "error::SyntaxWarning", "-c", program], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
