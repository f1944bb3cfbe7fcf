"""A virtual run's start in real time. It is here as these tests run alone: beside another guest the
processors themselves are slower where two are one core's."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from tests.session.command import ROOT
from tests.slowdown import slowdown


def test_eight_ranks_come_to_their_first_collective_within_eight_seconds(tmp_path: Path) -> None:
    """Programs come from memory: how long a disk takes to read torch says nothing of a boot."""
    subprocess.run([sys.executable, "-c", "import torch"], check=True)
    started = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "groundwire.cli", "run", "topologies/two-hosts.yaml",
         "--kernel", "virtual", "--set", "fabric.hosts=8", "--set", "workload.ranks=8",
         "--out", tmp_path / "run"],
        cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        began = any("iteration 0 (1 of 1)" in line for line in process.stderr)
        took = time.monotonic() - started
        _, said = process.communicate(timeout=300)
    finally:
        process.kill()
    assert began and process.returncode == 0, said
    assert took < 8 * slowdown(), took
