"""Time against cost: every case, and the front of those that nothing beats in both."""

from __future__ import annotations

from analysis.report.charts.axis import Scale, horizontal_axis, round_ticks
from analysis.report.charts.drawing import Drawing
from analysis.report.tables.figures import number
from analysis.studies.cases import TIME, StudyCases, pareto_front, value_of
from analysis.studies.charts.scales import axis_room, response_axis, response_text

_HEIGHT = 320.0
_TOP = 24.0


def cost_chart(study: StudyCases, width: float) -> Drawing | None:
    """None where no case has both a time and a cost."""
    cases = [case for case in study.ranked(TIME) if case.cost is not None]
    if not cases:
        return None
    points = [(case.cost or 0.0, value_of(case, TIME)) for case in cases]
    costs, times = [cost for cost, _ in points], [time for _, time in points]
    left, bottom = axis_room(TIME, times), _TOP + _HEIGHT
    drawing = Drawing(width, bottom + 40, "Iteration time against cost")
    vertical = response_axis(drawing, TIME, times, left, width, _TOP, bottom)
    margin = (max(costs) - min(costs)) * 0.05 or abs(max(costs)) * 0.05 or 1.0
    low, high = max(0.0, min(costs) - margin), max(costs) + margin
    across = Scale(low, high, left, width - 10)
    horizontal_axis(drawing, across, round_ticks(low, high), bottom, "cost", _TOP)
    front = pareto_front(points)
    steps: list[tuple[float, float]] = []
    for position in front:
        x, y = across(points[position][0]), vertical(points[position][1])
        if steps:
            steps.append((x, steps[-1][1]))
        steps.append((x, y))
    if len(steps) > 1:
        drawing.polyline(steps, "cdf p1")
    for position, case in enumerate(cases):
        cost, time_ns = points[position]
        levels = ", ".join(f"{name}={level}" for name, level in case.levels.items())
        tip = f"case {case.number}: {response_text(TIME, time_ns)} at {number(cost)}\n{levels}"
        on_front = position in front
        css = "p1" if on_front else "p0 measured"
        drawing.circle(across(cost), vertical(time_ns), 6 if on_front else 4, css, tip)
    return drawing
