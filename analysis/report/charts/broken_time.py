"""A time axis that leaves out idle stretches, so that what happened is wide enough to see."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from analysis.metrics.spans import Span, length_ns, union
from analysis.report.charts.axis import round_ticks, tick_label
from analysis.report.charts.drawing import Drawing
from analysis.report.tables.figures import duration, time_unit

_BREAK_WIDTH = 22.0
_IDLE_SHARE = 0.15


@dataclass(frozen=True)
class Stretch:
    """Consecutive time drawn to scale, from x `left` to `right`."""

    start_ns: int
    end_ns: int
    left: float
    right: float


class BrokenTime:
    """Maps nanoseconds to x. Times are drawn relative to the first one.

    A gap in which nothing happens is cut when it is longer than 15% of all time in which something
    does. Where there are so many gaps that they would fill the axis, none is cut. An axis has room
    for `at_least_ns`, so that several can be drawn to one scale.
    """

    def __init__(
        self, spans: Iterable[Span], left: float, right: float, at_least_ns: int = 0
    ) -> None:
        busy = union(spans)
        if not busy:
            raise ValueError("an axis of no time at all")
        self.left, self.right = left, right
        self.origin_ns = busy[0][0]
        longest_gap = _IDLE_SHARE * length_ns(busy)
        groups = [list(busy[0])]
        for start, end in busy[1:]:
            if start - groups[-1][1] > longest_gap:
                groups.append([start, end])
            else:
                groups[-1][1] = end
        if (len(groups) - 1) * _BREAK_WIDTH > (right - left) / 3:
            groups = [[busy[0][0], busy[-1][1]]]
        self.total_ns = sum(end - start for start, end in groups)
        width = right - left - _BREAK_WIDTH * (len(groups) - 1)
        self._per_ns = width / max(self.total_ns, at_least_ns)
        x = left
        stretches = []
        for start, end in groups:
            stretches.append(Stretch(start, end, x, x + (end - start) * self._per_ns))
            x = stretches[-1].right + _BREAK_WIDTH
        self.stretches = tuple(stretches)

    def __call__(self, time_ns: float) -> float:
        for stretch in self.stretches:
            if time_ns <= stretch.end_ns:
                ahead = max(time_ns - stretch.start_ns, 0)
                return stretch.left + ahead * self._per_ns
        return self.right

    def draw_axis(self, drawing: Drawing, top: float, bottom: float, scale: int) -> None:
        """Grid and ticks in target time (`scale` target nanoseconds are 1 / scale of these)."""
        last = self.stretches[-1]
        factor, unit = time_unit((last.end_ns - self.origin_ns) / scale)
        width = self.right - self.left
        for stretch in self.stretches:
            low = (stretch.start_ns - self.origin_ns) / scale / factor
            high = (stretch.end_ns - self.origin_ns) / scale / factor
            about = max(1, round(10 * (stretch.right - stretch.left) / width * width / 1000))
            for tick in round_ticks(low, high, about):
                x = self(self.origin_ns + tick * factor * scale)
                drawing.line(x, top, x, bottom, "grid")
                drawing.text(x, bottom + 14, tick_label(tick), "tick mid")
        for before, after in zip(self.stretches, self.stretches[1:], strict=False):
            x = (before.right + after.left) / 2
            gap_ns = (after.start_ns - before.end_ns) / scale
            drawing.rect(
                before.right,
                top,
                after.left - before.right,
                bottom - top,
                "gap",
                f"{duration(gap_ns)} left out: nothing happened",
            )
            drawing.text(x, (top + bottom) / 2, "⋯", "tick mid")
        drawing.text((self.left + self.right) / 2, bottom + 30, f"time ({unit})", "axis mid")
