"""How many of their slots aggregation nodes had taken over time, a line each."""

from __future__ import annotations

import numpy as np

from analysis.metrics.link import communicating_spans
from analysis.report.charts.axis import Scale, round_ticks, vertical_axis
from analysis.report.charts.broken_time import BrokenTime
from analysis.report.charts.drawing import Drawing
from analysis.report.run_figures import RunFigures

_COLUMNS = 160
_TOP, _HEIGHT, _LEFT = 26.0, 180.0, 52.0
_LINES = 6
"""As many nodes are drawn, those that held slots longest: there are as many colours."""


def slot_use_chart(figures: RunFigures, width: float) -> Drawing | None:
    """The most slots that a node had taken at once in each column of time. None where switches took
    no part."""
    spans = communicating_spans(figures.run)
    uses = sorted(figures.slots, key=lambda use: (-use.held_ns, use.switch))
    if not uses or not spans:
        return None
    drawn = uses[:_LINES]
    time = BrokenTime(spans, _LEFT, width - 12)
    bottom = _TOP + _HEIGHT
    drawing = Drawing(width, bottom + 54 + 16 * len(drawn), "Slots of aggregation nodes over time")
    most = max(use.most for use in drawn) or 1
    up = Scale(0, most * 1.05, bottom, _TOP)
    vertical_axis(drawing, up, round_ticks(0, most * 1.05, 5), _LEFT, "slots", width - 12)
    time.draw_axis(drawing, _TOP, bottom, figures.scale)
    for stretch in time.stretches:
        columns = round(_COLUMNS * (stretch.right - stretch.left) / (time.right - time.left))
        edges = np.linspace(stretch.start_ns, stretch.end_ns, max(2, columns) + 1)
        xs = [time(float(edge)) for edge in edges]
        for place, use in enumerate(drawn):
            points = []
            for left, right, held in zip(xs, xs[1:], use.most_within(edges).tolist(), strict=False):
                points += [(left, up(held)), (right, up(held))]
            drawing.polyline(points, f"cdf p{place}", use.switch)
    for place, use in enumerate(drawn):
        y = bottom + 50 + 16 * place
        drawing.rect(_LEFT, y - 9, 10, 10, f"p{place}")
        said = f"{use.switch}: at most {use.most} of {use.slots} slots at once"
        drawing.text(_LEFT + 16, y, said, "tick")
    if len(uses) > len(drawn):
        y = bottom + 50 + 16 * len(drawn)
        drawing.text(_LEFT + 16, y, f"and {len(uses) - len(drawn)} more: see the table", "tick")
    return drawing
