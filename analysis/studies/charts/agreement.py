"""Predicted against measured, where a case has both."""

from __future__ import annotations

from analysis.report.charts.axis import LogScale, horizontal_axis, log_ticks, vertical_axis
from analysis.report.charts.drawing import Drawing
from analysis.report.tables.figures import duration, signed_percent, time_unit
from analysis.studies.cases import TIME, StudyCases, value_of

_HEIGHT = 340.0
_TOP = 24.0
_LEFT = 56.0


def agreement_chart(study: StudyCases, width: float) -> Drawing | None:
    """A dot for each case; on the line, prediction and measurement are the same. None where no
    case has both."""
    both = [
        (case, value_of(case, TIME), float(case.predicted_ns or 0))
        for case in study.answered(TIME)
        if case.error is not None and case.predicted_ns
    ]
    if not both:
        return None
    values = [value for _, measured, predicted in both for value in (measured, predicted)]
    factor, unit = time_unit(max(values))
    low, high = min(values) * 0.9 / factor, max(values) * 1.1 / factor
    bottom, right = _TOP + _HEIGHT, min(width - 10, _LEFT + 2 * _HEIGHT)
    drawing = Drawing(width, bottom + 40, "Predicted against measured iteration time")
    across, up = LogScale(low, high, _LEFT, right), LogScale(low, high, bottom, _TOP)
    ticks = log_ticks(low, high)
    horizontal_axis(drawing, across, ticks, bottom, f"measured ({unit}, logarithmic)", _TOP)
    vertical_axis(drawing, up, ticks, _LEFT, f"{study.predictor} predicts ({unit})", right)
    drawing.line(across(low), up(low), across(high), up(high), "threshold")
    for case, measured, predicted in both:
        tip = (
            f"case {case.number}, {case.ranks} ranks\nmeasured {duration(measured)}, predicted "
            f"{duration(predicted)} ({signed_percent(case.error)})"
        )
        drawing.circle(across(measured / factor), up(predicted / factor), 4, "p0", tip)
    return drawing
