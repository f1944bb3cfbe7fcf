"""Queues: depth and marks over time where they were sampled, else their extremes by port."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.metrics.link import PortMetrics
from analysis.report.charts.axis import Scale, horizontal_axis, round_ticks, vertical_axis
from analysis.report.charts.broken_time import BrokenTime
from analysis.report.charts.drawing import Drawing
from analysis.report.run_figures import RunFigures
from analysis.report.tables.figures import count, share, size, size_unit
from analysis.runs.samples.ports import PortSeries, ports_that_queued
from topologies.spec.queue_section import QueueSpec

MAX_PORTS = 8
_MOST_EXTREMES = 12
_MOST_TROUBLED = 8
_PANEL, _SPACE = 64.0, 30.0


def threshold_bytes(figures: RunFigures, port: str) -> int | None:
    """The backlog from which the port marks (K, or RED's kmin); None where depth marks nothing."""
    for link in figures.run.fabric.links:
        for end in (link.a, link.b):
            if end.interface == port:
                return _threshold(end.queue)
    return None


def _threshold(queue: QueueSpec) -> int | None:
    value = getattr(queue, "k_bytes", None)
    return value if value is not None else getattr(queue, "kmin_bytes", None)


def queue_series_chart(figures: RunFigures, width: float) -> Drawing | None:
    """A panel of backlog over time for each of 8 sampled ports, the deepest and the most marking
    ones, marks as ticks below. None when nothing was sampled or nothing ever queued."""
    deepest = _worth_showing(figures.queues)
    if not deepest:
        return None
    spans = figures.collective_spans_ns or [
        (min(s.times_ns[0] for s in deepest), max(s.times_ns[-1] for s in deepest))
    ]
    left, right = 62.0, width - 16
    height = len(deepest) * (_PANEL + _SPACE)
    drawing = Drawing(width, height + 40, "Queue depth over time")
    time = BrokenTime(spans, left, right)
    highest = max(s.max_backlog_bytes for s in deepest)
    factor, unit = size_unit(highest)
    ports = {m.record.port: m for m in figures.ports}
    time.draw_axis(drawing, 18, height - 6, figures.scale)
    for position, series in enumerate(deepest):
        top = 22 + position * (_PANEL + _SPACE)
        scale = Scale(0, highest / factor * 1.05, top + _PANEL, top)
        vertical_axis(drawing, scale, round_ticks(0, highest / factor, 2), left, "", grid_end=right)
        metrics = ports.get(series.port)
        name = metrics.name if metrics else series.port
        drawing.text(left, top - 6, f"{name} ({unit})", "label")
        most = f"at most {size(series.max_backlog_bytes)}"
        _area(drawing, time, scale, factor, series, f"{name}\n{most}")
        threshold = threshold_bytes(figures, series.port)
        if threshold is not None and threshold / factor <= scale.high:
            y = scale(threshold / factor)
            drawing.line(left, y, right, y, "threshold", f"marks from {size(threshold)} on")
        _mark_ticks(drawing, time, top + _PANEL, series)
    return drawing


def _worth_showing(series: Sequence[PortSeries]) -> list[PortSeries]:
    """The deepest half and the most marking half of what fits, deepest first."""
    queued = ports_that_queued(series)
    marking = sorted((s for s in queued if s.marked), key=lambda s: -s.marked)[: MAX_PORTS // 2]
    chosen = marking + [s for s in queued if s not in marking][: MAX_PORTS - len(marking)]
    return sorted(chosen, key=lambda s: -s.max_backlog_bytes)


def _area(
    drawing: Drawing,
    time: BrokenTime,
    scale: Scale,
    factor: float,
    series: PortSeries,
    tip: str,
) -> None:
    """The highest backlog in each column of half a unit, so that no peak is lost and the page stays
    small."""
    columns: dict[int, int] = {}
    first, last = time.stretches[0].start_ns, time.stretches[-1].end_ns
    held = 0
    previous: int | None = None
    samples = zip(series.times_ns, series.backlog_bytes, series.peak_bytes, strict=True)
    for at, backlog, peak in samples:
        if first <= at <= last:
            column = int(time(at) * 2)
            if previous is not None and held:
                for between in range(previous + 1, column):
                    columns[between] = max(columns.get(between, 0), held)
            columns[column] = max(columns.get(column, 0), peak, held)
            previous = column
        held = backlog
    base = scale.start
    points: list[str] = []
    before = None
    for column in sorted(columns):
        x, y = column / 2, scale(columns[column] / factor)
        if before is None or column != before + 1:
            if before is not None:
                points.append(f"L{before / 2 + 0.5:.1f} {base:.1f}")
            points.append(f"{'M' if before is None else 'L'}{x:.1f} {base:.1f}")
        points.append(f"L{x:.1f} {y:.1f}")
        before = column
    if before is not None:
        points.append(f"L{before / 2 + 0.5:.1f} {base:.1f}Z")
        drawing.path("".join(points), "queue", tip)


def _mark_ticks(drawing: Drawing, time: BrokenTime, y: float, series: PortSeries) -> None:
    columns: dict[int, int] = {}
    before = 0
    for at, marks in zip(series.times_ns, series.marks, strict=True):
        if marks > before:
            column = int(time(at) * 2)
            columns[column] = columns.get(column, 0) + marks - before
        before = marks
    commands = "".join(f"M{column / 2:.1f} {y + 2:.1f}v5" for column in sorted(columns))
    if commands:
        drawing.path(commands, "marks", f"{count(before)} packets marked")


def queue_extremes_chart(
    figures: RunFigures, ports: Sequence[PortMetrics], width: float
) -> Drawing | None:
    """Maximum and time-weighted mean backlog of the ports, with the marking threshold."""
    if not ports:
        return None
    highest = max(p.record.max_backlog_bytes or 0 for p in ports) or 1
    factor, unit = size_unit(highest)
    row = 24.0
    left = 26 + 6.4 * max(len(p.name) for p in ports)
    height = 6 + row * len(ports)
    drawing = Drawing(width, height + 38, "Queues, marks and drops by port")
    scale = Scale(0, highest / factor * 1.02, left, width - 150)
    horizontal_axis(
        drawing, scale, round_ticks(0, highest / factor, 8), height, f"backlog ({unit})", 2
    )
    for position, metrics in enumerate(ports):
        y = 6 + position * row + row / 2
        record = metrics.record
        deepest = record.max_backlog_bytes or 0
        drawing.text(left - 8, y + 4, metrics.name, "label end")
        tip = (
            f"{metrics.name}\nqueue at most {size(deepest)}, on average "
            f"{size(metrics.mean_backlog_bytes)}\n{count(record.ecn_marks)} marks, "
            f"{count(record.drops)} drops, {share(metrics.utilisation)} busy"
        )
        drawing.rect(left, y - 6, scale(deepest / factor) - left, 12, "queue", tip)
        threshold = threshold_bytes(figures, record.port)
        if threshold is not None and threshold / factor <= scale.high:
            x = scale(threshold / factor)
            drawing.line(x, y - 9, x, y + 9, "threshold", f"marks from {size(threshold)} on")
        notes = [f"drops {count(record.drops)}"] if record.drops else []
        notes += [f"marks {count(record.ecn_marks)}"] if record.ecn_marks else []
        drawing.text(scale(deepest / factor) + 6, y + 4, ", ".join(notes), "tick")
    return drawing


def ports_that_matter(figures: RunFigures) -> tuple[PortMetrics, ...]:
    """The ports that dropped and marked most, of switches and of hosts, and then those with the
    deepest queues; none that did nothing of this."""

    def trouble(port: PortMetrics) -> tuple[int, int, int]:
        record = port.record
        return record.drops, record.ecn_marks, record.max_backlog_bytes or 0

    ranked = sorted(figures.ports, key=trouble, reverse=True)
    chosen = [p for p in ranked if p.record.drops or p.record.ecn_marks][:_MOST_TROUBLED]
    deepest = sorted(ranked, key=lambda p: -(p.record.max_backlog_bytes or 0))
    queued = [p for p in deepest if p.record.max_backlog_bytes and p not in chosen]
    return (*chosen, *queued[: _MOST_EXTREMES - len(chosen)])
