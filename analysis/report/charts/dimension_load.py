"""The load of each dimension over time, a line each: what Themis balances."""

from __future__ import annotations

import numpy as np

from analysis.metrics.link import communicating_spans
from analysis.report.charts.axis import Scale, round_ticks, vertical_axis
from analysis.report.charts.broken_time import BrokenTime
from analysis.report.charts.colours import COLOURS
from analysis.report.charts.drawing import Drawing
from analysis.report.run_figures import RunFigures
from analysis.report.tables.figures import share, size

_COLUMNS = 160
_TOP, _HEIGHT, _LEFT = 26.0, 220.0, 52.0


def dimension_load_chart(figures: RunFigures, width: float) -> Drawing | None:
    """Payload that a rank sends along each dimension, by time, the mean of all ranks. None where no
    program went by dimensions."""
    uses, spans = figures.dimensions, communicating_spans(figures.run)
    if not uses or not spans:
        return None
    ranks = len(figures.run.ranks)
    time = BrokenTime(spans, _LEFT, width - 12)
    lines = []
    for stretch in time.stretches:
        columns = round(_COLUMNS * (stretch.right - stretch.left) / (time.right - time.left))
        edges = np.linspace(stretch.start_ns, stretch.end_ns, max(2, columns) + 1)
        seconds = np.diff(edges) / 1e9 / figures.scale
        for use in uses:
            rates = 8 * np.diff(use.sent_until(edges)) / seconds / ranks / 1e9
            lines.append((use, edges, rates))
    most = max(float(rates.max()) for _, _, rates in lines) or 1.0
    bottom = _TOP + _HEIGHT
    drawing = Drawing(width, bottom + 38 + 16 * len(uses), "Load by dimension over time")
    up = Scale(0, most * 1.05, bottom, _TOP)
    vertical_axis(drawing, up, round_ticks(0, most * 1.05, 5), _LEFT, "Gb/s a rank", width - 12)
    time.draw_axis(drawing, _TOP, bottom, figures.scale)
    for use, edges, rates in lines:
        xs = [time(float(edge)) for edge in edges]
        points = []
        for left, right, value in zip(xs, xs[1:], rates.tolist(), strict=False):
            points += [(left, up(value)), (right, up(value))]
        drawing.polyline(points, f"cdf p{use.dimension % COLOURS}", f"dimension {use.dimension}")
    heaviest = max(use.load for use in uses)
    for place, use in enumerate(uses):
        y = bottom + 50 + 16 * place
        drawing.rect(_LEFT, y - 9, 10, 10, f"p{use.dimension % COLOURS}")
        load = share(use.load / heaviest) if heaviest else "0%"
        said = f"dimension {use.dimension}: {size(use.payload_bytes)}, {load} of the largest load"
        drawing.text(_LEFT + 16, y, said, "tick")
    return drawing
