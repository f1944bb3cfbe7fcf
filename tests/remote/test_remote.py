"""`groundwire remote` on hosts behind ssh: what works is brought here, what fails is named."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from emulator.virtual.building.build import find_kernel
from groundwire.remote.playbook import RemoteError, run_playbook
from tests.remote.ssh_host import SshHost, missing
from tests.session.command import ROOT, groundwire, result_of

_PATIENCE_S = 300
_MISSING = missing()
needs_hosts = pytest.mark.skipif(_MISSING is not None, reason=str(_MISSING))
needs_kernel = pytest.mark.skipif(
    find_kernel() is None, reason="needs the virtual kernel (make setup)"
)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[SshHost]:
    (tmp_path / "host").mkdir()
    made = SshHost(tmp_path / "host")
    yield made
    made.die()


def _inventory(path: Path, **hosts: dict[str, object]) -> Path:
    path.write_text(yaml.safe_dump({"all": {"hosts": hosts}}))
    return path


def _spec(path: Path, iterations: int) -> Path:
    path.write_text(f"""
name: pair
fabric: {{kind: flat, hosts: 2, link: {{rate: 10Gbps, delay: 1us, mtu: 1500}}}}
workload: {{kind: collectives, ranks: 2, iterations: {iterations},
  operations: [{{kind: all_reduce, size: 1MB}}]}}
""")
    return path


@needs_hosts
@needs_kernel
def test_a_run_comes_here_from_the_host_that_works(tmp_path: Path, host: SshHost) -> None:
    """Beside it, one that nobody answers at, and one that does not know the key. The figures are
    those of a run here: virtual time is the same everywhere."""
    stranger = tmp_path / "stranger"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", stranger], check=True)
    hosts = _inventory(
        tmp_path / "hosts.yml",
        good=host.entry(),
        nobody={**host.entry(), "ansible_port": 1},
        locked=host.entry(key=stranger),
    )
    spec, out = _spec(tmp_path / "pair.yaml", 2), tmp_path / "out"
    done = groundwire("remote", "run", spec, "-i", hosts, "--out", out)
    assert done.returncode == 1, done.stderr
    assert "good  started" in done.stderr
    assert "nobody: cannot be reached" in done.stderr
    # Ansible says the second where ssh has ended before it has its data.
    assert re.search("Connection refused|Broken\\s+pipe", done.stderr), done.stderr
    assert "locked: cannot be reached" in done.stderr
    assert "Permission denied" in done.stderr
    assert sorted(path.name for path in out.iterdir()) == ["good", "remote.json"]
    here = tmp_path / "here"
    assert groundwire("run", spec, "--kernel", "virtual", "--out", here).returncode == 0
    assert result_of(out / "good") == result_of(here)
    assert {path.name for path in (out / "good").iterdir()} == {
        path.name for path in here.iterdir()
    }

    # A transfer that broke off is made again, and whatever is not ours stays when it is cleaned.
    fetched = result_of(out / "good")
    (out / "good" / "result.json").unlink()
    again = groundwire("remote", "collect", out, "-i", hosts, "-l", "good", "--json")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["good"]["result"]["valid"]
    assert result_of(out / "good") == fetched
    foreign = host.home / "groundwire" / "mine.txt"
    foreign.touch()
    cleaned = groundwire("remote", "clean", "-i", hosts, "-l", "good")
    assert cleaned.returncode == 0, cleaned.stderr
    assert cleaned.stdout == "good: clean\n"
    assert {path.name for path in (host.home / "groundwire").iterdir()} == {"app", "mine.txt"}


@needs_hosts
@needs_kernel
def test_an_interrupt_ends_the_run_on_the_host(tmp_path: Path, host: SshHost) -> None:
    process = _started(tmp_path, host)
    runs = list((host.home / "groundwire" / "runs").iterdir())
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=_PATIENCE_S)
    assert process.returncode == 130, said
    assert (runs[0] / "exit_code").read_text() == "130"


@needs_hosts
@needs_kernel
def test_a_host_that_dies_is_named(tmp_path: Path, host: SshHost) -> None:
    process = _started(tmp_path, host)
    host.die()
    _, said = process.communicate(timeout=_PATIENCE_S)
    assert process.returncode == 1, said
    assert "h: cannot be reached" in said


def _started(tmp_path: Path, host: SshHost) -> subprocess.Popen[str]:
    """A long run on host `h`, which is at its iterations."""
    hosts = _inventory(tmp_path / "hosts.yml", h=host.entry())
    spec = _spec(tmp_path / "pair.yaml", 100_000)
    command = [sys.executable, "-m", "groundwire.cli", "remote", "run", str(spec), "-i", str(hosts)]
    process = subprocess.Popen(
        [*command, "--out", str(tmp_path / "out")],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stderr is not None
    deadline = time.monotonic() + _PATIENCE_S
    for line in process.stderr:
        assert time.monotonic() < deadline
        if "iteration" in line:
            return process
    raise AssertionError("it ended before")


@needs_hosts
def test_a_host_without_groundwire_is_told_how_to_get_it(tmp_path: Path, host: SshHost) -> None:
    (host.home / "groundwire" / "app" / ".venv").unlink()
    hosts = _inventory(tmp_path / "hosts.yml", h=host.entry())
    done = groundwire(
        "remote", "run", _spec(tmp_path / "pair.yaml", 1), "-i", hosts, "--out", tmp_path / "out"
    )
    assert done.returncode == 1
    assert "groundwire remote provision" in done.stderr


def test_an_inventory_that_is_not_there_is_bad_input(tmp_path: Path) -> None:
    done = groundwire("remote", "doctor", "-i", tmp_path / "hosts.yml")
    assert done.returncode == 2
    assert f"{tmp_path / 'hosts.yml'}: no such file" in done.stderr


def test_without_ansible_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ansible_runner", None)
    with pytest.raises(RemoteError, match=r"groundwire\[remote\]"):
        run_playbook("doctor", tmp_path / "hosts.yml", {}, lambda event: None)


@pytest.mark.long
@pytest.mark.timeout(3600)
@needs_hosts
@needs_kernel
def test_a_second_provisioning_changes_nothing(tmp_path: Path) -> None:
    """The first brings everything but system packages, and the kernel from here."""
    (tmp_path / "host").mkdir()
    host = SshHost(tmp_path / "host", bare=True)
    try:
        hosts = _inventory(tmp_path / "hosts.yml", h=host.entry())
        shared = Path.home() / ".cache" / "groundwire" / "remote"
        before = _written(shared)
        looked = groundwire("remote", "provision", "--check", "-i", hosts)
        assert looked.returncode == 0, looked.stderr
        assert "h: would change: " in looked.stdout
        assert not (host.home / "groundwire").exists()
        assert _written(shared) == before  # else one provisioning sends what another has packed
        first = groundwire("remote", "provision", "-i", hosts, timeout_s=1800)
        assert first.returncode == 0, first.stderr
        assert "Unpack the application" in first.stdout
        assert find_kernel() is not None
        second = groundwire("remote", "provision", "-i", hosts)
        assert second.stdout == "h: changed: nothing\n", second.stderr
        doctor = groundwire("remote", "doctor", "-i", hosts)
        assert doctor.returncode == 0, doctor.stdout
        assert "h: the main job on the virtual kernel: yes" in doctor.stdout
    finally:
        host.die()


def _written(directory: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in directory.rglob("*")}
