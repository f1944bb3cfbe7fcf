"""Programs of users on this kernel: what they find, and that nothing outlives them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_FABRIC = """
fabric: {kind: flat, hosts: 2, link: {rate: 100Mbps, delay: 0}}
capture: {points: []}
scale: 1
"""
# Each leaves a process behind that has left its session, as torchrun's workers do.
_PROGRAM = """
import os, socket, subprocess, sys, time
rank, mark = os.environ["RANK"], sys.argv[1]
left = subprocess.Popen(["sleep", mark], start_new_session=True)
found = [socket.gethostname(), *sorted({socket.gethostbyname(name) for name in ("h0", "h1")})]
open(f"found-{rank}", "w").write(" ".join(found))
print("ready", flush=True)
if sys.argv[2] == rank:
    sys.exit(5)
time.sleep(3600 if sys.argv[2] == "stay" else 0)
"""


def _start(directory: Path, mark: str, what: str) -> subprocess.Popen[str]:
    (directory / "fabric.yaml").write_text(_FABRIC)
    (directory / "program.py").write_text(_PROGRAM)
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "groundwire.cli", "exec", "fabric.yaml"),
            *("--kernel", "native", "--out", "run", "--"),
            *(sys.executable, "program.py", mark, what),
        ],
        cwd=directory,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _sleepers(mark: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if words[:2] == [b"sleep", mark.encode()]:
            found.append(path.parent.name)
    return found


def test_each_process_has_a_host_and_leaves_nothing(tmp_path: Path) -> None:
    name = socket.gethostname()
    run = _start(tmp_path, "3601.25", "end")
    said = run.communicate(timeout=600)[1]
    assert run.returncode in (0, 3), said  # a busy machine makes the figures invalid, no more
    work = tmp_path / "run" / "work"
    assert [(work / f"found-{rank}").read_text() for rank in (0, 1)] == [
        f"h{rank} 10.0.0.2 10.0.0.3" for rank in (0, 1)
    ]
    assert not (work / "program.py").exists()
    assert socket.gethostname() == name and not _sleepers("3601.25")


@pytest.mark.parametrize("what", ["1", "stay"])
def test_failures_and_interrupts_end_everything(tmp_path: Path, what: str) -> None:
    mark = f"3602.{os.getpid()}"
    run = _start(tmp_path, mark, what)
    if what == "stay":
        assert run.stdout is not None
        assert run.stdout.readline() == "ready\n"
        found = tmp_path / "run" / "work" / "found-1"
        while not found.exists():
            time.sleep(0.05)
        run.send_signal(signal.SIGINT)
    said = run.communicate(timeout=600)[1]
    assert run.returncode == (130 if what == "stay" else 1), said
    assert ("rank 1 on h1 exited with status 5" in said) == (what == "1")
    assert not _sleepers(mark)
