"""Entropy values of a queue pair, as the kernel and the packet engine choose them."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from testing.entropy_values import EntropyValues

_PROBE_NS = 1_000
_COUNTS = st.integers(2, 256)


@settings(deadline=None)
@given(_COUNTS, st.integers(1, 3))
def test_each_has_its_turn(values: int, rounds: int) -> None:
    """Each value has as many of equal packets."""
    of = EntropyValues(values, 1, _PROBE_NS)
    taken = Counter(of.take(0)[0] for _ in range(values * rounds))
    assert taken == dict.fromkeys(range(values), rounds)


@settings(deadline=None)
@given(st.data(), _COUNTS)
def test_one_that_was_marked_is_skipped_once(data: st.DataObject, values: int) -> None:
    """As MRC's state SKIP: in the round that follows all others have a packet, then all have."""
    of = EntropyValues(values, 1, _PROBE_NS)
    marked = data.draw(st.integers(0, values - 1))
    of.marked(marked)
    first = [of.take(0) for _ in range(values - 1)]
    assert sorted(value for value, _ in first) == [v for v in range(values) if v != marked]
    second = Counter(of.take(0)[0] for _ in range(values))
    assert second == dict.fromkeys(range(values), 1)


@settings(deadline=None)
@given(st.data(), _COUNTS)
def test_one_that_loses_is_left_until_a_probe_comes_back(data: st.DataObject, values: int) -> None:
    """It has no packet until then, and one probe an interval; `least` values are never left."""
    least = data.draw(st.integers(1, values))
    of = EntropyValues(values, least, _PROBE_NS)
    losing = data.draw(st.lists(st.integers(0, values - 1), unique=True, max_size=values))
    for value in losing:
        of.lost(value, 0)
    left = set(losing[: values - least])
    early = [of.take(_PROBE_NS - 1) for _ in range(2 * values)]
    assert {value for value, _ in early}.isdisjoint(left) and len({v for v, _ in early}) >= least
    assert {probe for _, probe in early} == {None}
    probed = Counter(of.take(_PROBE_NS)[1] for _ in range(2 * values * (len(left) + 1)))
    assert {value: count for value, count in probed.items() if value is not None} == dict.fromkeys(
        left, 1
    )
    for value in left:
        of.answered(value)
    again = Counter(of.take(_PROBE_NS)[0] for _ in range(values))
    assert again == dict.fromkeys(range(values), 1)
