"""A run directory whose file system runs full, whoever meets it first."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from emulator.ranks.failures import full_directory
from emulator.ranks.failures.full_directory import RunDirectoryFull, full_directory_reported
from tests.session.command import ROOT

_SPEC = """
name: small
fabric: {kind: flat, hosts: 2, link: {rate: 10Gbps, delay: 1us, mtu: 1500}}
workload: {kind: collectives, ranks: 2, operations: [{kind: all_reduce, size: 1MB}]}
capture: {points: [hosts]}
"""
# A file system of so many KiB in namespaces of its own, and a command there.
_INSIDE = 'mount -t tmpfs -o size="$0k" tmpfs "$1" && shift && exec "$@"'


def _own_file_system(size_kib: int, directory: Path, *command: str) -> tuple[int, list[str]]:
    unshare = ["unshare", "--user", "--map-root-user", "--mount"]
    done = subprocess.run(
        [*unshare, "sh", "-c", _INSIDE, str(size_kib), str(directory), *command],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        timeout=280,
    )
    return done.returncode, done.stderr.splitlines()


# Files that run full: a rank's log of events, the captures, counters of the guest, the report.
@pytest.mark.parametrize(
    ("size_kib", "last"), [(12, "ranks/"), (590, "capture/h"), (670, "report.html")]
)
def test_a_run_says_that_its_directory_is_full(tmp_path: Path, size_kib: int, last: str) -> None:
    """A rank's traceback was said, or nothing but 'No space left on device'."""
    if _own_file_system(size_kib, tmp_path, "true")[0] != 0:
        pytest.skip("this machine gives users no file systems of their own")
    (tmp_path / "fs").mkdir()
    (tmp_path / "small.yaml").write_text(_SPEC)
    run = ["run", str(tmp_path / "small.yaml"), "--out", str(tmp_path / "fs" / "run")]
    command = [sys.executable, "-m", "groundwire.cli", *run, "--kernel", "virtual"]
    status, said = _own_file_system(size_kib, tmp_path / "fs", *command)
    assert status == 1, said
    found = re.fullmatch(
        f"error: the run directory {re.escape(str(tmp_path))}/fs/run is full "
        r"\(No space left on device\): ([\d,]+) bytes are free; the file written last is (.*)",
        said[-1],
    )
    assert found, said[-1]
    # The notes of ranks while they run are gone by then, a page or two.
    assert int(found[1].replace(",", "")) <= 8192
    assert found[2].startswith(last)
    assert not any("Traceback" in line or "Error" in line for line in said)


def test_what_else_a_kernel_has_no_space_for_is_told_as_it_is(tmp_path: Path) -> None:
    """Linux says so of network namespaces, too."""
    with pytest.raises(OSError, match="No space left"), full_directory_reported(tmp_path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_quota_and_a_directory_that_could_not_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = r"run is full \({}\): [0-9,]+ bytes are free$"
    quota, space = said.format("Disk quota exceeded"), said.format("No space left on device")
    with pytest.raises(RunDirectoryFull, match=quota), full_directory_reported(tmp_path / "run"):
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))
    monkeypatch.setattr(full_directory, "_NO_ROOM_BYTES", 2**62)
    with pytest.raises(RunDirectoryFull, match=space), full_directory_reported(tmp_path / "run"):
        raise RuntimeError(f"a rank: [Errno 28] {os.strerror(errno.ENOSPC)}")
