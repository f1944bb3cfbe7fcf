"""A virtual machine with a kernel of its own: provisioned, and a native run on it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from emulator.virtual.building.build import find_kernel
from tests.remote.vm import Vm, missing
from tests.session.command import groundwire, result_of

_MISSING = missing()
_SPEC = """
name: pair
fabric:
  kind: flat
  hosts: 2
  link: {rate: 10Mbps, delay: 5ms, mtu: 1500}
  queue: {kind: dctcp, k: 30KB, buffer: 300KB}
transport: {congestion_control: dctcp}
workload: {kind: collectives, ranks: 2, operations: [{kind: all_reduce, size: 100KB}]}
"""


@pytest.fixture
def vm(tmp_path: Path) -> Iterator[Vm]:
    made = Vm(tmp_path)
    yield made
    made.stop()


@pytest.mark.long
@pytest.mark.timeout(4 * 3600)
@pytest.mark.skipif(_MISSING is not None, reason=str(_MISSING))
@pytest.mark.skipif(find_kernel() is None, reason="needs the virtual kernel (make setup)")
def test_a_machine_is_provisioned_and_runs_by_its_own_kernel(tmp_path: Path, vm: Vm) -> None:
    """Without hardware acceleration it is 10 to 20 times slower: whether the run is valid is the
    monitor's to say."""
    hosts = tmp_path / "hosts.yml"
    hosts.write_text(yaml.safe_dump({"all": {"hosts": {"vm": vm.entry()}}}))
    spec, out = tmp_path / "pair.yaml", tmp_path / "out"
    spec.write_text(_SPEC)
    hour = 3600
    first = groundwire("remote", "provision", "--native", "-i", hosts, timeout_s=3 * hour)
    print(first.stdout, first.stderr)
    assert first.returncode == 0, first.stderr
    second = groundwire("remote", "provision", "--native", "-i", hosts, timeout_s=hour)
    assert second.stdout == "vm: changed: nothing\n", second.stdout + second.stderr
    modules = vm.says("cat /proc/modules").split()
    assert {"sch_netem", "sch_red", "tcp_dctcp"} <= set(modules)
    doctor = groundwire("remote", "doctor", "--native", "-i", hosts, "--json", timeout_s=hour)
    assert json.loads(doctor.stdout)["vm"]["main_job"]["native_lacks"] == [], doctor.stdout
    done = groundwire("remote", "run", spec, "--native", "-i", hosts, "--out", out, timeout_s=hour)
    print(vm.accelerator, vm.says("uname -rv"), done.stdout, done.stderr)
    assert done.returncode in (0, 3), done.stderr
    result = result_of(out / "vm")
    assert result["valid"] is (done.returncode == 0)
    assert result["valid"] or result["invalid_reasons"]
    environment = json.loads((out / "vm" / "environment.json").read_text())
    assert environment["kernel_release"] == vm.says("uname -r").strip()
    (collective,) = result["collectives"]
    assert collective["duration_ns"] > 80_000_000  # 100 KB each way at 10 Mb/s
