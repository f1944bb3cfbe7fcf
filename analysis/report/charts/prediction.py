"""Measured against predicted: a row per collective, error bars over the iterations."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from analysis.metrics.phase_names import phase_name
from analysis.report.charts.axis import LogScale, Scale, horizontal_axis, log_ticks, round_ticks
from analysis.report.charts.colours import PhaseColours
from analysis.report.charts.drawing import Drawing
from analysis.report.run_figures import RunFigures
from analysis.report.tables.figures import duration, signed_percent, size, time_unit

MAX_ROWS = 40
_ROW = 26.0
_LOG_BEYOND = 40.0
_ITERATION = re.compile(r"^i\d+\.")


@dataclass(frozen=True)
class PredictedCollective:
    """The same collective in every iteration: measured times, and each predictor's answer."""

    name: str
    phase: str
    kind: str
    size_bytes: int
    measured_ns: tuple[int, ...]
    predicted_ns: dict[str, float]

    @property
    def mean_ns(self) -> float:
        return sum(self.measured_ns) / len(self.measured_ns)


def comparisons(figures: RunFigures) -> tuple[PredictedCollective, ...]:
    """Collectives that differ in nothing but the iteration, together, in order of appearance."""
    groups: dict[tuple[str, str, int], list[int]] = {}
    metrics = figures.collectives
    for position, one in enumerate(metrics):
        c = one.collective
        name = _ITERATION.sub("", c.id)
        groups.setdefault((name, c.kind, c.size_bytes), []).append(position)
    found = []
    for (name, kind, size_bytes), chosen in groups.items():
        predicted: dict[str, list[float]] = {}
        for position in chosen:
            each = metrics[position].collective
            row = figures.predicted.get((each.group, each.id), {})
            for predictor, answer in row.items():
                if answer["duration_ns"] is not None:
                    predicted.setdefault(predictor, []).append(answer["duration_ns"])
        found.append(
            PredictedCollective(
                name,
                metrics[chosen[0]].collective.phase,
                kind,
                size_bytes,
                tuple(metrics[position].duration_ns for position in chosen),
                {p: sum(values) / len(values) for p, values in predicted.items()},
            )
        )
    return tuple(found)


def duration_range_ns(rows: Sequence[PredictedCollective]) -> tuple[float, float]:
    """The shortest and the longest time of these rows, measured or predicted."""
    values = [v for row in rows for v in (*row.measured_ns, *row.predicted_ns.values()) if v > 0]
    return min(values, default=1.0), max(values, default=1.0)


def prediction_chart(
    rows: Sequence[PredictedCollective],
    predictors: Sequence[str],
    colours: PhaseColours,
    width: float,
    range_ns: tuple[float, float],
) -> Drawing:
    """Mean measured times with whiskers from the fastest to the slowest iteration; a marker per
    predictor. Bars on a linear axis, dots on a logarithmic one, which is taken where times differ
    by more than 40 times. The axis covers `range_ns`, which runs side by side share."""
    shown = rows[:MAX_ROWS]
    low, high = range_ns
    factor, unit = time_unit(high)
    logarithmic = high > _LOG_BEYOND * low
    labels = _labels(shown)
    left = 24.0 + 6.1 * max(map(len, labels), default=0)
    left = min(left, width * 0.45)
    height = 6 + _ROW * len(shown)
    drawing = Drawing(width, height + 38, "Measured and predicted duration of each collective")
    scale: Scale | LogScale
    if logarithmic:
        scale = LogScale(low * 0.8 / factor, high * 1.1 / factor, left, width - 20)
        ticks = log_ticks(low * 0.8 / factor, high * 1.1 / factor)
    else:
        scale = Scale(0, high * 1.05 / factor, left, width - 20)
        ticks = round_ticks(0, high * 1.05 / factor, 8)
    kind = ", logarithmic" if logarithmic else ""
    horizontal_axis(drawing, scale, ticks, height, f"duration ({unit}{kind})", 2)
    for position, (row, label) in enumerate(zip(shown, labels, strict=True)):
        y = 6 + position * _ROW + _ROW / 2
        drawing.text(left - 8, y + 4, label, "label end")
        mean = scale(row.mean_ns / factor)
        fastest, slowest = (scale(f(row.measured_ns) / factor) for f in (min, max))
        tip = (
            f"{label}, {row.kind}\nmeasured {duration(row.mean_ns)} (mean of "
            f"{len(row.measured_ns)}), {duration(min(row.measured_ns))} to "
            f"{duration(max(row.measured_ns))}"
        )
        css = f"{colours.css(row.phase)} measured"
        if logarithmic:  # a bar's length would say nothing
            drawing.circle(mean, y, 6, css, tip)
        else:
            drawing.rect(left, y - 6, mean - left, 12, css, tip)
        drawing.line(fastest, y, slowest, y, "whisker")
        for end in (fastest, slowest):
            drawing.line(end, y - 4, end, y + 4, "whisker")
        for number, predictor in enumerate(predictors):
            if predictor in row.predicted_ns:
                answer = row.predicted_ns[predictor]
                error = signed_percent(answer / row.mean_ns - 1 if row.mean_ns else None)
                tip = f"{label}\n{predictor} predicts {duration(answer)} ({error})"
                marker(drawing, scale(answer / factor), y, number, tip)
    return drawing


def marker(drawing: Drawing, x: float, y: float, number: int, tip: str = "") -> None:
    """A shape per predictor, so that they differ without colour: diamond, triangle, square, ..."""
    shapes = (
        "M{x} {t}L{r} {y}L{x} {b}L{l} {y}Z",
        "M{x} {t}L{r} {b}L{l} {b}Z",
        "M{l} {t}L{r} {t}L{r} {b}L{l} {b}Z",
        "M{l} {t}L{r} {t}L{x} {b}Z",
        "M{x} {t}L{r} {y}L{x} {y}L{x} {b}L{l} {y}Z",
    )
    values = {"x": x, "y": y, "l": x - 5, "r": x + 5, "t": y - 5, "b": y + 5}
    rounded = {key: f"{value:.1f}" for key, value in values.items()}
    drawing.path(shapes[number % len(shapes)].format(**rounded), "marker", tip)


def _labels(rows: Sequence[PredictedCollective]) -> list[str]:
    """A label per row: its phase and size, its own name where that does not tell rows apart."""
    labels = []
    for row in rows:
        index = row.name.rsplit(".", 1)[-1]
        which = f" #{index}" if index.isdigit() else ""
        labels.append(f"{phase_name(row.phase)}{which} · {size(row.size_bytes)}")
    return [
        label if labels.count(label) == 1 else f"{row.name} · {size(row.size_bytes)}"
        for label, row in zip(labels, rows, strict=True)
    ]
