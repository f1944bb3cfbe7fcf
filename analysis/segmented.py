"""Arrays that hold many short ones, a segment after another, worked on all at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]


def starts_of(segment: Int64) -> Int64:
    """Where each segment begins, for the ascending numbers of the segments of all elements."""
    return np.flatnonzero(np.diff(segment, prepend=segment[:1] - 1)).astype(np.int64)


def lifts_of(spans: Int64) -> Int64:
    """What to add to the values of each segment so that they lie above those of all segments before
    it, where they lie from 0 up to, and without, `spans`. One sorted array then holds them all."""
    lifts: Int64 = np.cumsum(spans) - spans
    return lifts


def highest_before(values: Int64, segment: Int64, least: int) -> Int64:
    """For each value the highest of those before it in its segment, and at least `least`. Shape of
    `values`; `segment` has the ascending number of each one's segment."""
    if not values.size:
        return values
    starts = starts_of(segment)
    height = np.maximum(values, least) - least
    lifts = lifts_of(np.maximum.reduceat(height, starts) + 1)
    lift = np.repeat(lifts, np.diff(starts, append=len(values)))
    before = np.maximum.accumulate(height + lift)[:-1]
    highest: Int64 = np.maximum(np.concatenate([[0], before]) - lift, 0) + least
    return highest
