"""Figures of a row that are not shown, as they cannot be those of what it moved.

A row's time runs from when its last rank posts to when its last rank is done. In a program of
somebody else's, ranks post when they get to it. The messages that the others exchanged before are
then part of the row's size and not of its time. So a bandwidth can come out that no link has, or a
time that is shorter than light takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from analysis.runs.ingress import CLOCK_NS, Ingress
from collectives.kinds import Shape, bus_factor


class Doubt(StrEnum):
    """A reason for a row without bandwidths; the value is its text."""

    LINKS = (
        "more than their links carry in that time. A row's time begins when its last rank posts, "
        "and the others had sent before"
    )
    LIGHT = (
        "a time that is shorter than light takes from a rank's host to its switch. A row's time "
        "begins when its last rank posts, and the messages for that one were over"
    )
    UNEVEN = "unequal parts, for which nccl-tests defines no bandwidth (rank_sizes_bytes)"


def doubt_of(
    shape: Shape, uneven: bool, duration_ns: int, into: Sequence[Ingress], least_delay_ns: int
) -> Doubt | None:
    """The fault in the bandwidths of a collective that took so long: `into` are the bytes that can
    come into each member's host, `least_delay_ns` is the least delay of their links. None: they are
    possible."""
    if uneven:
        return Doubt.UNEVEN
    if duration_ns + CLOCK_NS < least_delay_ns:
        return Doubt.LIGHT
    moved = int(shape.size_bytes * bus_factor(shape.kind, shape.ranks))
    needed = min(each.least_ns(moved) for each in into)
    return Doubt.LINKS if duration_ns + CLOCK_NS < needed else None
