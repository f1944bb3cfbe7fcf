"""Designs as texts, for tests."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.design.search import Found, search
from topologies.spec.design.document import parse_design


def listed(sizes: Sequence[int], more: str = "  constraints: {total_bandwidth: 500GB/s}") -> str:
    """An all-reduce of 64 MB on dimensions d0, d1 and so on."""
    ranks = 1
    for size in sizes:
        ranks *= size
    dimensions = "".join(
        f"    - {{name: d{i}, kind: switch, size: {size}}}\n" for i, size in enumerate(sizes)
    )
    return (
        f"workload: {{kind: collectives, ranks: {ranks}, "
        "operations: [{kind: all_reduce, size: 64MB}]}\n"
        f"design:\n  dimensions:\n{dimensions}{more}\n"
    )


def found_in(text: str) -> Found:
    """The result of the search for a design's text."""
    return search(parse_design(text))
