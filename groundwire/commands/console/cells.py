"""Figures as they stand in tables on the console."""

from __future__ import annotations


def microseconds(duration_ns: int | None) -> str:
    """Nanoseconds as microseconds with the digits that matter."""
    return "-" if duration_ns is None else f"{duration_ns / 1000:,.2f}"


def percent(error: float | None) -> str:
    return "-" if error is None else f"{error * 100:+.1f}%"


def share(error: float | None) -> str:
    """Without a sign."""
    return "-" if error is None else f"{error:.1%}"
