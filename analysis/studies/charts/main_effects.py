"""Main effects: a panel for each factor, a dot for each level's mean, one axis for all."""

from __future__ import annotations

from analysis.report.charts.drawing import Drawing
from analysis.report.tables.figures import share
from analysis.studies.charts.scales import axis_room, cut, response_axis, response_text
from analysis.studies.effects import Effects

_HEIGHT = 240.0
_TOP = 58.0
_BELOW = 66.0
_GAP = 14.0


def main_effects_chart(effects: Effects, width: float) -> Drawing:
    """The steeper a factor's line, the more it matters."""
    drawing = Drawing(
        width, _TOP + _HEIGHT + _BELOW, f"Mean {effects.response} at each level of each factor"
    )
    means = [level.mean for main in effects.mains for level in main.levels]
    left = axis_room(effects.response, means)
    bottom = _TOP + _HEIGHT
    scale = response_axis(drawing, effects.response, means, left, width, _TOP, bottom)
    drawing.line(left, scale(effects.mean), width, scale(effects.mean), "threshold")
    panel = (width - left) / max(1, len(effects.mains))
    for position, main in enumerate(effects.mains):
        start = left + position * panel + _GAP
        room = panel - 2 * _GAP
        step = room / len(main.levels)
        title = cut(main.factor, panel - 8)
        drawing.text(start + room / 2, 14, title, "label mid")
        drawing.text(start + room / 2, 29, share(main.share), "tick mid")
        points = [
            (start + (index + 0.5) * step, scale(level.mean))
            for index, level in enumerate(main.levels)
        ]
        drawing.polyline(points, "cdf p0")
        for (x, y), level in zip(points, main.levels, strict=True):
            tip = (
                f"{main.factor}: {level.level}\nmean {response_text(effects.response, level.mean)} "
                f"of {level.cases} cases, {response_text(effects.response, level.least)} to "
                f"{response_text(effects.response, level.most)}"
            )
            drawing.circle(x, y, 5, "p0", tip)
            drawing.text(x + 4, bottom + 14, cut(level.level, _BELOW * 1.15), "tick end", turn=-40)
    return drawing
