"""Whole runs on the native kernel, from the command line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from analysis.runs.run import load_run
from emulator.linux.capabilities import kernel_capabilities
from emulator.network.registry import process_start, remove_dead, sessions
from tests.native.own_pace import on_an_idle_machine

ROOT = Path(__file__).resolve().parents[2]
_HANG_S = 600
_AHEAD_NS = 100_000_000


def _spec(directory: Path, **sections: Any) -> Path:
    spec = {
        "name": "native-run",
        "fabric": {"kind": "flat", "hosts": 2, "link": {"rate": "100Mbps", "delay": 0}},
        "workload": {
            "kind": "collectives",
            "ranks": 2,
            "iterations": 5,
            "operations": [{"kind": "all_reduce", "size": "4MB"}],
        },
        "compute": {"device": "none"},
        "capture": {"points": []},
        "scale": 1,
    }
    path = directory / "spec.yaml"
    path.write_text(yaml.safe_dump(spec | sections))
    return path


def _start(spec: Path, out: Path, *options: str, kernel: str = "native") -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "groundwire.cli", "run", spec, "--out", out]
    return subprocess.Popen(
        [*map(str, command), "--kernel", kernel, *options],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _pids_in(namespace: str) -> list[str]:
    command = ["ip", "netns", "pids", namespace]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def _wait_for_iteration(run: subprocess.Popen[str]) -> str:
    """Reads what the run tells until its first iteration begins; returns that."""
    assert run.stderr is not None
    told = ""
    for line in run.stderr:
        told += line
        if "iteration 1" in line:
            return told
    raise AssertionError(f"the run ended before its first iteration:\n{told}")


def test_a_processor_hog_gives_exit_code_3(tmp_path: Path) -> None:
    run = _start(_spec(tmp_path), tmp_path / "hog")
    told = _wait_for_iteration(run)
    hogs = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in range(os.cpu_count() or 1)
    ]
    try:
        out, err = run.communicate(timeout=_HANG_S)
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
    assert run.returncode == 3, told + err
    assert "INVALID" in out
    result = json.loads((tmp_path / "hog" / "result.json").read_text())
    assert result["valid"] is False
    assert any("a core was saturated" in reason for reason in result["invalid_reasons"])


def test_a_run_on_a_quiet_machine_is_valid(tmp_path: Path) -> None:
    spec = _spec(tmp_path)

    def attempt() -> tuple[int, str]:
        run = _start(spec, Path(tempfile.mkdtemp(dir=tmp_path)) / "out")
        out, err = run.communicate(timeout=_HANG_S)
        return run.returncode, out + err

    code, told = on_an_idle_machine(attempt, lambda ended: ended[0] == 0)
    assert code == 0, told


def test_a_twin_gives_the_exact_times_beside_the_native_ones(tmp_path: Path) -> None:
    run = _start(_spec(tmp_path), tmp_path / "out", "--twin")
    out, err = run.communicate(timeout=_HANG_S)
    assert run.returncode in (0, 3), err
    assert "Beside the exact twin" in out
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    judged = result["judged"]
    assert (judged["by"], judged["judged"]) == ("twin", 5)
    # 4 MB each way, in frames of 9038 B that carry 8948 B.
    exact_ns = 4_000_000 * 8 / 100e6 * 9038 / 8948 * 1e9
    for row in result["collectives"]:
        assert row["exact_ns"] == pytest.approx(exact_ns, rel=0.01)
    worst = max(abs(row["duration_ns"] / row["exact_ns"] - 1) for row in result["collectives"])
    assert max(judged["slower"], judged["faster"]) == pytest.approx(worst, abs=1e-5)
    assert (judged["wrong"] == 0) == (worst <= 0.05)
    assert not (worst > 0.05 and result["valid"])
    # Ranks agree on a time that lies ahead of the last one to come, and post only then.
    for rank in load_run(tmp_path / "out").ranks:
        aligned, posted = (
            [c.start_ns for c in rank.collectives if (c.phase == "align") == align]
            for align in (True, False)
        )
        assert len(posted) == 5
        for began_ns, start_ns in zip(aligned, posted, strict=False):
            assert start_ns - began_ns >= _AHEAD_NS


def test_the_virtual_kernel_has_no_twin(tmp_path: Path) -> None:
    run = _start(_spec(tmp_path), tmp_path / "out", "--twin", kernel="virtual")
    _, err = run.communicate(timeout=_HANG_S)
    assert run.returncode == 1
    assert "the virtual one is exact" in err


def test_faults_show_in_the_result(tmp_path: Path) -> None:
    slow = {"kind": "rate", "link": "h0-s0", "iteration": 1, "value": "20Mbps"}
    run = _start(_spec(tmp_path, faults=[slow]), tmp_path / "out")
    _, err = run.communicate(timeout=_HANG_S)
    assert run.returncode in (0, 3), err
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    first, *later = (c["duration_ns"] for c in result["collectives"])
    # Each rank sends the 4 MB once: no machine does that faster than 20 Mb/s allow, and one that
    # needs as long at 100 Mb/s is five times too slow.
    slowest_ns = 4_000_000 * 8 / 20e6 * 1e9
    assert first < slowest_ns
    assert min(later) > 0.95 * slowest_ns


@pytest.mark.skipif(
    "netem" in kernel_capabilities().qdiscs, reason="this kernel has netem: nothing to refuse"
)
def test_without_netem_delays_are_refused_by_name(tmp_path: Path) -> None:
    delayed = {"kind": "flat", "hosts": 2, "link": {"rate": "100Mbps", "delay": "1ms"}}
    run = _start(_spec(tmp_path, fabric=delayed), tmp_path / "out")
    _, err = run.communicate(timeout=_HANG_S)
    assert run.returncode != 0
    assert "netem" in err
    assert "--kernel virtual" in err


def test_kill_9_leaves_only_what_clean_removes(tmp_path: Path) -> None:
    long = {
        "kind": "collectives",
        "ranks": 2,
        "iterations": 1000,
        "operations": [{"kind": "all_reduce", "size": "4MB"}],
    }
    run = _start(_spec(tmp_path, workload=long), tmp_path / "out")
    _wait_for_iteration(run)
    ours = [s for s in sessions() if s.owner_pid == run.pid]
    names = [n for n in os.listdir("/run/netns") for s in ours if n.startswith(f"gw{s.id}-h")]
    rank_pids = [int(pid) for name in names for pid in _pids_in(name)]
    assert len(rank_pids) >= 2
    run.send_signal(signal.SIGKILL)
    run.communicate()
    remove_dead()
    deadline = time.monotonic() + 60
    while any(process_start(pid) for pid in rank_pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [pid for pid in rank_pids if process_start(pid)] == []
    assert [s for s in sessions() if not s.alive()] == []
