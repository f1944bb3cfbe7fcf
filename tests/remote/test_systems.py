"""Clean systems, from nothing but an ssh server, sudo and Python to runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from emulator.virtual.building.build import find_kernel
from tests.remote.ssh_host import SshHost, User, missing
from tests.remote.system import system_root
from tests.remote.wheelhouse import make_wheels
from tests.session.command import groundwire, result_of

_MISSING = missing()
pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(_MISSING is not None, reason=str(_MISSING)),
    pytest.mark.skipif(find_kernel() is None, reason="needs the virtual kernel (make setup)"),
    pytest.mark.skipif(
        sys.version_info[:2] != (3, 11), reason="needs the hosts' Python, 3.11, for its wheels"
    ),
]
_HOUR_S = 3600


@pytest.fixture(params=["bookworm", "jammy"])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SshHost]:
    """Debian 12 has Python 3.11; Ubuntu 22.04 has 3.10, and 3.11 beside it."""
    (tmp_path / "host").mkdir()
    made = SshHost(
        tmp_path / "host",
        user=User("worker", 1234, "free"),
        bare=True,
        system=system_root(request.param),
    )
    yield made
    made.die()


def test_a_clean_system_is_provisioned_and_runs(tmp_path: Path, host: SshHost) -> None:
    """Its packages come from its own archive, Python's as wheels from here, the kernel as a copy
    of ours where that starts there; a second provisioning changes nothing."""
    wheels = make_wheels(tmp_path / "wheels")
    hosts, spec, out = tmp_path / "hosts.yml", tmp_path / "pair.yaml", tmp_path / "out"
    entry = {**host.entry(), "groundwire_wheels": str(wheels)}
    hosts.write_text(yaml.safe_dump({"all": {"hosts": {"h": entry}}}))
    spec.write_text("""
name: pair
fabric: {kind: flat, hosts: 2, link: {rate: 10Gbps, delay: 1us, mtu: 1500}}
workload: {kind: collectives, ranks: 2, operations: [{kind: all_reduce, size: 1MB}]}
""")
    looked = groundwire("remote", "provision", "--check", "-i", hosts, timeout_s=_HOUR_S)
    assert looked.returncode == 0, looked.stderr
    assert "h: would change: " in looked.stdout
    first = groundwire("remote", "provision", "-i", hosts, timeout_s=_HOUR_S)
    print(first.stdout, first.stderr)
    assert first.returncode == 0, first.stderr
    assert "Install packages" in first.stdout
    second = groundwire("remote", "provision", "-i", hosts, timeout_s=_HOUR_S)
    assert second.stdout == "h: changed: nothing\n", second.stdout + second.stderr
    doctor = groundwire("remote", "doctor", "-i", hosts, timeout_s=_HOUR_S)
    assert "h: the main job on the virtual kernel: yes" in doctor.stdout, doctor.stderr
    done = groundwire("remote", "run", spec, "-i", hosts, "--out", out, timeout_s=_HOUR_S)
    assert done.returncode == 0, done.stderr
    assert result_of(out / "h")["valid"]
    cleaned = groundwire("remote", "clean", "--app", "-i", hosts, timeout_s=_HOUR_S)
    assert cleaned.returncode == 0, cleaned.stderr
    assert list((host.home / "groundwire").iterdir()) == []
