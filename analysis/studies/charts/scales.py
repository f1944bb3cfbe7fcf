"""Scales of the figures of studies: a response as an axis, and names that fit their place."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.report.charts.axis import Scale, round_ticks, vertical_axis
from analysis.report.charts.drawing import Drawing
from analysis.report.tables.figures import count, duration, time_unit
from analysis.report.tables.table import Unit
from analysis.studies.cases import RESPONSES

_CHARACTER = 6.1
"""Width of a letter of 11 px."""


def response_text(response: str, value: float | None) -> str:
    """A response's value with its unit."""
    return duration(value) if RESPONSES[response][1] is Unit.DURATION else count(value)


def response_axis(
    drawing: Drawing,
    response: str,
    values: Sequence[float],
    left: float,
    right: float,
    top: float,
    bottom: float,
) -> Scale:
    """A vertical axis from the least to the greatest of `values`, with its title; returns the scale
    from values to coordinates."""
    title, unit = RESPONSES[response]
    low, high = min(values), max(values)
    factor, name = time_unit(high) if unit is Unit.DURATION else (1.0, "")
    margin = (high - low) * 0.08 or abs(high) * 0.05 or 1.0
    low, high = max(0.0, low - margin), high + margin
    shown = Scale(low / factor, high / factor, bottom, top)
    heading = f"{title} ({name})" if name else title
    vertical_axis(drawing, shown, round_ticks(low / factor, high / factor, 5), left, heading, right)
    return Scale(low, high, bottom, top)


def cut(text: str, width: float) -> str:
    """The text, shortened to what fits."""
    most = max(4, int(width / _CHARACTER))
    return text if len(text) <= most else text[: most - 1] + "…"


def axis_room(response: str, values: Sequence[float]) -> float:
    """The room left of a vertical axis: its labels', at least its title's half."""
    return 52.0 if RESPONSES[response][1] is Unit.DURATION else 30 + 6.1 * len(f"{max(values):.0f}")
