"""The parts of the iterations' time as stacked bars: exposed above, overlapped beside."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.metrics.iteration import IterationBreakdown
from analysis.metrics.phase_names import phase_name
from analysis.report.charts.axis import Scale, horizontal_axis, round_ticks
from analysis.report.charts.colours import PhaseColours
from analysis.report.charts.drawing import Drawing
from analysis.report.tables.figures import duration, share, time_unit

_BAR, _THIN, _GAP = 18.0, 6.0, 12.0


def breakdown_chart(
    bars: Sequence[tuple[str, IterationBreakdown]],
    colours: PhaseColours,
    width: float,
    longest_ns: float,
) -> Drawing:
    """One labelled bar per iteration: compute, exposed communication by phase, the rest; under it
    a thin bar of the communication that computation hid. Means over the ranks. The axis ends at
    `longest_ns`, which runs side by side share."""
    longest = longest_ns or 1.0
    factor, unit = time_unit(longest)
    left = 24.0 + 6.6 * max((len(label) for label, _ in bars), default=0)
    height = 6 + len(bars) * (_BAR + _THIN + _GAP)
    drawing = Drawing(width, height + 38, "Iteration time by compute and exposed communication")
    scale = Scale(0, longest / factor, left, width - 62)
    horizontal_axis(
        drawing, scale, round_ticks(0, longest / factor, 8), height, f"mean over ranks ({unit})", 2
    )
    for position, (label, breakdown) in enumerate(bars):
        y = 6 + position * (_BAR + _THIN + _GAP)
        drawing.text(left - 8, y + 13, label, "label end")
        _stack(drawing, scale, factor, y, label, breakdown, colours)
        total = breakdown.mean_duration_ns
        drawing.text(scale(total / factor) + 6, y + 13, duration(total), "label")
    return drawing


def _stack(
    drawing: Drawing,
    scale: Scale,
    factor: float,
    y: float,
    label: str,
    breakdown: IterationBreakdown,
    colours: PhaseColours,
) -> None:
    total = breakdown.mean_duration_ns or 1.0
    parts = [("compute", "compute", breakdown.mean_compute_ns)]
    parts += [
        (f"exposed {phase_name(phase)}", colours.css(phase), breakdown.mean_exposed_ns(phase))
        for phase in colours.ordered(breakdown.phases)
    ]
    parts.append(("other", "other", breakdown.mean_other_ns))
    at = 0.0
    for name, css, time_ns in parts:
        if time_ns > 0:
            x, end = scale(at / factor), scale((at + time_ns) / factor)
            tip = f"{label}: {name}\n{duration(time_ns)}, {share(time_ns / total)}"
            drawing.rect(x, y, max(end - x - 0.7, 0.4), _BAR, css, tip)
            at += time_ns
    at = 0.0
    for phase in colours.ordered(breakdown.phases):
        time_ns = breakdown.mean_overlapped_ns(phase)
        if time_ns > 0:
            x, end = scale(at / factor), scale((at + time_ns) / factor)
            tip = (
                f"{label}: {phase_name(phase)}, overlapped with compute\n"
                f"{duration(time_ns)}: this much was hidden"
            )
            drawing.rect(
                x,
                y + _BAR + 2,
                max(end - x - 0.7, 0.4),
                _THIN - 2,
                f"{colours.css(phase)} flight",
                tip,
            )
            at += time_ns
