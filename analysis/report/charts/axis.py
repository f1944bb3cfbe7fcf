"""Axes: scales with round ticks, drawn with grid lines and their unit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from analysis.report.charts.drawing import Drawing


@dataclass(frozen=True)
class Scale:
    """A linear scale from values to coordinates."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        width = self.high - self.low or 1.0
        return self.start + (value - self.low) / width * (self.end - self.start)


@dataclass(frozen=True)
class LogScale:
    """A logarithmic scale from positive values to coordinates."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        width = math.log(self.high / self.low) or 1.0
        return self.start + math.log(max(value, self.low) / self.low) / width * (
            self.end - self.start
        )


def round_ticks(low: float, high: float, about: int = 6) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten in [low, high], roughly `about` of them."""
    if high <= low:
        return [low]
    raw = (high - low) / max(about, 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [i * step for i in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten in [low, high], with 2 and 5 between them where there are few; round numbers
    in a range of less than a power of ten."""
    if high < 8 * low:
        return [tick for tick in round_ticks(low, high) if tick > 0]
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (1, 2, 5) if len(powers) <= 4 else (1,)
    return [f * 10.0**p for p in powers for f in factors if low <= f * 10.0**p <= high * 1.0001]


def tick_label(value: float) -> str:
    """At most four significant digits, no trailing zeros."""
    return f"{value:.4g}" if abs(value) < 10_000 else f"{value:,.0f}".replace(",", "\u202f")


def horizontal_axis(
    drawing: Drawing,
    scale: Scale | LogScale,
    ticks: Sequence[float],
    y: float,
    title: str,
    grid_top: float | None = None,
) -> None:
    """Ticks below y, grid lines up to `grid_top`, the title (with its unit) below the ticks."""
    for tick in ticks:
        x = scale(tick)
        if grid_top is not None:
            drawing.line(x, grid_top, x, y, "grid")
        drawing.text(x, y + 14, tick_label(tick), "tick mid")
    drawing.text((scale.start + scale.end) / 2, y + 30, title, "axis mid")


def vertical_axis(
    drawing: Drawing,
    scale: Scale | LogScale,
    ticks: Sequence[float],
    x: float,
    title: str,
    grid_end: float | None = None,
) -> None:
    """Ticks left of x, grid lines to `grid_end`, the title above the axis."""
    for tick in ticks:
        y = scale(tick)
        if grid_end is not None:
            drawing.line(x, y, grid_end, y, "grid")
        drawing.text(x - 6, y + 3.5, tick_label(tick), "tick end")
    drawing.text(x - 6, min(scale.start, scale.end) - 9, title, "axis")
