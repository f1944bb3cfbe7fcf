"""What an iteration asks of a host and of the network, and how long it takes for given bandwidths.

Times are in nanoseconds, bandwidths in GB/s, which are bytes per nanosecond.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Traffic:
    """A collective that an iteration runs `times`. It takes as long as its slowest dimension.

    `latency_ns` is that of its messages, one after another. `window` is the index of the window of
    computation that it may hide behind, None where ranks wait for it.
    """

    name: str
    bytes_by_dimension: tuple[float, ...]
    times: float = 1.0
    latency_ns: float = 0.0
    window: int | None = None

    def each_ns(self, gbytes_per_s: Sequence[float]) -> float:
        """One of them: the largest of bytes over bandwidth (LIBRA), and the latency."""
        pairs = zip(self.bytes_by_dimension, gbytes_per_s, strict=True)
        return max((sent / rate for sent, rate in pairs if sent), default=0.0) + self.latency_ns


@dataclass(frozen=True, slots=True)
class Demand:
    """`compute_ns` of an iteration, its traffic, and windows of computation, which are parts of
    `compute_ns`: traffic that is hidden behind one is exposed as far as it is longer."""

    compute_ns: float
    traffic: tuple[Traffic, ...] = ()
    windows_ns: tuple[float, ...] = ()

    def exposed_ns(self, gbytes_per_s: Sequence[float]) -> float:
        """Communication that ranks wait for."""
        waited = 0.0
        hidden = [0.0] * len(self.windows_ns)
        for one in self.traffic:
            total_ns = one.times * one.each_ns(gbytes_per_s)
            if one.window is None:
                waited += total_ns
            else:
                hidden[one.window] += total_ns
        pairs = zip(hidden, self.windows_ns, strict=True)
        return waited + sum(max(0.0, total - window) for total, window in pairs)

    def time_ns(self, gbytes_per_s: Sequence[float]) -> float:
        """The whole iteration."""
        return self.compute_ns + self.exposed_ns(gbytes_per_s)

    def communication_ns(self, gbytes_per_s: Sequence[float]) -> float:
        """All collectives, hidden or not."""
        return sum(one.times * one.each_ns(gbytes_per_s) for one in self.traffic)

    @property
    def dimensions(self) -> int:
        """How many dimensions the traffic has; 0 without any."""
        return len(self.traffic[0].bytes_by_dimension) if self.traffic else 0
