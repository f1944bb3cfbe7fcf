"""Runs in the virtual kernel that do not come to their end: what a user sees, and what is left."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.session.command import ROOT
from tests.session.leftovers import left_by

_STAR = """
name: star
seed: 1
fabric: {{kind: flat, hosts: 8, link: {{rate: 100Gbps, delay: 1us, mtu: 9000}}}}
workload: {{kind: collectives, ranks: 8, iterations: 1,
  operations: [{{kind: all_reduce, size: {size}}}]}}
capture: {{points: []}}
virtual: {{memory: {memory}}}
"""


def _run(directory: Path, size: str, memory: str) -> tuple[int, str, list[str]]:
    """Exit status, standard error, and what is left of the guest."""
    spec = directory / "star.yaml"
    spec.write_text(_STAR.format(size=size, memory=memory))
    command = [sys.executable, "-m", "emulator.cli", "run", str(spec), "--kernel", "virtual"]
    process = subprocess.Popen(
        [*command, "--out", str(directory / "run")],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        _, said = process.communicate(timeout=280)
    finally:
        process.kill()
    return process.returncode, said, left_by(process.pid)


# Builds of torch for accelerators are larger: what is hardly enough to read them into it, and what
# a tensor of 64 GB asks for, with their 400 MiB more.
_CPU_BUILD = version("torch").endswith("+cpu")
_HARDLY_MB = 370 if _CPU_BUILD else 500
_WANTED_MB = "609,040" if _CPU_BUILD else "609,460"


# Ranks that make larger tensors than fit, and a guest that has hardly enough to read torch into it,
# which without further ado drops programs from memory and reads them again for ever.
@pytest.mark.parametrize(
    ("size", "memory", "given", "largest"),
    [
        ("256MB", "1GB", "1,000 MB", "rank [0-7]"),
        ("8MB", f"{_HARDLY_MB}MB", f"{_HARDLY_MB} MB", "rank [0-7]|nursery"),
    ],
)
def test_a_run_that_is_out_of_memory_says_who_had_it(
    tmp_path: Path, size: str, memory: str, given: str, largest: str
) -> None:
    status, said, left = _run(tmp_path, size, memory)
    assert status == 1
    assert f"(out-of-memory): the guest's {given} were not enough" in said
    assert re.search(r"[\d,]+ MB were processes', \d+ MB files' in /tmp", said)
    assert re.search(rf"the largest, .*({largest}) \(pid \d+\) [\d,]+ MB", said), said
    assert re.search(r"^Give it more: --set virtual.memory=\d+GB$", said, re.MULTILINE)
    assert re.search(r"^  \[ +\d+\.\d+\] Kernel panic - not syncing", said, re.MULTILINE)
    assert not (tmp_path / "run" / "result.json").exists()
    assert left == []


@pytest.mark.parametrize(
    ("size", "memory", "wanted"), [("8MB", "300GB", "300,000"), ("64GB", "auto", _WANTED_MB)]
)
def test_a_run_that_needs_more_memory_than_there_can_be_is_refused(
    tmp_path: Path, size: str, memory: str, wanted: str
) -> None:
    # By itself a guest gets 800 MiB, 24 MiB for each of 8 ranks, its tensor with a sixteenth for
    # gaps, and a tensor's blocks that are on their way.
    status, said, left = _run(tmp_path, size, memory)
    assert status == 1
    assert f"guest memory of {wanted} MB refused: a guest has at most 255,551 MB" in said
    assert left == []


def test_a_full_disk_is_said_and_leaves_no_result(tmp_path: Path) -> None:
    mounts = [
        "unshare",
        "--mount",
        "sh",
        "-c",
        'mount -t tmpfs -o size=64k tmpfs "$0" && exec "$@"',
    ]
    if subprocess.run([*mounts, tmp_path, "true"], capture_output=True).returncode != 0:
        pytest.skip("this user may not mount a small file system")
    spec = ROOT / "topologies" / "two-hosts.yaml"
    command = [sys.executable, "-m", "emulator.cli", "run", spec, "--kernel", "virtual"]
    done = subprocess.run(
        [*mounts, tmp_path, *command, "--out", tmp_path / "run"],
        cwd=ROOT, capture_output=True, text=True, timeout=280,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stdout == ""
    full = f"error: the run directory {tmp_path}/run is full (No space left on device): 0 bytes are"
    assert full in done.stderr
    assert "/run/experiment" not in done.stderr
