"""A host: its arithmetic, its memory, and a second tier of memory.

A kernel takes the longer of its arithmetic and its memory traffic (Williams, Waterman and
Patterson, "Roofline", CACM 2009). COMET (arXiv 2211.16648) has a host's time by roofline and memory
traffic, and memory expanded by a second tier; its equations were not to be had. How traffic is
split between the tiers is ours: what does not fit into the first tier lies in the second, every
byte of the footprint is touched alike, and the tiers are read one after the other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Host:
    """Peaks as they are reached. Rates are per nanosecond: operations, and bytes (GB/s)."""

    flops_per_ns: float
    memory_bytes: float
    memory_gbytes_per_s: float
    expansion_bytes: float = 0.0
    expansion_gbytes_per_s: float = 0.0

    @property
    def capacity_bytes(self) -> float:
        """Both tiers."""
        return self.memory_bytes + self.expansion_bytes

    def bytes_per_ns(self, footprint_bytes: float) -> float:
        """The bandwidth of memory for a footprint: of the first tier as long as it fits, else the
        harmonic mean of both, weighted by what lies where. A footprint that does not fit at all has
        the bandwidth of the largest one that does."""
        held = min(footprint_bytes, self.capacity_bytes)
        beyond = held - self.memory_bytes
        if beyond <= 0:
            return self.memory_gbytes_per_s
        share = beyond / held
        return 1 / ((1 - share) / self.memory_gbytes_per_s + share / self.expansion_gbytes_per_s)


@dataclass(frozen=True, slots=True)
class Kernel:
    """Operations and bytes of memory traffic of something computed `times`."""

    flops: float
    memory_bytes: float
    times: float = 1.0

    def time_ns(self, host: Host, footprint_bytes: float) -> float:
        """The roofline's."""
        arithmetic = self.flops / host.flops_per_ns
        return self.times * max(arithmetic, self.memory_bytes / host.bytes_per_ns(footprint_bytes))


def time_of(kernels: Iterable[Kernel], host: Host, footprint_bytes: float) -> float:
    """The time of kernels one after the other, in nanoseconds."""
    return sum(kernel.time_ns(host, footprint_bytes) for kernel in kernels)


def product(rows: float, inner: float, columns: float, item_bytes: int, times: float = 1) -> Kernel:
    """A matrix product (rows x inner) (inner x columns): both read, the result written, once."""
    touched = rows * inner + inner * columns + rows * columns
    return Kernel(2.0 * rows * inner * columns, item_bytes * touched, times)
