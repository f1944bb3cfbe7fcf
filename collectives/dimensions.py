"""Ranks as points of a grid: dimension 0 is the fastest, as in ASTRA-sim's logical topologies."""

from __future__ import annotations

from collections.abc import Sequence
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
