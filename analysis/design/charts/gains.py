"""Predicted and measured gains over the baseline, side by side, for each emulated point."""

from __future__ import annotations

from analysis.design.confirmed import Confirmation
from analysis.report.charts.axis import Scale, horizontal_axis, round_ticks
from analysis.report.charts.drawing import Drawing

_ROW = 34.0


def gains_chart(confirmation: Confirmation, width: float) -> Drawing | None:
    """A pair of bars for each point: the upper one predicted, the lower one measured."""
    rows = [row for row in confirmation.rows if row.measured_gain is not None]
    if not rows:
        return None
    left = min(24 + 6.4 * max(len(row.point.name) for row in rows), width * 0.4)
    height = 6 + _ROW * len(rows)
    drawing = Drawing(width, height + 58, "Predicted and measured gains")
    most = max(max(row.predicted_gain, row.measured_gain or 0.0) for row in rows)
    scale = Scale(0.0, most * 1.1, left, width - 60)
    ticks = round_ticks(0.0, most * 1.1)
    horizontal_axis(drawing, scale, ticks, height, f"gain over {confirmation.baseline}", 2)
    drawing.line(scale(1.0), 2, scale(1.0), height, "threshold")
    for position, row in enumerate(rows):
        y = 6 + position * _ROW
        drawing.text(left - 8, y + 18, row.point.name, "label end")
        pairs = (
            (row.predicted_gain, "p0", "predicted"),
            (row.measured_gain or 0.0, "p1", "measured"),
        )
        for line, (gain, css, how) in enumerate(pairs):
            top = y + 3 + 14 * line
            drawing.rect(
                left, top, scale(gain) - left, 12, css, f"{row.point.name}\n{how} {gain:.3f}x"
            )
            drawing.text(scale(gain) + 6, top + 10, f"{gain:.2f}", "tick")
    for index, (css, how) in enumerate((("p0", "predicted"), ("p1", "measured"))):
        drawing.rect(left + 110 * index, height + 42, 9, 9, css)
        drawing.text(left + 110 * index + 14, height + 50, how, "tick")
    return drawing
