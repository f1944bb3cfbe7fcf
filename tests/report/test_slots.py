"""Slots of aggregation nodes over time."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from analysis.metrics.in_network.slots import SlotUse

Spans = list[tuple[int, int]]


def use_of(spans: Spans) -> SlotUse:
    start_ns, end_ns = np.array(spans, dtype=np.int64).reshape(-1, 2).T
    return SlotUse("leaf0", 4, start_ns, end_ns)


def test_slots_are_counted_where_operations_overlap() -> None:
    use = use_of([(0, 10), (5, 20), (20, 30)])
    assert (use.most, use.held_ns) == (2, 35)
    edges = np.array([0.0, 5.0, 7.0, 10.0, 20.0, 30.0, 40.0])
    assert use.most_within(edges).tolist() == [1, 2, 2, 1, 1, 0]


def test_a_slot_given_back_and_taken_at_once_is_one() -> None:
    assert use_of([(0, 10), (10, 20)]).most == 1


def test_a_node_without_operations_holds_nothing() -> None:
    use = use_of([])
    assert (use.most, use.held_ns) == (0, 0)
    assert use.most_within(np.array([0.0, 1.0])).tolist() == [0]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20)), max_size=12))
def test_the_most_is_what_is_held_at_some_instant(drawn: list[tuple[int, int]]) -> None:
    spans = [(start, start + length) for start, length in drawn]
    use = use_of(spans)
    held = [sum(start <= at < end for start, end in spans) for at in range(71)]
    assert use.most == max(held)
    edges = np.arange(0.0, 71.0)
    assert use.most_within(edges).tolist() == held[:-1]
