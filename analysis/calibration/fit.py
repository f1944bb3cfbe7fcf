"""Robust least squares of a predictor's parameters, with confidence and identifiability."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict

from analysis.calibration.observations import CalibrationError, Observation
from analysis.predict.engines.wire import Floats
from analysis.predict.interface import Predictor, load_predictor
from analysis.predict.parameters import Range
from collectives.call import CollectiveError

_SOFT = 0.03
"""Residuals beyond this (3% of log ratio) count less than squared: scipy's soft_l1."""

_NO_INFLUENCE = 2e-4
"""A parameter that moves no prediction by more than this over its step is not identifiable."""

_COLLINEAR = 0.999
"""Nor is one whose effect a combination of the others reproduces this well (R squared)."""

_STEP = 0.03

_CONFIDENCE = 0.95

_CALLS_PER_PARAMETER = 3


class Fitted(BaseModel):
    """A parameter's value with its 95% interval; `fixed` says why it kept its ideal value."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    value: float
    low: float
    high: float
    fixed: str | None = None


LoadPredictor = Callable[[str, Mapping[str, float] | None], Predictor]
"""A predictor by name, with values of its parameters or as it is."""


def fit_predictor(
    name: str, observations: Sequence[Observation], load: LoadPredictor = load_predictor
) -> dict[str, Fitted]:
    """Fit every parameter of `name` that the observations determine.

    Minimises soft_l1 of ln(predicted/measured). Where the ideal explains the observations as well
    as chance would let any fit, it is kept. Raises CalibrationError when the predictor has no
    parameters to fit or predicts none of the observations.
    """
    ranges: Mapping[str, Range] | None = getattr(load(name, None), "calibratable", None)
    if not ranges:
        raise CalibrationError(f"predictor {name!r} has no parameters to fit")
    usable = _predictable(load(name, None), observations)
    names = tuple(ranges)
    residuals = _Residuals(partial(load, name), names, ranges, usable)
    fixed = _not_identifiable(residuals)
    free = [i for i, parameter in enumerate(names) if parameter not in fixed]
    if not free:
        raise CalibrationError(f"predictor {name!r}: these runs determine none of its parameters")
    ideal = _soft_l1(residuals(np.zeros(len(names))))
    point, widths, loss = _solve(residuals, free, len(usable))
    found: dict[int, Fitted] = {}
    for i, step, width in zip(free, point.tolist(), widths.tolist(), strict=True):
        value, low, high = (residuals.value(i, step + off) for off in (0.0, -width, width))
        found[i] = Fitted(value=value, low=low, high=high)
    if not _explains(ideal, loss, len(free), residuals.distinct):
        for i, fit in found.items():
            fixed[names[i]] = f"the fit is no better than chance ({fit.low:.4g} .. {fit.high:.4g})"
        found = {}
    for i, parameter in enumerate(names):
        if i not in found:
            value = ranges[parameter].ideal
            found[i] = Fitted(value=value, low=value, high=value, fixed=fixed[parameter])
    return {parameter: found[i] for i, parameter in enumerate(names)}


def _explains(before: float, after: float, parameters: int, distinct: int) -> bool:
    """Whether as many parameters make the loss smaller by more than chance does (F test, 95%).

    Repetitions of a call are not counted as observations: in virtual time they say the same again.
    Fewer calls than `_CALLS_PER_PARAMETER` cannot tell, and the fit is taken.
    """
    from scipy.stats import f as fisher  # not on top: it takes 0.6 s, of every command

    if distinct < _CALLS_PER_PARAMETER * parameters:
        return True
    freedom = distinct - parameters
    if after <= 0.0:
        return before > 0.0
    ratio = ((before - after) / parameters) / (after / freedom)
    return ratio > float(fisher.ppf(_CONFIDENCE, parameters, freedom))


def _solve(
    residuals: _Residuals, free: Sequence[int], observations: int
) -> tuple[Floats, Floats, float]:
    """(solution, half width of its interval) by free parameter, in their scales; and the loss."""
    from scipy.optimize import least_squares

    ideal = np.zeros(residuals.parameters)
    low, high = residuals.bounds

    def of_free(point: Floats) -> Floats:
        full = ideal.copy()
        full[free] = point
        return residuals(full)

    def jacobian(point: Floats) -> Floats:
        # Differences wide enough to see past the kinks of who is first in a queue: 30 ns, or 3%.
        here = of_free(point)
        columns = [(of_free(point + _STEP * axis) - here) / _STEP for axis in np.eye(len(point))]
        return np.stack(columns, axis=1)

    # Far from the solution the robust loss is nearly flat, so squares find the way first.
    start = np.zeros(len(free))
    stages: tuple[tuple[Literal["linear", "soft_l1"], int], ...] = (("linear", 8), ("soft_l1", 25))
    for loss, evaluations in stages:
        solution = least_squares(
            of_free,
            start,
            jac=jacobian,
            bounds=(low[free], high[free]),
            loss=loss,
            f_scale=_SOFT,
            xtol=1e-4,
            ftol=1e-6,
            max_nfev=evaluations,
        )
        start = solution.x
    widths = _half_widths(solution.jac, float(solution.cost), observations)
    return np.asarray(solution.x), widths, float(solution.cost)


class _Residuals:
    """ln(predicted/measured) against parameters as steps of their natural scale from the ideal."""

    def __init__(
        self,
        load: Callable[[Mapping[str, float]], Predictor],
        names: Sequence[str],
        ranges: Mapping[str, Range],
        observations: Sequence[Observation],
    ) -> None:
        self._load = load
        self._names = names
        self._ranges = [ranges[parameter] for parameter in names]
        # An additive parameter is felt in microseconds, a factor as a share of itself.
        self.scale = [1000.0 if r.ideal == 0 else r.ideal for r in self._ranges]
        self._measured = np.log([float(o.measured_ns) for o in observations])
        distinct = {(id(o.setting), o.call): o for o in observations}
        self._distinct = list(distinct.values())
        position = {key: i for i, key in enumerate(distinct)}
        self._last: tuple[Floats, Floats] | None = None
        self._which = np.array([position[id(o.setting), o.call] for o in observations])

    @property
    def parameters(self) -> int:
        return len(self._names)

    @property
    def distinct(self) -> int:
        """How many different calls were observed."""
        return len(self._distinct)

    @property
    def bounds(self) -> tuple[Floats, Floats]:
        low = [(r.low - r.ideal) / s for r, s in zip(self._ranges, self.scale, strict=True)]
        high = [(r.high - r.ideal) / s for r, s in zip(self._ranges, self.scale, strict=True)]
        return np.array(low), np.array(high)

    def value(self, index: int, step: float) -> float:
        return self._ranges[index].ideal + step * self.scale[index]

    def __call__(self, point: Floats) -> Floats:
        if self._last is not None and np.array_equal(point, self._last[0]):
            return self._last[1]
        values = {n: self.value(i, float(point[i])) for i, n in enumerate(self._names)}
        predict = duration_of(self._load(values))
        predicted = np.array([predict(o) for o in self._distinct])
        found: Floats = np.log(np.maximum(predicted, 1.0))[self._which] - self._measured
        self._last = (point.copy(), found)
        return found


def duration_of(predictor: Predictor) -> Callable[[Observation], float]:
    """Duration of an observation's call, in finer steps where the predictor has them."""
    exact: Any = getattr(predictor, "duration_ns", predictor.predict)
    return lambda o: float(exact(o.setting, o.call))


