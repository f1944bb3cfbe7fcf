"""DCTCP of queue pairs: the guest against the engine, which compiles its file, and refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from groundwire.pipeline import run
from topologies.spec.errors import SpecError
from topologies.spec.spec import parse_spec

_SPEC = """
name: dctcp
fabric: {{kind: leaf-spine, leaves: 2, spines: 2, hosts_per_leaf: 4,
  link: {{rate: 100Gbps, delay: 1us, mtu: 4200}}, queue: {queue}}}
transport: {{kind: roce, path_mtu: 4096, congestion_control: dctcp{more}}}
workload: {{kind: collectives, ranks: 8, operations: [
  {{kind: all_to_all, size: 8MB}}, {{kind: all_reduce, size: 4MB}}]}}
collectives: {{backend: programs, all_to_all: {{algorithm: direct}},
  all_reduce: {{algorithm: ring}}}}
capture: {{points: []}}
predict: [packet]
"""
_STEP = "{kind: dctcp, k: 100KB, buffer: 4MB}"


@pytest.mark.parametrize(
    ("queue", "more", "drops"),
    [
        pytest.param(_STEP, "", False, id="step"),
        pytest.param(
            "{kind: red, kmin: 50KB, kmax: 200KB, pmax: 0.2, weight: 1, buffer: 300KB}",
            ", dctcp: {gain: 0.25}, window: 256KB",
            True,
            id="red-and-losses",
        ),
    ],
)
def test_guest_and_engine_are_the_same(tmp_path: Path, queue: str, more: str, drops: bool) -> None:
    run(parse_spec(_SPEC.format(queue=queue, more=more)), kernel="virtual", out=tmp_path / "run",
        pages=False)  # fmt: skip
    found = json.loads((tmp_path / "run" / "result.json").read_text())
    assert found["valid"], found["invalid_reasons"]
    assert found["summary"]["ecn_marks"] > 100
    assert (found["summary"]["drops"] > 0) == drops
    for row in found["collectives"]:
        # A ring's ranks take turns by threads, whose order at one instant moves it by nanoseconds.
        allowed_ns = 0 if row["kind"] == "all_to_all" else 20
        predicted_ns = row["predicted"]["packet"]["duration_ns"]
        assert abs(predicted_ns - row["duration_ns"]) <= allowed_ns


@pytest.mark.parametrize(
    ("queue", "more", "said"),
    [
        ("{kind: droptail}", "", "expected queues that mark"),
        (_STEP, ", ecn: false", "expected true with dctcp"),
        (_STEP, ", ack_every: 4", "expected 1 with dctcp"),
        (_STEP, ", loss_recovery: selective-repeat", "bitmaps do not say"),
        (_STEP, ", dcqcn: {}", "is for congestion_control: dcqcn"),
    ],
)
def test_refusals(queue: str, more: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        parse_spec(_SPEC.format(queue=queue, more=more))
