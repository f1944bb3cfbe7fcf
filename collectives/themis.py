"""Themis: which dimension each chunk goes through first, so that all dimensions carry alike.

Rashidi, Won, Srinivasan, Sridharan and Krishna, "Themis: a network bandwidth-aware collective
scheduling policy for distributed training of DL models", ISCA 2022; loads and thresholds as in
ASTRA-sim (system/scheduling/OfflineGreedy.cc, branch ASTRA-sim-1.0).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from collectives.kinds import Kind

FALLBACK = 16
"""A gap between loads that this part of a chunk would fill is left alone: the chunk goes through
the dimensions in their fixed order."""

ORDERED = frozenset({Kind.ALL_REDUCE, Kind.REDUCE_SCATTER, Kind.ALL_GATHER})
"""Kinds whose chunks may take the dimensions in any order."""


@dataclass(slots=True)
class DimensionLoads:
    """The load scheduled on each dimension, in bytes over the dimension's rate relative to
    the first one's. `rates` are in any one unit."""

    sizes: tuple[int, ...]
    rates: tuple[int, ...]
    loads: list[Fraction] = field(init=False)

    def __post_init__(self) -> None:
        if len(self.sizes) != len(self.rates):
            raise ValueError(f"{len(self.sizes)} dimensions have {len(self.rates)} rates")
        self.loads = [Fraction(0)] * len(self.sizes)

    def next_chunk(self, kind: Kind, size_bytes: int | Fraction) -> tuple[int, ...]:
        """The dimensions in the order in which the next chunk goes through them, and its load
        added. An all-reduce scatters in this order and gathers back; its size is what a rank
        has before. Raises ValueError for kinds that are not ordered."""
        if kind not in ORDERED:
            raise ValueError(f"found {kind}, allowed {', '.join(sorted(ORDERED))}")
        gathers = kind is Kind.ALL_GATHER
        fixed = self.fixed_order(kind)
        order = sorted(fixed, key=lambda d: (-self.loads[d] if gathers else self.loads[d], d))
        if self._gap_bytes(order) < Fraction(size_bytes) / FALLBACK:
            order = list(fixed)
        self.add(kind, size_bytes, order)
        return tuple(order)

    def fixed_order(self, kind: Kind) -> tuple[int, ...]:
        """From the first dimension to the last; an all-gather from the last to the first."""
        used = [d for d, size in enumerate(self.sizes) if size > 1]
        return tuple(reversed(used) if kind is Kind.ALL_GATHER else used)

    def add(self, kind: Kind, size_bytes: int | Fraction, order: Sequence[int]) -> None:
        """Count a chunk that goes through the dimensions in this order. The size of an all-gather
        is that of a rank's data before it."""
        size = Fraction(size_bytes)
        for dimension in order:
            ranks = self.sizes[dimension]
            rate = Fraction(self.rates[dimension], self.rates[0])
            if kind is Kind.ALL_GATHER:
                self.loads[dimension] += size * (ranks - 1) / rate
                size *= ranks
            else:
                self.loads[dimension] += size * (ranks - 1) / ranks / rate
                size /= ranks

    def _gap_bytes(self, order: Sequence[int]) -> Fraction:
        """Bytes that would bring the first dimension of the order to the load of the last."""
        first = order[0]
        gap = abs(self.loads[order[-1]] - self.loads[first])
        ranks = self.sizes[first]
        rate = Fraction(self.rates[first], self.rates[0])
        return gap * rate / Fraction(ranks - 1, ranks)
