"""A whole native run on a Linux with netem, RED and DCTCP: the virtual kernel in real time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.guest(real_time=True)

ROOT = Path(__file__).resolve().parents[2]

# A quarter of the hosts' rate, so the queues are the leaves'. A sender keeps its own queue clear
# (TCP small queues): where all links were as fast, a busy machine had no mark in a whole run.
_BOTTLENECK_BPS = 5_000_000

_SPEC = {
    "name": "native-dctcp",
    "fabric": {
        "kind": "leaf-spine",
        "leaves": 2,
        "spines": 2,
        "hosts_per_leaf": 1,
        "link": {"rate": "20Mbps", "delay": "1ms", "mtu": 1500},
        "links": {"leaf-spine": {"rate": f"{_BOTTLENECK_BPS}bps"}},
        "queue": {"kind": "dctcp", "k": "6KB", "buffer": "500KB"},
        "queues": {"hosts": {"kind": "dctcp", "k": "6KB", "buffer": "500KB"}},
    },
    "transport": {"congestion_control": "dctcp", "rcvbuf": "1MB", "sndbuf": "1MB"},
    "workload": {
        "kind": "collectives",
        "ranks": 2,
        "iterations": 2,
        "operations": [{"kind": "all_reduce", "size": "600KB"}],
    },
    "compute": {"device": "none"},
    "capture": {"points": []},
    "faults": [{"kind": "link-down", "link": "leaf0-spine0", "iteration": 1}],
    "scale": 1,
}


def test_dctcp_with_delays_and_a_fault(tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(yaml.safe_dump(_SPEC))
    out = tmp_path / "out"
    result = _run(spec, out)
    environment = json.loads((out / "environment.json").read_text())
    assert result["kernel"] == "native"
    assert len(result["collectives"]) == 2
    assert result["summary"]["ecn_marks"] > 0
    assert [fault["what"] for fault in environment["faults"]] == ["link-down leaf0-spine0"]
    assert environment["verdict"]["samples"]["timer_lateness_ns"] is not None
    # The bytes of a ring all-reduce between two ranks are physics: 600 kB each way.
    ideal_ns = 600_000 * 8 / _BOTTLENECK_BPS * 1e9
    assert all(c["duration_ns"] > 0.95 * ideal_ns for c in result["collectives"])


@pytest.mark.long
def test_a_ring_over_roce(tmp_path: Path) -> None:
    """By the same code as in virtual time; whether its times can be used is not asked."""
    link = {"rate": "10Mbps", "delay": "1ms", "mtu": 4200}
    spec = tmp_path / "roce.yaml"
    spec.write_text(
        yaml.safe_dump(
            {
                "name": "native-roce",
                "fabric": {"kind": "flat", "hosts": 2, "link": link},
                "transport": {"kind": "roce", "path_mtu": 4096, "qp_timeout": "4s"},
                "workload": {
                    "kind": "collectives",
                    "ranks": 2,
                    "operations": [{"kind": "all_reduce", "size": "200KB"}],
                },
                "collectives": {"backend": "programs", "all_reduce": {"algorithm": "ring"}},
                "predict": [],
                "scale": 1,
            }
        )
    )
    out = tmp_path / "roce"
    result = _run(spec, out)
    assert result["kernel"] == "native"
    assert result["summary"]["drops"] == result["summary"]["retries"] == 0
    logs = [path.read_text() for path in sorted((out / "ranks").glob("*.jsonl"))]
    assert len(logs) == 2
    assert all('"queue_pair"' in log for log in logs)


def _run(spec: Path, out: Path) -> dict[str, Any]:
    """The result of a native run, valid or not."""
    run = subprocess.run(
        [sys.executable, "-m", "groundwire.cli", "run", spec, "--kernel", "native", "--out", out],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert run.returncode in (0, 3), run.stderr
    result: dict[str, Any] = json.loads((out / "result.json").read_text())
    return result