def _predictable(predictor: Predictor, observations: Sequence[Observation]) -> list[Observation]:
    usable = []
    refusals: dict[str, None] = {}
    for observation in observations:
        try:
            predictor.predict(observation.setting, observation.call)
        except CollectiveError as error:
            refusals[str(error)] = None
            continue
        usable.append(observation)
    if not usable:
        raise CalibrationError(
            f"predictor {predictor.name!r} predicts none of these: {'; '.join(refusals)}"
        )
    return usable


def _not_identifiable(residuals: _Residuals) -> dict[str, str]:
    """Parameters that these observations do not determine, with the reason.

    The Jacobian at the ideal, over steps of 20 ns or 2%: a column without entries has no influence;
    one that the others span cannot be told from them. The last of such a group is dropped first.
    """
    names = list(residuals._names)
    base = residuals(np.zeros(len(names)))
    jacobian = np.empty((len(base), len(names)))
    for i in range(len(names)):
        point = np.zeros(len(names))
        point[i] = 0.02
        jacobian[:, i] = residuals(point) - base
    fixed = {
        name: "it changes no prediction of these runs"
        for i, name in enumerate(names)
        if np.abs(jacobian[:, i]).max(initial=0.0) < _NO_INFLUENCE
    }
    for i in reversed(range(len(names))):
        others = [j for j, n in enumerate(names) if j != i and n not in fixed]
        if names[i] in fixed or not others:
            continue
        column = jacobian[:, i]
        solution = np.linalg.lstsq(jacobian[:, others], column, rcond=None)[0]
        left = column - jacobian[:, others] @ solution
        explained = 1 - float(left @ left) / float(column @ column)
        if explained > _COLLINEAR:
            fixed[names[i]] = (
                f"the same effect on these runs as {', '.join(names[j] for j in others)}"
            )
    return fixed


def _half_widths(jacobian: Any, cost: float, observations: int) -> Floats:
    """Half of the 95% intervals, from the curvature of the loss at the solution.

    scipy returns the Jacobian already weighted by the robust loss, and the cost is half the sum of
    squares that a Gaussian would have.
    """
    from scipy.stats import t as student

    freedom = max(1, observations - jacobian.shape[1])
    covariance = np.linalg.pinv(jacobian.T @ jacobian) * (2 * cost / freedom)
    quantile = float(student.ppf(0.5 + _CONFIDENCE / 2, freedom))
    found: Floats = quantile * np.sqrt(np.maximum(np.diag(covariance), 0.0))
    return found


def _soft_l1(residual: Floats) -> float:
    """As scipy's least_squares counts it: half of the sum of rho."""
    return float((_SOFT**2 * (np.sqrt(1 + (residual / _SOFT) ** 2) - 1)).sum())
