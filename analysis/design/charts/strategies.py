"""Time against the degree of tensor parallelism, a line for each cluster."""

from __future__ import annotations

from analysis.design.comparison import by_tensor
from analysis.design.search import Found, Solution
from analysis.report.charts.axis import LogScale, horizontal_axis, log_ticks, vertical_axis
from analysis.report.charts.drawing import Drawing
from analysis.report.tables.figures import duration, size, time_unit

_HEIGHT, _TOP, _LEFT, _KEY = 300.0, 24.0, 64.0, 15.0
_LINES = 6

_Line = tuple[str, dict[int, Solution]]


def strategies_chart(found: Found, width: float) -> Drawing | None:
    """For each degree that is best somewhere the best such cluster, then the others by their
    optima, as many as can be told apart; a line begins at the least degree that fits into memory.
    None without strategies."""
    lines = by_tensor(found)
    ordered = sorted(lines.items(), key=lambda pair: min(s.objective for s in pair[1].values()))
    seen: set[int] = set()
    first: list[_Line] = []
    others: list[_Line] = []
    for words, line in ordered:
        degree = min(line, key=lambda tensor: line[tensor].objective)
        (others if degree in seen else first).append((words, line))
        seen.add(degree)
    shown_lines = [*first, *others][:_LINES]
    if len(first) > _LINES:
        last = len(first) - 1
        shown_lines = [first[i * last // (_LINES - 1)] for i in range(_LINES)]
    times = [s.time_ns for _, line in shown_lines for s in line.values()]
    degrees = sorted({degree for _, line in shown_lines for degree in line})
    if len(degrees) < 2:
        return None
    bottom = _TOP + _HEIGHT
    drawing = Drawing(
        width, bottom + 44 + _KEY * len(shown_lines), "Time against the tensor degree"
    )
    factor, unit = time_unit(max(times))
    scale = LogScale(min(times) / factor * 0.95, max(times) / factor * 1.05, bottom, _TOP)
    ticks = log_ticks(scale.low, scale.high)
    vertical_axis(drawing, scale, ticks, _LEFT, f"iteration time ({unit})", width)
    across = LogScale(degrees[0], degrees[-1], _LEFT + 14, width - 16)
    title = "degree of tensor parallelism"
    horizontal_axis(drawing, across, [float(d) for d in degrees], bottom, title, _TOP)
    for number, (words, line) in enumerate(shown_lines):
        css = f"p{number % _LINES}"
        points = [(across(d), scale(s.time_ns / factor)) for d, s in line.items()]
        if len(points) > 1:
            drawing.polyline(points, f"cdf {css}")
        best = min(line.values(), key=lambda s: s.objective)
        for (x, y), solution in zip(points, line.values(), strict=True):
            tip = (
                f"{words}\n{solution.point.strategy}\n{duration(solution.time_ns)}, "
                f"{size(solution.work.footprint_bytes)}"
            )
            drawing.circle(x, y, 7 if solution is best else 4, css, tip)
        y = bottom + 50 + number * _KEY
        drawing.rect(_LEFT, y - 8, 9, 9, css)
        drawing.text(_LEFT + 14, y, words or "the only cluster", "tick")
    return drawing
