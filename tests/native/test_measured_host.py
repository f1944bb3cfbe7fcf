"""This machine's costs, measured; needs no root where users may have namespaces."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.session.command import groundwire


def _children(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(one) for one in listed.read_text().split()] if listed.exists() else []


@pytest.mark.long
def test_the_costs_of_this_machine_are_in_the_range_of_machines() -> None:
    done = groundwire("doctor", "--measure-host", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    found = {each["name"]: each["value"] for each in told["figures"]}
    # No machine copies slower than DDR2 did, or faster than the caches of a core.
    assert 0.2e9 < found["copy_rate"] < 50e9
    assert 30 < found["an empty call"] < found["syscall"] < 50_000
    assert 0 <= found["wakeup"] < 200_000
    # Gloo's own copies: the same work, with what else its loop does.
    assert 0.3 < found["Gloo, as copy rate"] / found["copy_rate"] < 3
    assert ("per_packet" in found) != ("per_packet" in told["missing"])


def test_ctrl_c_ends_the_measuring_child() -> None:
    command = [sys.executable, "-m", "groundwire", "doctor", "--measure-host"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        assert b"loopback" in process.stderr.readline()
        patience_s = time.monotonic() + 30
        while not (children := _children(process.pid)) and time.monotonic() < patience_s:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
    assert children
    patience_s = time.monotonic() + 10
    while any(Path(f"/proc/{child}").exists() for child in children):
        assert time.monotonic() < patience_s
        time.sleep(0.01)
