"""What becomes of tests marked `guest`, by pytest in a process of its own on a file of such."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.session.command import ROOT


def _pytest(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-pno:cacheprovider", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_one_that_is_left_out_by_default_runs_when_it_is_asked_for() -> None:
    done = _pytest("-m", "long", "tests/guest_sample.py::test_in_virtual_time")
    if "1 skipped" in done.stdout:
        pytest.skip(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
