"""Hosts where somebody else than root logs in, and hosts without room."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from emulator.virtual.building.build import find_kernel
from groundwire.remote.playbook import run_playbook
from tests.remote.ssh_host import PASSWORD, SshHost, Sudo, User, missing_for_users
from tests.session.command import groundwire, result_of

_MISSING = missing_for_users()
pytestmark = [
    pytest.mark.skipif(_MISSING is not None, reason=str(_MISSING)),
    pytest.mark.skipif(find_kernel() is None, reason="needs the virtual kernel (make setup)"),
]
_SPEC = """
name: pair
fabric: {kind: flat, hosts: 2, link: {rate: 10Gbps, delay: 1us, mtu: 1500}}
workload: {kind: collectives, ranks: 2, operations: [{kind: all_reduce, size: 1MB}]}
"""


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def _host(hosts: ExitStack, tmp_path: Path, sudo: Sudo, runs_disk: str | None = None) -> SshHost:
    directory = tmp_path / f"machine{len(list(tmp_path.iterdir()))}"
    directory.mkdir()
    host = SshHost(directory, user=User("worker", 1234, sudo), runs_disk=runs_disk)
    hosts.callback(host.die)
    return host


def _inventory(path: Path, **hosts: dict[str, Any]) -> Path:
    path.write_text(yaml.safe_dump({"all": {"hosts": hosts}}))
    return path


def test_who_is_not_root_needs_sudo_for_native_runs(tmp_path: Path, hosts: ExitStack) -> None:
    free, asks, none = (_host(hosts, tmp_path, sudo) for sudo in ("free", "password", "none"))
    inventory = _inventory(
        tmp_path / "hosts.yml",
        free=free.entry(),
        told=asks.entry() | {"ansible_become_password": PASSWORD},
        asks=asks.entry(),
        wrong=asks.entry() | {"ansible_become_password": "another"},
        none=none.entry() | {"ansible_become_password": PASSWORD},
    )
    done = groundwire("remote", "doctor", "--native", "-i", inventory, "--json")
    assert done.returncode == 1
    answers = json.loads(done.stdout)
    for host in ("free", "told"):
        assert "native_lacks" in answers[host]["main_job"], done.stderr
    assert "sudo password" in answers["asks"]["failure"]
    assert "Incorrect sudo password" in answers["wrong"]["failure"]
    assert "not in the sudoers file" in answers["none"]["failure"]


def test_who_is_not_root_runs_in_the_virtual_kernel(tmp_path: Path, hosts: ExitStack) -> None:
    """And what comes here is ours, with the bytes of a run here. Beside it, one without room."""
    spec = tmp_path / "pair.yaml"
    spec.write_text(_SPEC)
    inventory = _inventory(
        tmp_path / "hosts.yml",
        good=_host(hosts, tmp_path, "none").entry(),
        full=_host(hosts, tmp_path, "none", runs_disk="32k").entry(),
    )
    out, here = tmp_path / "out", tmp_path / "here"
    done = groundwire("remote", "run", spec, "-i", inventory, "--out", out)
    assert done.returncode == 1, done.stderr
    assert "full: " in done.stderr
    assert "No space left on device" in done.stderr
    assert groundwire("run", spec, "--kernel", "virtual", "--out", here).returncode == 0
    assert result_of(out / "good") == result_of(here)
    assert not (out / "full").exists()


def test_a_transfer_that_broke_off_goes_on_with_what_is_missing(
    tmp_path: Path, hosts: ExitStack
) -> None:
    """A run of three parts, of which one has come whole, one in part and one not at all."""
    host = _host(hosts, tmp_path, "none")
    run = host.home / "groundwire" / "runs" / "large"
    (run / "out").mkdir(parents=True)
    run.chmod(0o777)
    (run / "exit_code").write_text("0")
    (run / "out" / "capture").write_bytes(os.urandom(20 * 2**20))
    inventory = _inventory(tmp_path / "hosts.yml", h=host.entry())
    parts = tmp_path / "parts"
    variables = {"groundwire_run": "large", "groundwire_parts": str(parts)}

    def fetched() -> dict[str, bool]:
        done = run_playbook("collect", inventory, variables, lambda event: None)
        assert done.failures == {}
        items = done.results["h"]["Fetch the parts"]["results"]
        return {Path(item["dest"]).name: bool(item["changed"]) for item in items}

    names = ["part.00000", "part.00001", "part.00002"]
    assert fetched() == dict.fromkeys(names, True)
    whole = [(parts / "h" / name).read_bytes() for name in names]
    (parts / "h" / names[1]).write_bytes(whole[1][:1000])
    (parts / "h" / names[2]).unlink()
    assert fetched() == {names[0]: False, names[1]: True, names[2]: True}
    assert [(parts / "h" / name).read_bytes() for name in names] == whole
