"""The fate of tests marked `guest`, by pytest in a process of its own on a file of such."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from emulator.virtual.building.build import find_kernel
from tests.session.command import ROOT

_SAMPLE = "tests/guest_sample.py::test_in_virtual_time"

_needs_a_guest = pytest.mark.skipif(
    find_kernel() is None, reason="needs the virtual kernel (make setup)"
)


def _pytest(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-pno:cacheprovider", *arguments],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


@_needs_a_guest
def test_one_that_is_left_out_by_default_runs_when_it_is_asked_for() -> None:
    done = _pytest("-m", "long", _SAMPLE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


@pytest.mark.parametrize(("ci", "ending"), [("", "1 skipped"), ("true", "1 failed")])
def test_without_a_guest_it_is_skipped_but_fails_in_ci(ci: str, ending: str) -> None:
    done = _pytest("-m", "", "-rfs", _SAMPLE, CI=ci, GROUNDWIRE_KERNEL_SOURCE="/no/such/archive")
    assert ending in done.stdout.splitlines()[-1]
    assert "no virtual kernel: GROUNDWIRE_KERNEL_SOURCE=/no/such/archive" in done.stdout


@_needs_a_guest
def test_time_is_bounded_in_a_guest_as_elsewhere() -> None:
    cases = ("test_without_end_in_virtual_time", "test_without_end")
    done = _pytest("--timeout=2", *(f"tests/guest_sample.py::{case}" for case in cases))
    assert "2 failed" in done.stdout.splitlines()[-1], done.stdout + done.stderr
    assert "the guest was ended: Timeout" in done.stdout
    assert ">           time.sleep(1)\nE           Failed: Timeout" in done.stdout
    assert "torn down" in done.stdout
