"""Time against cost: every solved point, the front, the best one."""

from __future__ import annotations

from analysis.design.search import Found
from analysis.report.charts.axis import LogScale, horizontal_axis, log_ticks, vertical_axis
from analysis.report.charts.drawing import Drawing
from analysis.report.tables.figures import duration, number, time_unit

_HEIGHT, _TOP, _LEFT = 320.0, 24.0, 64.0
_MOST_POINTS = 2000


def front_chart(found: Found, width: float) -> Drawing | None:
    """None where nothing has a price, or all cost the same."""
    solved = [(s.cost, s.time_ns, s.point.words) for s in found.solved[:_MOST_POINTS]]
    front = [(one.cost, one.time_ns, one.words) for one in found.front]
    costs = [cost for cost, _, _ in (*solved, *front)]
    times = [time for _, time, _ in (*solved, *front)]
    if not costs or min(costs) <= 0 or max(costs) < min(costs) * 1.0001:
        return None
    bottom = _TOP + _HEIGHT
    drawing = Drawing(width, bottom + 40, "Iteration time against cost")
    factor, unit = time_unit(max(times))
    low, high = min(times) / factor * 0.95, max(times) / factor * 1.05
    shown = LogScale(low, high, bottom, _TOP)
    heading = f"iteration time ({unit})"
    vertical_axis(drawing, shown, log_ticks(low, high), _LEFT, heading, width)
    across = LogScale(min(costs) * 0.97, max(costs) * 1.03, _LEFT, width - 10)
    ticks = log_ticks(across.low, across.high)
    horizontal_axis(drawing, across, ticks, bottom, "cost ($)", _TOP)

    def at(cost: float, time_ns: float) -> tuple[float, float]:
        return across(cost), shown(time_ns / factor)

    for cost, time_ns, words in solved:
        x, y = at(cost, time_ns)
        drawing.circle(x, y, 3, "p0 measured", f"{words}\n{duration(time_ns)} at {number(cost)}")
    line = [at(cost, time_ns) for cost, time_ns, _ in front]
    if len(line) > 1:
        drawing.polyline(line, "cdf p1")
    for (x, y), (cost, time_ns, words) in zip(line, front, strict=True):
        drawing.circle(x, y, 4, "p1", f"{words}\n{duration(time_ns)} at {number(cost)}")
    best = found.best
    x, y = at(best.cost, best.time_ns)
    tip = f"the best: {best.point.words}\n{duration(best.time_ns)} at {number(best.cost)}"
    drawing.circle(x, y, 7, "p2", tip)
    return drawing
