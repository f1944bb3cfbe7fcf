from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from analysis.metrics.spans import Span, intersection, length_ns, union

SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=12)


def instants(spans: list[Span]) -> set[int]:
    return {t for start, end in spans for t in range(start, end)}


@given(SPANS)
def test_union_covers_the_same_instants_without_touching_spans(spans: list[Span]) -> None:
    merged = list(union(spans))
    assert instants(merged) == instants(spans)
    assert all(a[1] < b[0] for a, b in itertools.pairwise(merged))


@given(SPANS, SPANS)
def test_intersection_is_what_both_cover(first: list[Span], second: list[Span]) -> None:
    both = intersection(first, second)
    assert instants(list(both)) == instants(first) & instants(second)
    assert length_ns(both) == len(instants(first) & instants(second))
