"""Ranks that share their payload take the same nanoseconds as ranks that check theirs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.session.command import groundwire, result_of

_STAR = """
name: star
fabric: {kind: flat, hosts: 8, link: {rate: 100Gbps, delay: 1us, mtu: 9000}}
compute: {device: none}
capture: {points: []}
predict: []
"""
_GLOO = """
workload:
  kind: collectives
  ranks: 8
  operations:
    - {kind: all_reduce, size: 3MB}
    - {kind: all_to_all, size: 1MB}
    - {kind: all_gather, size: 1MB}
    - {kind: reduce_scatter, size: 1MB}
    - {kind: reduce, size: 100KB}
    - {kind: broadcast, size: 100KB}
    - {kind: gather, size: 100KB}
    - {kind: scatter, size: 100KB}
    - {kind: incast, size: 100KB}
    - {kind: barrier}
"""
_PROGRAMS = """
collectives:
  backend: programs
  dimensions: [2, 4]
  chunks: 3
  order: lifo
  in_flight: 2
  all_reduce: {algorithm: double-binary-tree}
  all_to_all: {algorithm: two-step}
workload:
  kind: dlrm
  ranks: 8
  iterations: 1
  batch_size: 32
  bottom_mlp: [256, 64]
  top_mlp: [256, 1]
  bucket: 200KB
"""
_TREE = """
aggregation: {switches: [s0]}
workload:
  kind: collectives
  ranks: 8
  operations: [{kind: all_reduce, size: 1MB}, {kind: broadcast, size: 100KB}]
"""


def _run(directory: Path, workload: str, payload: str, per_process: int) -> Path:
    spec = directory / f"{payload}.yaml"
    spec.write_text(_STAR + workload)
    out = directory / payload
    done = groundwire(
        "run", spec, "--kernel", "virtual", "--out", out,
        "--set", f"payload={payload}", "--set", f"virtual.ranks_per_process={per_process}",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return out


def _events(run: Path, rank: int) -> list[dict[str, Any]]:
    """A rank's events from the first start on that all ranks have agreed on, less its checks."""
    lines = (run / "ranks" / f"{rank:03d}.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    aligned = next(n for n, event in enumerate(events) if event.get("id") == "i0.align")
    return [event for event in events[aligned + 1 :] if event["event"] != "check"]


@pytest.mark.parametrize(
    ("workload", "per_process"),
    [
        pytest.param(_GLOO, 1, id="gloo"),
        pytest.param(_GLOO, 8, id="packed", marks=pytest.mark.long),
        pytest.param(_PROGRAMS, 8, id="programs"),
        pytest.param(_TREE, 8, id="tree", marks=pytest.mark.long),
    ],
)
def test_shared_payload_takes_the_same_nanoseconds(
    tmp_path: Path, workload: str, per_process: int
) -> None:
    checked, timed = (
        _run(tmp_path, workload, payload, per_process) for payload in ("checked", "timing")
    )
    for rank in range(8):
        assert _events(timed, rank) == _events(checked, rank)
    known, rows = result_of(checked), result_of(timed)
    assert rows["collectives"] == known["collectives"]
    assert rows["iterations"] == known["iterations"]
    assert (known["payload_checked"], rows["payload_checked"]) == (True, False)
    assert known["notes"] == [] and "were not checked" in rows["notes"][0]
    assert '"check"' not in (timed / "ranks" / "000.jsonl").read_text()
    assert "were not checked" in (timed / "report.html").read_text()


def test_contents_of_a_workload_of_its_own_are_not_shared(tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(
        _STAR + "payload: timing\nworkload: {kind: command, argv: [hostname], ranks: 8}\n"
    )
    done = groundwire("run", spec, "--out", tmp_path / "r")
    assert done.returncode == 2
    assert "payload" in done.stderr
    assert "expected checked with workload.kind: command" in done.stderr
