"""The bytes that a rank sends in each dimension of a network for a collective, as LIBRA counts it.

Source: LIBRA (Won, Rashidi, Srinivasan and Krishna, ISPASS 2024, arXiv 2109.11762), in the authors'
code (astra-sim/libra): the data of a reduce-scatter shrinks by each dimension that it has passed,
an all-gather goes back, an all-reduce is both, an all-to-all passes each dimension whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log2, prod

from collectives.kinds import Kind
from topologies.spec.design.network import DimensionKind


def bytes_by_dimension(kind: Kind, size_bytes: float, groups: Sequence[int]) -> tuple[float, ...]:
    """Bytes that each rank sends in each dimension. `groups` are the ranks of the collective's
    group in each (1: not used), the innermost first; sizes are the spec's, the whole array for an
    all-gather. Raises ValueError for kinds with a root."""
    if kind not in (Kind.ALL_REDUCE, Kind.REDUCE_SCATTER, Kind.ALL_GATHER, Kind.ALL_TO_ALL):
        raise ValueError(f"no rule for the messages of {kind}")
    shrinks = kind is not Kind.ALL_TO_ALL
    # A dimension gets as many bytes in an all-gather, from the outermost to the innermost with
    # growing data, as in a reduce-scatter the other way round.
    passes = 2 if kind is Kind.ALL_REDUCE else 1
    found, left = [], float(size_bytes)
    for ranks in groups:
        found.append(passes * left * (ranks - 1) / ranks)
        if shrinks:
            left /= ranks
    return tuple(found)


def steps_of(kind: Kind, dimension: DimensionKind, ranks: int) -> int:
    """Messages one after the other along a dimension: a ring's neighbours, all at once where all
    are connected, halving and doubling on a switch (docs/design.md)."""
    if ranks < 2:
        return 0
    passes = 2 if kind is Kind.ALL_REDUCE else 1
    if dimension == "ring":
        return passes * (ranks - 1)
    if dimension == "fully-connected" or kind is Kind.ALL_TO_ALL:
        return passes
    return passes * ceil(log2(ranks))


def split_degrees(
    degrees: Sequence[int], sizes: Sequence[int]
) -> tuple[tuple[int, ...], ...] | None:
    """The part of each dimension that each degree takes, the innermost degree first: 16 ranks of
    tensor parallelism on 4-8-4 take (4, 4, 1), the next degree begins with (1, 2, 4). None when the
    degrees do not divide the dimensions so. LIBRA's communicators are such splits."""
    if prod(degrees) != prod(sizes):
        return None
    free = list(sizes)
    found = []
    for degree in degrees:
        taken = []
        for position, room in enumerate(free):
            if degree % room == 0:
                part = room
            elif room % degree == 0:
                part = degree
            else:
                return None
            taken.append(part)
            degree //= part
            free[position] = room // part
        if degree != 1:
            return None
        found.append(tuple(taken))
    return tuple(found)
