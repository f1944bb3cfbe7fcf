"""Gaps of a stream filled together, with what a log says must be in them."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from analysis.decode.gloo.gap_partition import Hidden, OpenGap, partition

_SIZES = st.sampled_from([8, 4_112, 12_928, 32_832, 32_896, 65_664, 131_072])


@given(
    st.lists(
        st.tuples(st.integers(0, 6), st.lists(_SIZES, max_size=3)).filter(lambda gap: any(gap)),
        min_size=1,
        max_size=6,
    )
)
def test_every_hidden_message_has_a_place_in_a_gap(truth: list[tuple[int, list[int]]]) -> None:
    gaps: list[OpenGap] = []
    hidden: list[Hidden] = []
    for place, (small, sizes) in enumerate(truth):
        at = 100 + 10 * place
        gaps.append(OpenGap(48 * small + sum(48 + size for size in sizes), at, at))
        for size in sizes:
            key = 0, len(hidden)
            hidden.append(Hidden(key, size, at - 15, at + 15))
    found = partition(gaps, hidden, sum(small for small, _ in truth))
    assert found is not None
    placed = Counter(one.key for _, data in found for one in data)
    assert placed == Counter(one.key for one in hidden)
    for gap, (small, data) in zip(gaps, found, strict=True):
        assert 48 * small + sum(48 + one.size_bytes for one in data) == gap.size_bytes
        assert all(one.first_ns <= gap.end_ns and one.last_ns >= gap.begin_ns for one in data)


def test_notifications_are_not_taken_for_data_that_they_are_as_long_as() -> None:
    """65,664 bytes and a preamble are 1,369 notifications; here there are two messages."""
    gaps = [OpenGap(2 * (48 + 65_664), 5, 6), OpenGap(48 + 131_072 + 48, 7, 8)]
    hidden = [Hidden((0, n), size, 0, 0) for n, size in enumerate((65_664, 131_072, 65_664))]
    found = partition(gaps, hidden, 1)
    assert found is not None
    assert [(small, sorted(one.key[1] for one in data)) for small, data in found] == [
        (0, [0, 2]),
        (1, [1]),
    ]


def test_what_does_not_add_up_is_not_filled() -> None:
    assert partition([OpenGap(48 + 1000, 0, 1)], [Hidden((0, 1), 1000, 0, 0)], 1) is None
    assert (
        partition([OpenGap(96, 0, 1), OpenGap(952, 2, 3)], [Hidden((0, 1), 952, 0, 0)], 1) is None
    )


def test_a_stream_has_thousands_of_gaps() -> None:
    count = 1_500
    gaps = [OpenGap(48 + 1000, 10 * at, 10 * at) for at in range(count)]
    hidden = [Hidden((0, at), 1000, 10 * at - 1, 10 * at + 1) for at in range(count)]
    found = partition(gaps, hidden, 0)
    assert found is not None
    assert [data[0].key[1] for _, data in found] == list(range(count))


def test_messages_of_one_size_go_where_their_slots_were_in_use() -> None:
    gaps = [OpenGap(1048, 10, 12), OpenGap(1048, 30, 32)]
    late, early = Hidden((0, 1), 1000, 25, 40), Hidden((0, 2), 1000, 5, 28)
    found = partition(gaps, [late, early], 0)
    assert found == [(0, [early]), (0, [late])]
