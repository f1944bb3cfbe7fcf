"""Switches that take part in programs: what their aggregation nodes are given to do."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Aggregator:
    """A switch that is a participant of a program.

    `number` goes on from the ranks of the run: it names the switch where ranks are numbered. A
    copy at it is the pass through its unit, which takes `latency_ns` and the bytes at `rate_bps`,
    one operation after the other.
    """

    name: str
    number: int
    rate_bps: int
    latency_ns: int

    def occupied_ns(self, size_bytes: int) -> int:
        """How long the unit is taken by an operation of so many bytes."""
        return -(-8 * 10**9 * size_bytes // self.rate_bps)
