"""The search against one that leaves nothing out."""

from __future__ import annotations

import pytest

from analysis.design.points import points_of
from analysis.design.search import solve_point
from tests.design.design_files import found_in
from topologies.spec.design.document import parse_design

DESIGN = """
workload: {kind: transformer, layers: 8, hidden: 4096, heads: 32, batch_size: 64}
design:
  dimensions:
    - {name: inner, kind: switch, size: 4}
    - {name: outer, kind: switch, size: 4}
  constraints: {linear: [{sum: [inner, outer], equals: 50GB/s}]}
  strategy: {tensor: [1, 4], pipeline: [1, 4], microbatches: [1, 4]}
"""


def test_a_data_degree_that_is_given_is_the_only_one() -> None:
    def degrees(more: str) -> set[int]:
        text = DESIGN.replace("microbatches: [1, 4]", f"microbatches: [1, 4]{more}")
        points = points_of(parse_design(text).sections)
        return {point.strategy.data for point in points if point.strategy is not None}

    assert degrees("") == {1, 4, 16}
    assert degrees(", data: 4") == {4}


def test_what_is_pruned_is_neither_best_nor_on_the_front() -> None:
    found = found_in(DESIGN)
    every = [solve_point(found.file, point) for point in points_of(found.file.sections)]
    assert len(every) == len(found.solved) + found.pruned
    assert found.pruned > 0
    best = min(every, key=lambda one: one.objective)
    assert found.best.objective == pytest.approx(best.objective, rel=1e-6)
    near = 1 + 1e-6
    for one in every:
        assert any(
            p.cost <= one.cost * near and p.time_ns <= one.time_ns * near for p in found.front
        )
