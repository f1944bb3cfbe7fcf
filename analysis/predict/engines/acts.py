"""The acts of a rank's main thread, one act after the other."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Compute:
    """The main thread is busy, or sleeps."""

    duration_ns: float


@dataclass(frozen=True, slots=True)
class Due:
    """The main thread was here at this time in a run: what it is late by now, it stays late by."""

    at_ns: float


@dataclass(frozen=True, slots=True)
class Until:
    """The main thread does nothing before this time, and what it is late by (`Due`)."""

    at_ns: float


@dataclass(frozen=True, slots=True)
class PostCall:
    """The main thread posts a collective, by its place among the calls."""

    call: int


@dataclass(frozen=True, slots=True)
class WaitForCall:
    """The main thread waits until a collective is complete at its rank."""

    call: int


@dataclass(frozen=True, slots=True)
class Pass:
    """The main thread comes by here; when is kept under this number."""

    number: int


@dataclass(frozen=True, slots=True)
class Propose:
    """The main thread proposes a time that is at least `margin_ns` ahead, on a grid."""

    meeting: int
    margin_ns: int
    grid_ns: int


@dataclass(frozen=True, slots=True)
class Meet:
    """The main thread sleeps until the latest time that was proposed."""

    meeting: int


Act = Compute | Due | Until | PostCall | WaitForCall | Pass | Propose | Meet
