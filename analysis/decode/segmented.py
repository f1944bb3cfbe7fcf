"""Arrays that hold many short ones, a segment after another, worked on all at once."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]


def starts_of(segment: Int64) -> Int64:
    """The index at which each segment begins, for the ascending numbers of the segments of all
    elements."""
    return np.flatnonzero(np.diff(segment, prepend=segment[:1] - 1)).astype(np.int64)


def offsets_of(spans: Int64) -> Int64:
    """The offsets of segments, added to their values so that they lie above those of all segments
    before it, where they lie from 0 up to, and without, `spans`. One sorted array then holds them
    all."""
    lifts: Int64 = np.cumsum(spans) - spans
    return lifts


class SortedSegments:
    """Values from 0 up, ascending within each of `count` segments, to look others up in them.
    `segment` has the ascending number of each one's segment; some may have none."""

    def __init__(self, values: Int64, segment: Int64, count: int) -> None:
        self.bounds: Int64 = np.searchsorted(segment, np.arange(count + 1))
        """The index at which each segment begins, and the index at which the last one ends."""
        self._tops = np.full(count, -1, dtype=np.int64)
        some = np.flatnonzero(np.diff(self.bounds))
        self._tops[some] = values[self.bounds[some + 1] - 1]
        # From -1, which lies below all values, to what lies above the highest.
        self._lifts = offsets_of(self._tops + 3) + 1
        self._lifted = values + self._lifts[segment]

    def find(self, segment: Int64, value: Int64, side: Literal["left", "right"]) -> Int64:
        """`numpy.searchsorted` of each value within a segment; indices count through all values."""
        inside = np.clip(value, -1, self._tops[segment] + 1) + self._lifts[segment]
        return np.searchsorted(self._lifted, inside, side)


def highest_before(values: Int64, segment: Int64, least: int) -> Int64:
    """For each value the highest of those before it in its segment, and at least `least`. Shape of
    `values`; `segment` has the ascending number of each one's segment."""
    if not values.size:
        return values
    starts = starts_of(segment)
    height = np.maximum(values, least) - least
    lifts = offsets_of(np.maximum.reduceat(height, starts) + 1)
    lift = np.repeat(lifts, np.diff(starts, append=len(values)))
    before = np.maximum.accumulate(height + lift)[:-1]
    highest: Int64 = np.maximum(np.concatenate([[0], before]) - lift, 0) + least
    return highest


def percentiles(values: npt.NDArray[Any], segment: Int64, count: int, percent: float) -> Float64:
    """`numpy.percentile` (linear) of each of `count` segments, by number; NaN for an empty one.
    `segment` has each value's, in any order."""
    ordered = values[np.lexsort((values, segment))]
    sizes = np.bincount(segment, minlength=count)
    starts, last = offsets_of(sizes), sizes - 1
    found = np.full(count, np.nan)
    some = np.flatnonzero(sizes)
    at = last[some] * (percent / 100)
    below = np.floor(at).astype(np.int64)
    low = ordered[starts[some] + below]
    high = ordered[starts[some] + np.minimum(below + 1, last[some])]
    share, step = at - below, high - low
    # From the nearer end, as numpy does, so that no rounding leaves the two values' range.
    found[some] = np.where(share < 0.5, low + step * share, high - step * (1 - share))
    return found
