"""The rates of queue pairs over time, as their controllers had them, and the CNPs that came."""

from __future__ import annotations

from analysis.report.charts.axis import Scale, round_ticks, vertical_axis
from analysis.report.charts.broken_time import BrokenTime
from analysis.report.charts.drawing import Drawing
from analysis.report.run_figures import RunFigures
from analysis.report.tables.figures import count
from analysis.runs.samples.rates import RateSeries

MAX_QUEUE_PAIRS = 8
_PANEL, _SPACE = 64.0, 30.0


def rates_chart(figures: RunFigures, width: float) -> Drawing | None:
    """A panel for each of the 8 queue pairs that were slowed down most, CNPs as ticks below. None
    when the kernel kept no rates."""
    slowest = slowed_most(figures.rates)
    if not slowest:
        return None
    spans = figures.collective_spans_ns or [
        (min(s.times_ns[0] for s in slowest), 1 + max(s.times_ns[-1] for s in slowest))
    ]
    left, right = 62.0, width - 16
    height = len(slowest) * (_PANEL + _SPACE)
    drawing = Drawing(width, height + 40, "Rates of queue pairs over time")
    time = BrokenTime(spans, left, right)
    highest = max(max(each.rates_bps) for each in slowest) / 1e9
    came = {(each.rank, each.peer, each.qpn): each.times_ns for each in figures.notifications}
    time.draw_axis(drawing, 18, height - 6, figures.scale)
    for position, series in enumerate(slowest):
        top = 22 + position * (_PANEL + _SPACE)
        scale = Scale(0, highest * 1.05, top + _PANEL, top)
        vertical_axis(drawing, scale, round_ticks(0, highest, 2), left, "", grid_end=right)
        drawing.text(left, top - 6, f"{series.name} (Gb/s)", "label")
        lowest = f"{series.name}\nat least {min(series.rates_bps) / 1e9:.2f} Gb/s"
        drawing.path(_steps(time, scale, series), "rate", lowest)
        times_ns = came.get((series.source, series.destination, series.qpn), ())
        commands = cnp_ticks(time, times_ns, top + _PANEL + 2, 5)
        if commands:
            drawing.path(commands, "marks", f"{count(len(times_ns))} CNPs came")
    return drawing


def slowed_most(series: tuple[RateSeries, ...]) -> list[RateSeries]:
    """Those that were ever below their highest rate, the lowest first, as many as are drawn."""
    slowed = [each for each in series if min(each.rates_bps) < max(each.rates_bps)]
    return sorted(slowed, key=lambda each: min(each.rates_bps))[:MAX_QUEUE_PAIRS]


def cnp_ticks(time: BrokenTime, times_ns: tuple[int, ...], y: float, length: float) -> str:
    """A path of ticks, at most two a unit of width, of the times that the axis has."""
    first, last = time.stretches[0].start_ns, time.stretches[-1].end_ns
    columns = {int(time(at) * 2) for at in times_ns if first <= at <= last}
    return "".join(f"M{column / 2:.1f} {y:.1f}v{length:g}" for column in sorted(columns))


def _steps(time: BrokenTime, scale: Scale, series: RateSeries) -> str:
    """A rate holds until the next; the lowest and the last one of each half unit are drawn."""
    last_ns = time.stretches[-1].end_ns
    columns: dict[int, tuple[int, int]] = {}
    for at, rate in zip(series.times_ns, series.rates_bps, strict=True):
        if at <= last_ns:
            column = int(time(at) * 2)
            columns[column] = min(columns.get(column, (rate, rate))[0], rate), rate
    points: list[str] = []
    for column, (lowest, latest) in sorted(columns.items()):
        x = column / 2
        points.append(f"{'H' if points else 'M'}{x:.1f}")
        if len(points) == 1:
            points[0] += f" {scale(lowest / 1e9):.1f}"
        points.append(f"V{scale(lowest / 1e9):.1f}V{scale(latest / 1e9):.1f}")
    points.append(f"H{time(last_ns):.1f}")
    return "".join(points)
