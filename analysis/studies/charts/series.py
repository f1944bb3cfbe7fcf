"""Values by place: a line for each series, or a bar for each with its pieces on each other."""

from __future__ import annotations

from collections.abc import Mapping

from analysis.report.charts.axis import LogScale, Scale, log_ticks, round_ticks, vertical_axis
from analysis.report.charts.colours import COLOURS
from analysis.report.charts.drawing import Drawing

_WIDTH, _HEIGHT, _LEFT, _TOP = 760.0, 260.0, 60.0, 28.0

Series = Mapping[str, Mapping[str, float]]
"""By series, then by place on the horizontal axis."""


def lines(series: Series, title: str, logarithmic: bool) -> Drawing:
    """A line for each series over the places, in the order in which they come."""
    places = list(dict.fromkeys(place for points in series.values() for place in points))
    values = [value for points in series.values() for value in points.values() if value > 0]
    bottom = _TOP + _HEIGHT
    drawing = Drawing(_WIDTH, bottom + 78 + 16 * len(series), title)
    high, low = max(values, default=1.0) * 1.1, min(values, default=1.0) * 0.9
    if logarithmic:
        scale: Scale | LogScale = LogScale(low, high, bottom, _TOP)
        ticks = log_ticks(low, high)
    else:
        scale, ticks = Scale(0, high, bottom, _TOP), round_ticks(0, high, 6)
    vertical_axis(drawing, scale, ticks, _LEFT, title, _WIDTH - 10)
    step = (_WIDTH - _LEFT - 20) / max(1, len(places))
    at = {place: _LEFT + (index + 0.5) * step for index, place in enumerate(places)}
    for place, x in at.items():
        drawing.text(x + 4, bottom + 14, place, "tick end", turn=-35)
    for number, (name, points) in enumerate(series.items()):
        css = f"p{number % COLOURS}"
        drawn = [(at[place], scale(max(value, 0))) for place, value in points.items()]
        if len(drawn) > 1:
            drawing.polyline(drawn, f"cdf {css}")
        for (x, y), (place, value) in zip(drawn, points.items(), strict=True):
            drawing.circle(x, y, 3.5, css, f"{name}, {place}: {value:,.1f}")
        y = bottom + 78 + 16 * number
        drawing.rect(_LEFT, y - 9, 10, 10, css)
        drawing.text(_LEFT + 16, y, name, "tick")
    return drawing


def bars(parts: Series, title: str) -> Drawing:
    """A bar for each of `parts`, whose pieces stand on each other."""
    names = list(dict.fromkeys(name for pieces in parts.values() for name in pieces))
    bottom = _TOP + _HEIGHT
    drawing = Drawing(_WIDTH, bottom + 36 + 16 * len(names), title)
    high = max((sum(pieces.values()) for pieces in parts.values()), default=1.0) * 1.08
    scale = Scale(0, high, bottom, _TOP)
    vertical_axis(drawing, scale, round_ticks(0, high, 6), _LEFT, title, _WIDTH - 10)
    step = (_WIDTH - _LEFT - 20) / max(1, len(parts))
    css = {name: "compute" if index == 0 else f"p{index - 1}" for index, name in enumerate(names)}
    for index, (name, pieces) in enumerate(parts.items()):
        x, floor = _LEFT + (index + 0.2) * step, 0.0
        for piece, value in pieces.items():
            top = scale(floor + value)
            drawing.rect(x, top, step * 0.6, scale(floor) - top, css[piece], f"{name}, {piece}")
            floor += value
        drawing.text(x + step * 0.3, scale(floor) - 5, f"{floor:,.0f}", "tick mid")
        drawing.text(x + step * 0.3, bottom + 14, name, "tick mid")
    for index, name in enumerate(names):
        y = bottom + 36 + 16 * index
        drawing.rect(_LEFT, y - 9, 10, 10, css[name])
        drawing.text(_LEFT + 16, y, name, "tick")
    return drawing
