"""Work on many short arrays at once gives what work on each would."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from analysis.decode.segmented import highest_before, percentiles

_SEGMENTS = st.lists(st.lists(st.integers(-(10**12), 10**12), max_size=6), min_size=1, max_size=6)


def _joined(segments: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    numbers = np.repeat(np.arange(len(segments)), [len(each) for each in segments])
    return np.array([v for each in segments for v in each], dtype=np.int64), numbers


@given(_SEGMENTS, st.integers(-10, 10))
def test_the_highest_value_before_each_within_its_segment(
    segments: list[list[int]], least: int
) -> None:
    expected = [max([least, *each[:i]]) for each in segments for i in range(len(each))]
    assert highest_before(*_joined(segments), least).tolist() == expected


@given(_SEGMENTS, st.sampled_from([0, 1, 50, 99, 100]))
def test_percentiles_are_numpys(segments: list[list[int]], percent: int) -> None:
    values, numbers = _joined(segments)
    order = np.argsort(values % 7, kind="stable")  # the segments' values may lie anywhere
    for scale in (1, 0.001):
        found = percentiles(values[order] * scale, numbers[order], len(segments), percent)
        for each, value in zip(segments, found.tolist(), strict=True):
            if each:
                assert value == np.percentile(np.array(each) * scale, percent)
            else:
                assert np.isnan(value)
