"""Interactions: how the effect of one factor depends on another, a panel for each pair."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.report.charts.colours import COLOURS
from analysis.report.charts.drawing import Drawing
from analysis.report.tables.figures import share
from analysis.studies.charts.scales import axis_room, cut, response_axis, response_text
from analysis.studies.effects import Effects, Interaction

_COLUMNS = 3
_HEIGHT = 150.0
_TOP = 44.0
_BELOW = 34.0
_KEY = 15.0


def interactions_chart(
    effects: Effects, interactions: Sequence[Interaction], width: float
) -> Drawing:
    """Lines that are not parallel are an interaction: a line for each level of the second factor
    over the levels of the first."""
    means = [m for one in interactions for row in one.means for m in row if m is not None]
    left = axis_room(effects.response, means)
    keys = max(len(one.column_levels) for one in interactions)
    tall = _TOP + _HEIGHT + _BELOW + _KEY * keys
    lines = -(-len(interactions) // _COLUMNS)
    across = min(_COLUMNS, len(interactions))
    drawing = Drawing(width, tall * lines, f"Interactions on {effects.response}")
    panel = (width - left) / across
    for line in range(lines):
        top = line * tall + _TOP
        in_line = interactions[line * _COLUMNS : (line + 1) * _COLUMNS]
        end = left + len(in_line) * panel
        scale = response_axis(drawing, effects.response, means, left, end, top, top + _HEIGHT)
        for position, one in enumerate(in_line):
            start = left + position * panel + 12
            room = panel - 24
            title = f"{one.row} × {one.column}"
            offset = 40 if position == 0 else 0  # beside the title of the axis
            drawing.text(start + offset, top - 26, cut(title, room - offset), "label")
            drawing.text(start + room, top - 9, share(one.share), "tick end")
            step = room / len(one.row_levels)
            xs = [start + (index + 0.5) * step for index in range(len(one.row_levels))]
            for x, level in zip(xs, one.row_levels, strict=True):
                drawing.text(x, top + _HEIGHT + 14, cut(level, step), "tick mid")
            for number, level in enumerate(one.column_levels):
                css = f"p{number % COLOURS}"
                cells = [row[number] for row in one.means]
                points = [
                    (x, scale(mean)) for x, mean in zip(xs, cells, strict=True) if mean is not None
                ]
                if len(points) > 1:
                    drawing.polyline(points, f"cdf {css}")
                for (x, y), mean, row in zip(
                    points, [m for m in cells if m is not None], one.row_levels, strict=False
                ):
                    text = response_text(effects.response, mean)
                    drawing.circle(x, y, 4, css, f"{row}, {level}\nmean {text}")
                y = top + _HEIGHT + 30 + number * _KEY
                drawing.rect(start, y - 8, 9, 9, css)
                drawing.text(start + 14, y, cut(level, room - 14), "tick")
    return drawing
