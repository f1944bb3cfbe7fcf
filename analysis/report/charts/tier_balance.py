"""Balance over time: for each tier, the busiest port over the mean, window by window."""

from __future__ import annotations

from analysis.metrics.link import communicating_spans
from analysis.metrics.tier_over_time import TierOverTime
from analysis.report.charts.axis import Scale, round_ticks, vertical_axis
from analysis.report.charts.broken_time import BrokenTime
from analysis.report.charts.drawing import Drawing
from analysis.report.run_figures import RunFigures
from analysis.report.tables.figures import number

MAX_TIERS = 12
_PANEL, _SPACE = 46.0, 26.0


def tier_balance_chart(figures: RunFigures, width: float) -> Drawing | None:
    """A panel for each tier, the most uneven first where there are too many. None where no tier was
    sampled."""
    tiers = figures.tiers_over_time
    if not tiers:
        return None
    most = sorted(tiers, key=lambda tier: -tier.mean_imbalance)[:MAX_TIERS]
    shown = [tier for tier in tiers if tier in most]
    left, right = 62.0, width - 16
    height = len(shown) * (_PANEL + _SPACE)
    drawing = Drawing(width, height + 40, "Balance of tiers over time")
    time = BrokenTime(communicating_spans(figures.run), left, right)
    time.draw_axis(drawing, 18, height - 6, figures.scale)
    highest = max(1.1, 1.05 * max(tier.worst[1] for tier in shown))
    ticks = round_ticks(1, highest, 2)
    for position, tier in enumerate(shown):
        top = 22 + position * (_PANEL + _SPACE)
        scale = Scale(1, highest, top + _PANEL, top)
        vertical_axis(drawing, scale, ticks, left, "", grid_end=right)
        name = f"{tier.link_class}, {tier.direction}, {tier.ports} ports"
        drawing.text(left, top - 6, f"{name} (busiest / mean)", "label")
        tip = f"{name}\n{number(tier.mean_imbalance)} on average, at most {number(tier.worst[1])}"
        for line in _lines(tier, time, scale):
            drawing.polyline(line, "rate", tip)
    return drawing


def _lines(tier: TierOverTime, time: BrokenTime, scale: Scale) -> list[list[tuple[float, float]]]:
    """Steps, without those windows in which nothing was sent."""
    found: list[list[tuple[float, float]]] = [[]]
    end_before = None
    windows = zip(tier.begin_ns, tier.end_ns, tier.imbalance, strict=True)
    for begin, end, imbalance in windows:
        if imbalance != imbalance:
            continue
        if begin != end_before:
            found.append([])
        y = scale(min(float(imbalance), scale.high))
        found[-1] += [(time(float(begin)), y), (time(float(end)), y)]
        end_before = end
    return [line for line in found if line]
