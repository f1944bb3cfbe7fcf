"""Switches that take part in programs: what their aggregation nodes are given to do."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Hold:
    """The locks that a stream holds while `participant`, the root of its tree, has it under way:
    `locks` in the order of taking, each the number of a switch in the fabric and -1, or a port of
    it and the number of the node at the other end. Jobs that share a switch name it alike."""

    participant: int
    locks: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Aggregator:
    """A switch that is a participant of a program.

    `number` goes on from the ranks of the run: it names the switch where ranks are numbered. A
    copy at it is the pass through its unit, which takes `latency_ns` and the bytes at `rate_bps`,
    one operation after the other. In a `pipelined` unit the latency is that of the first copy of a
    sequence, which the others follow.
    """

    name: str
    number: int
    rate_bps: int
    latency_ns: int
    pipelined: bool = False

    def latency_of_ns(self, follows: bool) -> int:
        """The latency of a copy; it `follows` where it is not the first one of its sequence."""
        return 0 if self.pipelined and follows else self.latency_ns

    def occupied_ns(self, size_bytes: int) -> int:
        """How long the unit is taken by an operation of so many bytes."""
        return -(-8 * 10**9 * size_bytes // self.rate_bps)
