"""Figures as people read them: three significant digits, a unit always there."""

from __future__ import annotations

import math

_THIN = "\u202f"
_TIMES = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))
_SIZES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "KB"), (1.0, "B"))
_RATES = ((1e12, "Tb/s"), (1e9, "Gb/s"), (1e6, "Mb/s"), (1e3, "kb/s"), (1.0, "b/s"))

Units = tuple[tuple[float, str], ...]


def duration(time_ns: float | None) -> str:
    return _with_unit(time_ns, _TIMES)


def size(size_bytes: float | None) -> str:
    return _with_unit(size_bytes, _SIZES)


def rate(rate_bps: float | None) -> str:
    return _with_unit(rate_bps, _RATES)


def share(fraction: float | None) -> str:
    """A share of something as a percentage."""
    if fraction is None:
        return "–"
    percent = fraction * 100
    return f"{percent:.0f}%" if percent >= 99.95 or percent == 0 else f"{percent:#.3g}%"


def signed_percent(fraction: float | None) -> str:
    """A relative error with its sign (a true minus, so that columns line up)."""
    if fraction is None:
        return "–"
    return f"{fraction * 100:+.1f}%".replace("-", "−")


def count(number: float | None) -> str:
    return "–" if number is None else f"{number:,.0f}".replace(",", _THIN)


def number(value: float | None) -> str:
    """Three significant digits, without an exponent for what a table may hold."""
    if value is None:
        return "–"
    if value == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{min(digits, 6)}f}".replace(",", _THIN)


def time_unit(largest_ns: float) -> tuple[float, str]:
    """The factor and name of the unit in which an axis up to `largest_ns` reads best."""
    return _unit(largest_ns, _TIMES)


def size_unit(largest_bytes: float) -> tuple[float, str]:
    """The factor and name of the unit in which an axis up to `largest_bytes` reads best."""
    return _unit(largest_bytes, _SIZES)


def _unit(value: float, units: Units) -> tuple[float, str]:
    return next((unit for unit in units if abs(value) >= unit[0]), units[-1])


def _with_unit(value: float | None, units: Units) -> str:
    if value is None:
        return "–"
    # 999.96 us reads as 1.00 ms.
    factor, name = _unit(value * 1.0005, units)
    return f"{number(value / factor)}{_THIN}{name}"
