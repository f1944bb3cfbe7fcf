"""Ranks that wait for each other in a ring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def waiting_ring(waits_for: Mapping[int, Sequence[int]]) -> tuple[int, ...]:
    """Ranks that wait for each other in a ring, from its lowest on: the shortest one through the
    lowest rank that is in any. Empty where there is none."""
    for first in sorted(waits_for):
        before: dict[int, int] = {}
        left = [first]
        while left:
            rank = left.pop(0)
            for other in waits_for.get(rank, ()):
                if other == first:
                    ring = [rank]
                    while ring[-1] != first:
                        ring.append(before[ring[-1]])
                    return tuple(reversed(ring))
                if other not in before:
                    before[other] = rank
                    left.append(other)
    return ()
