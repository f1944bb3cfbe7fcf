"""Ranks that are threads of one process communicate as ranks that are processes do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.session.command import groundwire, result_of

_RANKS = 8
# No two paths: ports, which are drawn, choose between them.
_STAR = """
name: star
fabric: {kind: flat, hosts: 8, link: {rate: 100Gbps, delay: 1us, mtu: 9000}}
compute: {device: none}
capture: {points: []}
predict: []
workload:
"""
_COLLECTIVES = """
  kind: collectives
  ranks: 8
  iterations: 2
  operations: [{kind: all_reduce, size: 1MB}, {kind: all_to_all, size: 1MB}]
"""
_DLRM = """
  kind: dlrm
  ranks: 8
  iterations: 1
  batch_size: 32
  bottom_mlp: [256, 64]
  top_mlp: [256, 1]
  bucket: 200KB
"""


def _run(directory: Path, workload: str, per_process: int) -> Path:
    spec = directory / f"{per_process}.yaml"
    spec.write_text(_STAR + workload)
    out = directory / str(per_process)
    done = groundwire(
        "run", spec, "--kernel", "virtual", "--out", out,
        "--set", f"virtual.ranks_per_process={per_process}",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {
        workload: _run(tmp_path_factory.mktemp("unpacked"), workload, 1)
        for workload in (_COLLECTIVES, _DLRM)
    }


def _sent(run: Path) -> list[dict[str, Any]]:
    """The counters of ports, less their backlog over time: the rank that connects first at one
    instant decides on some of it, and it is rounded."""
    lines = (run / "links.jsonl").read_text().splitlines()
    return [{**json.loads(line), "backlog_byte_us": None} for line in lines]


def _work(run: Path, rank: int) -> list[dict[str, Any]]:
    """The rank's events from the first start on that all ranks have agreed on."""
    lines = (run / "ranks" / f"{rank:03d}.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    aligned = next(n for n, event in enumerate(events) if event.get("id") == "i0.align")
    return events[aligned + 1 :]


@pytest.mark.parametrize(
    ("workload", "per_process"),
    [(_COLLECTIVES, _RANKS), (_COLLECTIVES, 5), (_DLRM, _RANKS)],
    ids=["in one process", "in two processes", "dlrm"],
)
def test_packed_ranks_communicate_to_the_nanosecond_as_processes_do(
    unpacked: dict[str, Path], tmp_path: Path, workload: str, per_process: int
) -> None:
    packed = _run(tmp_path, workload, per_process)
    for rank in range(_RANKS):
        assert _work(packed, rank) == _work(unpacked[workload], rank)
        assert _connections(packed, rank) == _RANKS - 1 - rank
    assert _sent(packed) == _sent(unpacked[workload])
    rows, known = result_of(packed), result_of(unpacked[workload])
    assert rows["collectives"] == known["collectives"]
    assert rows["iterations"] == known["iterations"]
    assert rows["valid"] is True


def _connections(run: Path, rank: int) -> int:
    return (run / "ranks" / f"{rank:03d}.jsonl").read_text().count('"event":"connection"')


@pytest.mark.parametrize("per_process", [1, _RANKS])
def test_a_ring_is_the_same_when_pairs_connect_at_need(
    unpacked: dict[str, Path], tmp_path: Path, per_process: int
) -> None:
    ring = _COLLECTIVES.replace(", {kind: all_to_all, size: 1MB}", "")
    lazy = _run(tmp_path, ring + "\nvirtual: {connections: lazy}\n", per_process)
    (eager, *_), (row, *_) = (
        result_of(run)["collectives"] for run in (unpacked[_COLLECTIVES], lazy)
    )
    assert row == eager
    assert "connected when they first communicated" in result_of(lazy)["notes"][0]
    ends = [_connections(lazy, rank) for rank in range(_RANKS)]
    assert ends == [2, 1, 1, 1, 1, 1, 1, 0]


def test_programs_of_users_are_processes_of_their_own(tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(_STAR + "  {kind: command, argv: [hostname], ranks: 8}\n")
    done = groundwire("run", spec, "--set", "virtual.ranks_per_process=8", "--out", tmp_path / "r")
    assert done.returncode == 2
    assert "virtual.ranks_per_process" in done.stderr
    assert "expected 1 or auto with workload.kind: command" in done.stderr
