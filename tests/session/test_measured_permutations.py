"""Permutations that were run: predicted by the shift that is in the log."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.compare.comparison import compare
from analysis.runs.run import load_run
from tests.session.command import groundwire

pytestmark = pytest.mark.copies

SIZE_BYTES, MTU, GBPS, LEAF = 2_000_000, 9000, 100, 4
# One spine: whatever crosses it leaves its leaf by one port. Windows and buffers do not limit.
_SPEC = f"""
name: shifts
fabric:
  kind: leaf-spine
  leaves: 2
  spines: 1
  hosts_per_leaf: {LEAF}
  link: {{rate: {GBPS}Gbps, delay: 500ns, mtu: {MTU}}}
  queue: {{kind: droptail, buffer: 64MB}}
transport: {{congestion_control: cubic, initial_window: 1000}}
workload:
  kind: collectives
  ranks: {2 * LEAF}
  iterations: 1
  operations:
    - {{kind: permutation, size: {SIZE_BYTES}B, shift: 1}}
    - {{kind: permutation, size: {SIZE_BYTES}B, shift: {LEAF}}}
compute: {{device: none}}
capture: {{points: []}}
"""


def test_a_permutation_is_predicted_by_the_shift_that_was_run(tmp_path: Path) -> None:
    """A shift by 1 crosses the spine once each way, one by a leaf's size with every message."""
    (tmp_path / "spec.yaml").write_text(_SPEC)
    done = groundwire("run", tmp_path / "spec.yaml", "--kernel", "virtual", "--out", tmp_path / "o")
    assert done.returncode == 0, done.stderr
    rows = compare(load_run(tmp_path / "o"), ["flow"]).rows
    assert [row.collective.shift for row in rows] == [1, LEAF]
    payload_ns = SIZE_BYTES * 8 / GBPS
    for row, sharing in zip(rows, (1, LEAF), strict=True):
        # Payload alone at line rate is the least; headers are 1%, a ramp and the path a few us.
        assert sharing * payload_ns < row.measured_ns < 1.05 * sharing * payload_ns + 10_000
        assert row.error("flow") == pytest.approx(0.0, abs=0.05)
