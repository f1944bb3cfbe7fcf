"""How much 1% more of each active constraint changes the objective: a bar for each."""

from __future__ import annotations

from analysis.design.search import Found
from analysis.design.sensitivity import sensitivities
from analysis.report.charts.axis import Scale, horizontal_axis, round_ticks
from analysis.report.charts.drawing import Drawing
from analysis.report.tables.figures import number

_ROW = 26.0


def sensitivities_chart(found: Found, width: float) -> Drawing | None:
    """None where no constraint is active."""
    rows = [one for one in sensitivities(found) if one.elasticity]
    if not rows:
        return None
    values = [one.elasticity for one in rows]
    low, high = min(0.0, *values), max(0.0, *values)
    left = min(24 + 6.4 * max(len(one.constraint) for one in rows), width * 0.45)
    height = 6 + _ROW * len(rows)
    drawing = Drawing(width, height + 40, "Change of the objective for 1% more of a constraint")
    scale = Scale(low * 1.1, high * 1.1, left, width - 70)
    objective = found.file.sections.design.objective
    title = f"change of {objective} for 1% more (%)"
    horizontal_axis(drawing, scale, round_ticks(low * 1.1, high * 1.1), height, title, 2)
    for position, one in enumerate(rows):
        y = 6 + position * _ROW
        start, end = sorted((scale(0.0), scale(one.elasticity)))
        tip = f"{one.constraint}: {one.value}\n{number(one.per_unit)} per {one.unit}"
        drawing.text(left - 8, y + 16, one.constraint, "label end")
        drawing.rect(start, y + 4, end - start, _ROW - 8, "p0", tip)
    return drawing
