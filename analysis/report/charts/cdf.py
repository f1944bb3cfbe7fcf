"""Cumulative distributions as step lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from analysis.report.charts.axis import LogScale, Scale, horizontal_axis, log_ticks, vertical_axis
from analysis.report.charts.drawing import Drawing
from analysis.report.tables.figures import duration, number, time_unit

Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]

_POINTS = 400
_HEIGHT = 240.0


def cdf_chart(
    series: Mapping[str, tuple[str, Sequence[float] | Int64 | Float64]],
    title: str,
    width: float,
    is_time: bool,
    unit: str = "×",
) -> Drawing | None:
    """Name -> (CSS class, values; nanoseconds where they are times, else of `unit`): the share of
    the values up to each one, on a logarithmic axis. None when no series has a positive value."""
    positive = {name: np.sort(np.asarray(values)) for name, (_, values) in series.items()}
    positive = {name: values[values > 0] for name, values in positive.items()}
    positive = {name: values for name, values in positive.items() if len(values)}
    if not positive:
        return None
    low = min(float(values[0]) for values in positive.values())
    high = max(float(values[-1]) for values in positive.values())
    if not is_time:
        low = min(low, 1.0)
    if high <= low * 1.05:
        low, high = low / 1.5, high * 1.5
    factor, unit = time_unit(high) if is_time else (1.0, unit)
    left = 48.0
    drawing = Drawing(width, _HEIGHT + 40, f"Distribution: {title}")
    scale = LogScale(low / factor, high / factor, left, width - 16)
    up = Scale(0, 100, _HEIGHT, 18)
    ticks = log_ticks(low / factor, high / factor)
    horizontal_axis(drawing, scale, ticks, _HEIGHT, f"{title} ({unit}, logarithmic)", 18)
    vertical_axis(drawing, up, (0, 25, 50, 75, 100), left, "", width - 16)
    drawing.text(left - 6, 10, "%", "tick end")
    show = duration if is_time else number
    for name, values in positive.items():
        count = len(values)
        chosen = np.unique(np.linspace(0, count - 1, min(count, _POINTS)).round().astype(int))
        points: list[tuple[float, float]] = [(scale(float(values[0]) / factor), up(0))]
        for index in chosen.tolist():
            x = scale(float(values[index]) / factor)
            points.append((x, points[-1][1]))
            points.append((x, up(100 * (index + 1) / count)))
        median, tail, longest = np.percentile(values, [50, 99, 100]).tolist()
        drawing.polyline(
            points,
            f"cdf {series[name][0]}",
            f"{name}: {count} of them\nmedian {show(median)}, 99% {show(tail)}, "
            f"most {show(longest)}",
        )
    return drawing
