"""LIBRA's tables of layers as designs: read, and timed as LIBRA's own formulas do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from analysis.design.search import search
from topologies.spec.design.document import load_design

# In the format of astra-sim/libra, inputs/workload: no first lines, 12 words a layer. Made up.
TABLE = """
Q -1 9000 NONE 0 8000 ALLREDUCE 80000000 7000 ALLREDUCE 45000000 10
K -1 9000 NONE 0 8000 NONE 0 7000 NONE 0 10
concat -1 9000 ALLREDUCE 80000000 8000 ALLGATHER 5000000 7000 NONE 0 10
last -1 500 ALLTOALL 3000000 500 REDUCESCATTER 6000000 500 NONE 0 10
"""
LAYERS = (
    (9000, None, 0, 8000, "AR", 80e6, 7000, "AR", 45e6),
    (9000, None, 0, 8000, None, 0, 7000, None, 0),
    (9000, "AR", 80e6, 8000, "AG", 5e6, 7000, None, 0),
    (500, "A2A", 3e6, 500, "RS", 6e6, 500, None, 0),
)
# 4,096 NPUs, Ring4-FC8-Ring4-Switch32; GPT-3's communicators of LIBRA: TP-16, DP-256.
TENSOR, DATA = (4, 4, -1, -1), (-1, 2, 4, 32)
DESIGN = """
workload: {kind: layers, ranks: 4096, passes: 1, parallelism: hybrid-data-model, innermost: 16,
  path: table.txt}
design:
  dimensions:
    - {name: d0, kind: ring, size: 4, tier: chiplet}
    - {name: d1, kind: fully-connected, size: 8, tier: package}
    - {name: d2, kind: ring, size: 4, tier: node}
    - {name: d3, kind: switch, size: 32, tier: pod}
"""


def messages(kind: str | None, size: float, communicator: Sequence[int]) -> list[float]:
    """LIBRA's bytes per dimension (its src/model/model.py, in our own words)."""
    sent = [0.0] * len(communicator)
    order = range(len(communicator))
    for d in reversed(order) if kind == "AG" else order:
        npus = communicator[d]
        if kind is None or npus < 0:
            continue
        if kind == "AG":
            sent[d] = size * (npus - 1)
            size *= npus
            continue
        sent[d] = size * (npus - 1) / npus * (2 if kind == "AR" else 1)
        if kind != "A2A":
            size /= npus
    return sent


def end_to_end_ns(gbytes_per_s: Sequence[float]) -> float:
    """LIBRA's no_overlap, with the 10 ns of each update, which it leaves out."""
    total = 40.0
    for row in LAYERS:
        for first, communicator in ((0, TENSOR), (3, TENSOR), (6, DATA)):
            compute, kind, size = row[first : first + 3]
            assert isinstance(compute, int) and isinstance(size, int | float)
            sent = messages(None if kind is None else str(kind), size, communicator)
            total += compute + max(b / rate for b, rate in zip(sent, gbytes_per_s, strict=True))
    return total


@pytest.mark.parametrize(
    ("constraints", "rows"),
    [
        ("total_bandwidth: 500GB/s", [((1, 1, 1, 1), 500, 500)]),
        # LIBRA's multiple_constraints.
        (
            "total_bandwidth: 1000GB/s, order: descending, linear: "
            "[{sum: [d0], equals: 500GB/s}, {sum: [d2, d3], equals: 200GB/s}]",
            [
                ((1, 1, 1, 1), 1000, 1000),
                ((1, 0, 0, 0), 500, 500),
                ((0, 0, 1, 1), 200, 200),
                ((1, -1, 0, 0), 0, np.inf),
                ((0, 1, -1, 0), 0, np.inf),
                ((0, 0, 1, -1), 0, np.inf),
            ],
        ),
    ],
    ids=["total", "multiple"],
)
def test_a_table_s_optimum_is_that_of_libra_s_formulas(
    constraints: str, rows: list[tuple[tuple[int, ...], float, float]], tmp_path: Path
) -> None:
    (tmp_path / "table.txt").write_text(TABLE.lstrip())
    (tmp_path / "design.yaml").write_text(f"{DESIGN}  constraints: {{{constraints}}}\n")
    best = search(load_design(tmp_path / "design.yaml")).best
    for rates in ((100.0, 50.0, 20.0, 10.0), (1.0, 2.0, 3.0, 4.0), best.gbytes_per_s):
        demand = best.work.demand
        assert demand.time_ns(rates) == pytest.approx(end_to_end_ns(rates), rel=1e-9)
    for weights, low, high in rows:
        assert low - 1e-3 <= np.dot(weights, best.gbytes_per_s) <= high + 1e-3
    # Time is convex in the bandwidths: where no step within the constraints is shorter, none is.
    generator = np.random.default_rng(1)
    at, kept = np.array(best.gbytes_per_s), 0
    equal = np.array([weights for weights, low, high in rows if low == high], float)
    free = np.eye(4) - np.linalg.pinv(equal) @ equal
    for scale in np.geomspace(1e-3, 1.0, 400):
        there = at + free @ generator.normal(size=4) * scale * at.max()
        if (there <= 0).any():
            continue
        if all(low - 1e-6 <= np.dot(w, there) <= high + 1e-6 for w, low, high in rows):
            kept += 1
            assert end_to_end_ns(there.tolist()) >= best.time_ns * (1 - 1e-6)
    assert kept > 20
