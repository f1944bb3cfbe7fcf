"""Sets of time spans: unions and overlaps of half-open intervals in nanoseconds."""

from __future__ import annotations

from collections.abc import Iterable

Span = tuple[int, int]


def union(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Disjoint spans in ascending order that cover the same times; empty ones vanish."""
    merged: list[Span] = []
    for start, end in sorted(spans):
        if end <= start:
            continue
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return tuple(merged)


def intersection(first: Iterable[Span], second: Iterable[Span]) -> tuple[Span, ...]:
    """The times that lie in both sets."""
    a, b = union(first), union(second)
    found: list[Span] = []
    i = j = 0
    while i < len(a) and j < len(b):
        start, end = max(a[i][0], b[j][0]), min(a[i][1], b[j][1])
        if start < end:
            found.append((start, end))
        if a[i][1] <= b[j][1]:
            i += 1
        else:
            j += 1
    return tuple(found)


def length_ns(spans: Iterable[Span]) -> int:
    """Total time covered, overlaps once."""
    return sum(end - start for start, end in union(spans))
