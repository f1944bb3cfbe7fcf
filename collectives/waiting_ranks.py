"""Ranks that wait for each other, in words and as a ring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_SHOWN = 8


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


def named_ranks(ranks: Sequence[int]) -> str:
    """Ranks in words: the first ones, and runs of neighbours as ranges."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    parts = [
        part
        for run in runs
        for part in ([f"{run[0]}-{run[-1]}"] if len(run) > 2 else map(str, run))
    ]
    shown = ", ".join(parts[:_SHOWN]) + (", ..." if len(parts) > _SHOWN else "")
    return f"rank {shown}" if len(ranks) == 1 else f"ranks {shown}"
