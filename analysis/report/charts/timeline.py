"""One iteration over time: what every rank computed, what it waited for, what was in flight."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.metrics.phase_names import phase_name
from analysis.metrics.spans import Span, union
from analysis.report.charts.broken_time import BrokenTime
from analysis.report.charts.colours import PhaseColours
from analysis.report.charts.drawing import Drawing
from analysis.report.charts.roce.rates import cnp_ticks
from analysis.report.run_figures import RunFigures
from analysis.report.tables.figures import count, duration, size
from analysis.runs.collectives import ALIGNMENT
from analysis.runs.faults import fault_spans
from analysis.runs.records import CollectiveRecord
from analysis.runs.run import RankLog

MAX_RANKS = 64
_ROOMY_RANKS = 24


def timeline_chart(
    figures: RunFigures, iteration: int, colours: PhaseColours, width: float, at_least_ns: float
) -> Drawing | None:
    """Lanes of (at most 64) ranks: on top what the main thread does (computing, or blocked on a
    collective: exposed), below it the collectives in flight; of a virtual GPU on top its default
    stream, below it a row for each other stream. The axis has room for `at_least_ns` of
    the target fabric. None when nothing was logged."""
    logs = shown_ranks(figures)
    spans = _spans(figures, iteration)
    if not spans:
        return None
    posted = [record for log in logs for record in _posted(log, iteration)]
    roomy = len(logs) <= _ROOMY_RANKS
    main, flight, space = (9.0, 4.0, 5.0) if roomy else (5.0, 2.5, 2.5)
    rows = _flight_rows(posted)
    aside = {
        log.rank: [
            each for each in figures.side_streams.get(log.rank, ()) if each.iteration == iteration
        ]
        for log in logs
    }
    streams = {each.stream for stretches in aside.values() for each in stretches}
    streams |= {record.stream or 0 for record in posted}
    default = {0} & {record.stream for record in posted}
    by_stream = {stream: row for row, stream in enumerate(sorted(default | streams - {0}))}
    depth = max((by_stream or rows).values(), default=-1) + 1
    lane = main + depth * flight + 1 + space
    left, top = 58.0, 8.0
    bottom = top + lane * len(logs)
    drawing = Drawing(width, bottom + 38, f"Timeline of iteration {iteration} by rank")
    time = BrokenTime(spans, left, width - 12, round(at_least_ns * figures.scale))
    time.draw_axis(drawing, top - 4, bottom, figures.scale)
    for fault in fault_spans(figures.run):
        end_ns = spans[-1][1] if fault.end_ns is None else fault.end_ns
        if fault.touches(spans[0][0], spans[-1][1]):
            x = time(fault.start_ns)
            drawing.rect(x, top, max(time(end_ns) - x, 1.0), bottom - top, "fault", fault.what)
    every = 1 if roomy else 4
    notified: dict[int | None, tuple[int, ...]] = {}
    for each in figures.notifications:
        notified[each.rank] = (*notified.get(each.rank, ()), *each.times_ns)
    for position, log in enumerate(logs):
        y = top + position * lane
        if position % every == 0:
            drawing.text(left - 8, y + main - 0.5, f"rank {log.rank}", "tick end")
        for stretch in aside[log.rank]:
            row = y + main + 1 + by_stream[stretch.stream] * flight
            start, end = time(stretch.start_ns), time(stretch.end_ns)
            drawing.rect(
                start, row, max(end - start, 0.5), flight - 0.8, "compute",
                f"rank {log.rank}, stream {stretch.stream}: {stretch.first}\n"
                f"{count(stretch.kernels)} kernels, "
                f"{duration((stretch.end_ns - stretch.start_ns) / figures.scale)}",
            )  # fmt: skip
        for record in _posted(log, iteration):
            place = by_stream[record.stream or 0] if by_stream else rows[_key(record)]
            row = y + main + 1 + place * flight
            start, end = time(record.start_ns), time(record.end_ns)
            css = colours.css(record.phase)
            tip = _tip(log, record, figures.scale)
            drawing.rect(start, row, max(end - start, 0.6), flight - 0.8, f"{css} flight", tip)
            if record.waited_ns:
                began = time(record.end_ns - record.waited_ns)
                drawing.rect(began, y, max(end - began, 0.6), main, css, tip)
        for compute in log.computes:
            if compute.iteration == iteration and compute.end_ns > compute.start_ns:
                x = time(compute.start_ns)
                took = duration((compute.end_ns - compute.start_ns) / figures.scale)
                drawing.rect(
                    x,
                    y,
                    max(time(compute.end_ns) - x, 0.5),
                    main,
                    "compute",
                    f"rank {log.rank}: {compute.name}\n{compute.phase.replace('_', ' ')}, {took}",
                )
        ticks = cnp_ticks(time, notified.get(log.rank, ()), y, main)
        if ticks:
            told = sum(spans[0][0] <= at <= spans[-1][1] for at in notified[log.rank])
            drawing.path(ticks, "marks", f"rank {log.rank}: {count(told)} CNPs came")
    return drawing


def shown_time_ns(figures: RunFigures, iteration: int) -> float:
    """How much time of the target fabric the timeline of an iteration shows."""
    spans = _spans(figures, iteration)
    return BrokenTime(spans, 0, 1000).total_ns / figures.scale if spans else 0.0


def _spans(figures: RunFigures, iteration: int) -> tuple[Span, ...]:
    events: list[Span] = []
    for log in shown_ranks(figures):
        events += [(c.start_ns, c.end_ns) for c in log.computes if c.iteration == iteration]
        events += [(record.start_ns, record.end_ns) for record in _posted(log, iteration)]
    return union(events)


def shown_ranks(figures: RunFigures) -> Sequence[RankLog]:
    """All ranks, or 64 of them evenly spaced."""
    logs = figures.run.ranks
    if len(logs) <= MAX_RANKS:
        return logs
    return [logs[i * len(logs) // MAX_RANKS] for i in range(MAX_RANKS)]


def marks_of(figures: RunFigures, iteration: int) -> int:
    """Roughly how many marks the timeline of an iteration has."""
    return sum(
        sum(c.iteration == iteration for c in log.computes)
        + 2 * len(_posted(log, iteration))
        + sum(c.iteration == iteration for c in figures.side_streams.get(log.rank, ()))
        for log in shown_ranks(figures)
    )


def _posted(log: RankLog, iteration: int) -> list[CollectiveRecord]:
    return [c for c in log.collectives if c.iteration == iteration and c.phase != ALIGNMENT]


def _key(record: CollectiveRecord) -> tuple[str, str]:
    return record.group, record.id


def _flight_rows(records: Sequence[CollectiveRecord]) -> dict[tuple[str, str], int]:
    """A row for each collective, the same on all ranks, so that no two overlap in a row."""
    spans: dict[tuple[str, str], tuple[int, int]] = {}
    for record in records:
        start, end = spans.get(_key(record), (record.start_ns, record.end_ns))
        spans[_key(record)] = (min(start, record.start_ns), max(end, record.end_ns))
    rows: dict[tuple[str, str], int] = {}
    free_from: list[int] = []
    for key, (start, end) in sorted(spans.items(), key=lambda item: item[1]):
        row = next((i for i, free in enumerate(free_from) if free <= start), len(free_from))
        if row == len(free_from):
            free_from.append(0)
        free_from[row] = end
        rows[key] = row
    return rows


def _tip(log: RankLog, record: CollectiveRecord, scale: int) -> str:
    took = (record.end_ns - record.start_ns) / scale
    place = "" if record.stream is None else f", stream {record.stream}"
    return (
        f"rank {log.rank}{place}: {record.id}\n{phase_name(record.phase)}, {record.kind}, "
        f"{size(record.size_bytes)}\nin flight {duration(took)}, "
        f"exposed {duration(record.waited_ns / scale)}"
    )
