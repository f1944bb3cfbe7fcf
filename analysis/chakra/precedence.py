"""Dependencies from what a rank knew to be over when it started something."""

from __future__ import annotations

from collections.abc import Sequence


def direct(over: Sequence[int]) -> list[tuple[int, ...]]:
    """The direct dependencies of each node (transitive reduction).

    `over[i]` is a bit set: bit j is set when j was over before i was started. It must hold, with
    j, everything that was over before j. Returns positions, in ascending order.
    """
    found = []
    for known in over:
        implied = 0
        for position in positions(known):
            implied |= over[position]
        found.append(tuple(positions(known & ~implied)))
    return found


def positions(bits: int) -> list[int]:
    """The positions of the bits that are set, in ascending order."""
    found = []
    while bits:
        lowest = bits & -bits
        found.append(lowest.bit_length() - 1)
        bits ^= lowest
    return found
