"""Alignments of a run: a benchmark has one before each of its operations."""

from __future__ import annotations

import json
from pathlib import Path

from analysis.predict.models.flow import Flow
from analysis.runs.collectives import alignments_of
from analysis.runs.run import load_run
from tests.predict.measured_run import write_run

_FABRIC = "{kind: flat, hosts: 8, link: {rate: 10Gbps}}"
_OPERATIONS = "{kind: all_reduce, size: 1MB}, {kind: all_to_all, size: 1MB}"


def test_those_of_one_iteration_are_told_apart(tmp_path: Path) -> None:
    """They share an id; their tags differ."""
    write_run(tmp_path, _FABRIC, _OPERATIONS, Flow())
    for log in (tmp_path / "ranks").glob("*.jsonl"):
        lines = log.read_text().splitlines()
        lines += [json.dumps(_alignment(tag)) for tag in range(4)]
        log.write_text("\n".join(lines) + "\n")
    found = alignments_of(load_run(tmp_path))
    assert [each.start_ns for each in found] == [_alignment(tag)["start_ns"] for tag in range(4)]
    assert [each.id for each in found] == ["i0.align", "i0.align", "i1.align", "i1.align"]


def _alignment(tag: int) -> dict[str, object]:
    start_ns = 1_000_000 * (tag + 1)
    return {
        "event": "collective", "id": f"i{tag // 2}.align", "kind": "all_reduce", "phase": "align",
        "group": "default", "tag": tag, "size_bytes": 8, "iteration": tag // 2, "ranks": None,
        "start_ns": start_ns, "end_ns": start_ns + 9_000, "waited_ns": 9_000, "known": tag,
        "element_bytes": 8,
    }  # fmt: skip
