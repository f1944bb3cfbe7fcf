"""An error names the rank that cannot send, with the error of its queue pair, and soon."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from testing.roce_streams import Flow, run_streams
from tests.exec.programs import execute
from tests.session.command import ROOT
from tests.slowdown import slowdown

_PROCESS = Path(__file__).with_name("failing_process.py")
_PAIR = """
fabric: {kind: flat, hosts: 2, link: {rate: 100Gbps, delay: 1us, mtu: 4200}}
transport: {kind: roce, path_mtu: 4096}
capture: {points: []}
predict: []
"""
_LOSSY = f"""
name: lossy
{_PAIR.replace("path_mtu: 4096", "path_mtu: 4096, retry_count: 2")}
faults: [{{kind: loss, link: h0-s0, at: 0ns, value: 2%}}]
"""
_RING = """
name: faults
fabric: {{kind: leaf-spine, leaves: 2, spines: 2, hosts_per_leaf: 2,
  link: {{rate: 100Gbps, delay: 1us, mtu: 4200}}}}
transport: {{kind: roce, path_mtu: 4096}}
workload: {{kind: collectives, ranks: 4, operations: [{{kind: all_reduce, size: 16MB}}]}}
collectives: {{backend: programs, all_reduce: {{algorithm: ring}}}}
faults: [{{kind: {kind}, link: h3-leaf1, at: 100us}}]
capture: {{points: []}}
predict: []
"""
_KILLED = """
name: killed
fabric: {{kind: flat, hosts: 6, link: {{rate: 100Gbps, delay: 1us, mtu: 4200}}}}
transport: {{kind: roce, path_mtu: 4096}}
jobs:
  - name: train
    placement: {{0: h0, 1: h1, 2: h2, 3: h3}}
    workload: {{kind: collectives, ranks: 4,
      operations: [{{kind: all_reduce, size: 32MB, program: {{algorithm: ring}}}}]}}
  - name: killer
    placement: {{0: h4, 1: h5}}
    start: 500us
    workload: {{kind: command, ranks: 2, observe: false, argv: [{python}, -S, -c, {killer}]}}
capture: {{points: []}}
predict: []
"""
_KILLER = """
import os, signal
for pid in filter(str.isdigit, os.listdir("/proc") if os.environ["RANK"] == "0" else ()):
    if open(f"/proc/{pid}/comm").read() == "rank 2\\n":
        open("began", "w").close()
        os.kill(int(pid), signal.SIGKILL)
"""
_PROMISE_S = 5.0


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("key", "remote access error"),
        ("gone", "transport retry counter exceeded"),
    ],
)
def test_a_program_is_named_with_the_error_of_its_queue_pair(
    tmp_path: Path, fault: str, said: str
) -> None:
    (tmp_path / "fabric.yaml").write_text(_PAIR)
    argv = (sys.executable, "-S", str(_PROCESS), fault)
    done = execute(tmp_path, "fabric.yaml", "--kernel", "virtual", "--out", "run", "--", *argv)
    assert done.returncode == 1
    assert "rank 0 on h0 exited with status 1" in done.stderr
    assert f"VerbsError: queue pair to rank 1: {said}" in done.stderr


def test_retries_of_a_message_that_gets_on_are_not_counted_together(tmp_path: Path) -> None:
    """The link loses 2% of 2,048 packets: 40 NAKs, each of which says what came before, and lost
    repetitions and NAKs, which take a time-out of 1 ms each. Twice in a row is allowed."""
    size = 2**23
    streams = run_streams(_LOSSY, [Flow(0, 1, size, size)], tmp_path)
    summary = streams.result["summary"]
    assert summary["drops"] > 20
    assert summary["retries"] > summary["sequence_naks"] // 2 > 8
    assert streams.flows[0].duration_ns < 8_000_000


@pytest.mark.long
@pytest.mark.parametrize("kind", ["link-down", "loss, value: 100%"])
def test_a_rank_that_nobody_reaches_is_named_within_seconds(tmp_path: Path, kind: str) -> None:
    """Eight time-outs of 1 ms of virtual time after the fault. Seconds are of real time, from when
    the collective began, and more where the machine is busy."""
    spec = tmp_path / "spec.yaml"
    spec.write_text(_RING.format(kind=kind))
    argv = [
        sys.executable,
        "-m",
        "groundwire.cli",
        "run",
        str(spec),
        "--out",
        str(tmp_path / "run"),
    ]
    began_s = None
    said = ""
    with subprocess.Popen(argv, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            said += line
            if "iteration 0 (1 of 1)" in line:
                began_s = time.monotonic()
    assert began_s is not None, said
    assert time.monotonic() - began_s < _PROMISE_S * slowdown()
    assert process.returncode == 1
    assert re.search(r"error: .*rank [0-3] exited", said)
    assert re.search(r"queue pair to rank [0-3]: transport retry counter exceeded", said)


@pytest.mark.long
def test_a_rank_that_is_killed_is_named_within_seconds(tmp_path: Path) -> None:
    """A second job kills it; the file that it makes before has a time of the machine's clock."""
    spec = tmp_path / "spec.yaml"
    spec.write_text(_KILLED.format(python=sys.executable, killer=json.dumps(_KILLER)))
    out = tmp_path / "run"
    argv = [sys.executable, "-u", "-m", "groundwire.cli", "run", str(spec), "--out", str(out)]
    told_s = None
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if told_s is None and "job train: rank 2 was killed by SIGKILL" in line:
                told_s = time.time()
    assert told_s is not None
    began = out / "jobs" / "killer" / "work" / "began"
    assert told_s - began.stat().st_mtime < _PROMISE_S * slowdown()
