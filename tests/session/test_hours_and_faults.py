"""Hours in which nothing runs, faults that never come or never end, and packets without a route."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.session.command import groundwire

pytestmark = pytest.mark.copies

_TWO = "fabric: {kind: flat, hosts: 2, link: {rate: 10Gbps, delay: 1us, mtu: 1500}}\n"
_REDUCE = "{kind: collectives, ranks: 2, operations: [{kind: all_reduce, size: 64KB}]}"
_LOST = """
import os, socket, time
if os.environ["RANK"] == "0":
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        for _ in range(100):
            udp.sendto(b"x", ("10.9.9.9", 9))
            time.sleep(1e-5)
        time.sleep(1e-2)
"""


def test_an_idle_hour_and_a_fault_behind_the_end(tmp_path: Path) -> None:
    """A job that begins after two hours is no deadlock; a fault after a day is told of."""
    workload = f"{{name: a, workload: {_REDUCE}}}"
    late = f"{{name: b, start: 7200s, workload: {_REDUCE}}}"
    (tmp_path / "spec.yaml").write_text(
        _TWO.replace("hosts: 2", "hosts: 4")
        + f"jobs:\n  - {workload}\n  - {late}\n"
        + "faults: [{kind: link-down, link: h0-s0, at: 86400s, duration: 1ms}]\n"
    )
    out = tmp_path / "run"
    done = groundwire("run", tmp_path / "spec.yaml", "--kernel", "virtual", "--out", out)
    assert done.returncode == 0, done.stderr
    result = json.loads((out / "result.json").read_text())
    first, second = (job["start_ns"] for job in result["jobs"])
    assert second - first == 7200 * 10**9
    note = "a fault never happened, as the ranks were done before: link-down h0-s0 at 86400s"
    assert [text for text in result["notes"] if note in text]


def test_a_link_that_is_down_for_ever_is_named(tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text(
        f"{_TWO}workload: {_REDUCE}\n".replace("64KB", "4MB")
        + "faults: [{kind: link-down, link: h0-s0, at: 1ms}]\n"
    )
    done = groundwire("run", tmp_path / "spec.yaml", "--kernel", "virtual", "--out", tmp_path / "r")
    assert done.returncode == 1
    (said,) = (line for line in done.stderr.splitlines() if line.startswith("error: "))
    assert said == (
        "error: link h0-s0 is down from 1ms on, and nothing brings it back: rank 0 on h0 cannot "
        "reach rank 1 on h1, and each waits (no process ran for 3600 virtual seconds)"
    )


def test_packets_without_a_route_are_counted(tmp_path: Path) -> None:
    (tmp_path / "lost.py").write_text(_LOST)
    (tmp_path / "spec.yaml").write_text(_TWO)
    out = tmp_path / "run"
    done = groundwire("exec", tmp_path / "spec.yaml", "--kernel", "virtual", "--out", out,
                      "--", "python3", tmp_path / "lost.py")  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = json.loads((out / "result.json").read_text())
    assert result["summary"]["unrouted"] == 100
    assert any(n.startswith("100 packets were lost for lack of a route") for n in result["notes"])


@pytest.mark.parametrize("threads", [1, 4])
def test_lazy_connections_over_long_links(tmp_path: Path, threads: int) -> None:
    """Ports are looked up in rank 0's store, which leaves when all have looked."""
    (tmp_path / "spec.yaml").write_text(
        "fabric: {kind: flat, hosts: 4, link: {rate: 10Gbps, delay: 2ms, mtu: 4200}}\n"
        + f"workload: {_REDUCE}\n".replace("ranks: 2", "ranks: 4")
        + f"capture: {{points: []}}\nvirtual: {{connections: lazy, ranks_per_process: {threads}}}\n"
    )
    done = groundwire("run", tmp_path / "spec.yaml", "--kernel", "virtual", "--out", tmp_path / "r")
    assert done.returncode == 0, done.stderr
