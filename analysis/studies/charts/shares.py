"""The weight of each factor: a bar for each term's share of the sum of squares."""

from __future__ import annotations

from analysis.report.charts.axis import Scale, horizontal_axis
from analysis.report.charts.drawing import Drawing
from analysis.report.tables.figures import number, share
from analysis.studies.effects import Effects

_ROW = 24.0
_MOST = 14
_LEAST_SHARE = 0.0005


def shares_chart(effects: Effects, width: float) -> Drawing:
    """Main effects, interactions and what is left, the largest first. Terms that explain nearly
    nothing are left out, but for main effects."""
    variance = effects.variance
    shown = [
        term for term in variance.by_share if len(term.names) == 1 or term.share >= _LEAST_SHARE
    ][:_MOST]
    rows = [(term.label, term.share, term.sum_of_squares, len(term.names)) for term in shown]
    rows.append(("everything else", variance.rest_share, variance.rest, 0))
    left = min(24.0 + 6.4 * max(len(row[0]) for row in rows), width * 0.45)
    height = 6 + _ROW * len(rows)
    drawing = Drawing(width, height + 38, "Share of the sum of squares by factor and interaction")
    scale = Scale(0, 100, left, width - 60)
    axis = "share of the sum of squares (%)"
    horizontal_axis(drawing, scale, range(0, 101, 20), height, axis, 2)
    for position, (label, part, squares, order) in enumerate(rows):
        y = 6 + position * _ROW
        css = {1: "p0", 2: "p1"}.get(order, "other")
        tip = f"{label}\n{share(part)} of the sum of squares, {number(squares)}"
        drawing.text(left - 8, y + 15, label, "label end")
        drawing.rect(left, y + 4, scale(100 * part) - left, _ROW - 8, css, tip)
        drawing.text(scale(100 * part) + 6, y + 15, share(part), "tick")
    return drawing
