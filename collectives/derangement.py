"""A random permutation traffic pattern: every rank sends to one other and receives from one."""

from __future__ import annotations

import random


def derangement(count: int, seed: int) -> tuple[int, ...]:
    """A permutation of range(count) that moves everybody, the same for the same seed.

    Sattolo's algorithm (Information Processing Letters 22, 1986): uniform over cyclic permutations,
    which have no fixed point. Raises ValueError below two.
    """
    if count < 2:
        raise ValueError(f"no permutation of {count} moves everybody")
    chance = random.Random(seed)
    order = list(range(count))
    for last in range(count - 1, 0, -1):
        other = chance.randrange(last)
        order[last], order[other] = order[other], order[last]
    return tuple(order)
