"""Ranks as points of a grid: dimension 0 is the fastest, as in ASTRA-sim's logical topologies."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod


def coordinates(rank: int, dimensions: Sequence[int]) -> tuple[int, ...]:
    """The coordinate of a rank in every dimension."""
    found = []
    for size in dimensions:
        rank, coordinate = divmod(rank, size)
        found.append(coordinate)
    return tuple(found)


def rank_at(point: Sequence[int], dimensions: Sequence[int]) -> int:
    """The rank at these coordinates."""
    rank, stride = 0, 1
    for coordinate, size in zip(point, dimensions, strict=True):
        rank += coordinate * stride
        stride *= size
    return rank


def lines(dimensions: Sequence[int], along: int) -> list[tuple[int, ...]]:
    """The groups of ranks that differ in one coordinate only, each by that coordinate."""
    stride = prod(dimensions[:along])
    starts = [r for r in range(prod(dimensions)) if coordinates(r, dimensions)[along] == 0]
    return [tuple(r + i * stride for i in range(dimensions[along])) for r in starts]


@lru_cache(maxsize=1024)
def part_of_grid(ranks: tuple[int, ...], dimensions: tuple[int, ...]) -> tuple[int, ...] | None:
    """The sizes of the part of a grid that some ranks are: how many coordinates they have in each
    dimension, 1 where they differ in none. None where they are not all combinations of these
    coordinates in the grid's order, or not in the grid."""
    if not ranks or min(ranks) < 0 or max(ranks) >= prod(dimensions):
        return None
    points = [coordinates(rank, dimensions) for rank in ranks]
    sides = [sorted({point[d] for point in points}) for d in range(len(dimensions))]
    sizes = tuple(len(side) for side in sides)
    if prod(sizes) != len(ranks):
        return None
    for place, point in enumerate(points):
        here = coordinates(place, sizes)
        if any(side[i] != at for side, i, at in zip(sides, here, point, strict=True)):
            return None
    return sizes
