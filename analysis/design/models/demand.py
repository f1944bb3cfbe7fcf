"""The demands of an iteration on a host and on the network, and how long it takes for given
bandwidths.

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
class Window:
    """Computation that traffic may hide behind: what a host computes from when it is posted until
    it is waited for, which is at `end`. Windows of the same end are parts of each other."""

    length_ns: float
    end: str


@dataclass(frozen=True, slots=True)
class Demand:
    """`compute_ns` of an iteration, its traffic, and windows of computation, which are parts of
    `compute_ns`. Traffic that hides behind windows of the same end shares the network. The traffic
    of a window and of all windows that are parts of it is exposed as far as it is longer than the
    window. The window where that is most decides."""

    compute_ns: float
    traffic: tuple[Traffic, ...] = ()
    windows: tuple[Window, ...] = ()

    @property
    def ends(self) -> tuple[str, ...]:
        """The points at which hidden traffic is waited for, each once."""
        return tuple(dict.fromkeys(window.end for window in self.windows))

    def behind(self, window: Window) -> tuple[int, ...]:
        """The traffic that hides behind a window or a part of it, by index."""
        return tuple(
            index
            for index, one in enumerate(self.traffic)
            if one.window is not None
            and self.windows[one.window].end == window.end
            and self.windows[one.window].length_ns <= window.length_ns
        )

    def exposed_ns(self, gbytes_per_s: Sequence[float]) -> float:
        """Communication that ranks wait for."""
        total_ns = [one.times * one.each_ns(gbytes_per_s) for one in self.traffic]
        pairs = zip(self.traffic, total_ns, strict=True)
        waited = sum(took for one, took in pairs if one.window is None)
        exposed = dict.fromkeys(self.ends, 0.0)
        for window in self.windows:
            hidden = sum(total_ns[index] for index in self.behind(window))
            exposed[window.end] = max(exposed[window.end], hidden - window.length_ns)
        return waited + sum(exposed.values())

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
