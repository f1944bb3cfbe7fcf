"""The best bandwidths of one point, as a convex program, solved by linear ones.

LIBRA poses it with B and 1/B as variables whose product is 1, which is not convex, and needs a
commercial solver. Here u stands for 1/B with u >= 1/B, which is convex and loses nothing, as time
grows with u. A collective's time y has y >= bytes * u for each dimension, what is exposed of hidden
ones e >= sum(y) - window for each window of the same end, and everything else is linear. u >= 1/B
is replaced by tangents, which are added where the solution of the linear program (HiGHS, by scipy)
breaks it, until the program's bound from below and the true time of its bandwidths agree: the
result is the optimum to `GAP`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, inf, isinf, log

import numpy as np
from numpy.typing import NDArray

from analysis.design.bounds import Bound
from analysis.design.models.demand import Demand

GAP = 1e-7
_MOST_ROUNDS = 60
_TOLERANCE = 1e-9
"""The tolerance of a solution. HiGHS's own, 1e-7, is as large as the gap."""
_FIRST_TANGENTS = 24
_FIRST_COSTS = 9
_SMALLEST_SHARE = 1e-6
"""The least share of the largest bandwidth that a dimension may have."""


class Unbounded(ValueError):
    """Nothing bounds the bandwidth of this dimension (its index)."""

    def __init__(self, dimension: int) -> None:
        super().__init__(f"nothing bounds the bandwidth of dimension {dimension}")
        self.dimension = dimension


class Infeasible(ValueError):
    """No bandwidths keep all bounds, or reach the time."""


@dataclass(frozen=True, slots=True)
class Multiplier:
    """An active bound, and by how much the objective changes for each unit by which its limit
    grows: GB/s, dollars, or nanoseconds of the time."""

    bound: Bound | None
    per_unit: float


@dataclass(frozen=True, slots=True)
class BestBandwidths:
    """The optimum. `objective` is nanoseconds or dollars without what is fixed; `gap` its relative
    distance from the bound below it."""

    gbytes_per_s: tuple[float, ...]
    time_ns: float
    objective: float
    gap: float
    multipliers: tuple[Multiplier, ...]


def least_time(demand: Demand, bounds: Sequence[Bound], dimensions: int) -> BestBandwidths:
    """The bandwidths of the shortest iteration. Raises Infeasible, Unbounded."""
    return _Program(demand, bounds, dimensions, None, None).solve()


def least_cost(
    demand: Demand, bounds: Sequence[Bound], weights: Sequence[float], time_ns: float
) -> BestBandwidths:
    """The cheapest bandwidths whose iteration takes at most `time_ns`; `weights` are dollars for
    each GB/s. Raises Infeasible, Unbounded."""
    return _Program(demand, bounds, len(weights), tuple(weights), time_ns).solve()


def extreme(
    weights: Sequence[float], bounds: Sequence[Bound], *, most: bool = False
) -> float | None:
    """The least (or most) of a weighted sum of bandwidths that the bounds allow; None where it has
    no end. Raises Infeasible."""
    from scipy.optimize import linprog  # not on top: it takes 0.5 s, of every command

    sign = -1.0 if most else 1.0
    rows, limits = _rows(bounds, len(weights), len(weights))
    found = linprog(
        sign * np.asarray(weights, float), A_ub=rows, b_ub=limits, bounds=(0, None), method="highs"
    )
    if found.status == 3:
        return None
    if found.status != 0:
        raise Infeasible("no bandwidths keep all bounds")
    return sign * float(found.fun or 0.0)


def culprits(bounds: Sequence[Bound], dimensions: int) -> tuple[Bound, ...]:
    """Bounds of which no point keeps all, and every one is needed for that: an irreducible set, by
    leaving out one after the other (Chinneck, "Feasibility and Infeasibility in Optimization",
    2008, the deletion filter). Empty when there are bandwidths that keep all."""
    kept = list(bounds)
    if _feasible(kept, dimensions):
        return ()
    for bound in list(kept):
        fewer = [one for one in kept if one is not bound]
        if not _feasible(fewer, dimensions):
            kept = fewer
    return tuple(kept)


def _feasible(bounds: Sequence[Bound], dimensions: int) -> bool:
    try:
        extreme((0.0,) * dimensions, bounds)
    except Infeasible:
        return False
    return True


Matrix = NDArray[np.float64]


def _rows(bounds: Sequence[Bound], dimensions: int, width: int) -> tuple[Matrix, Matrix]:
    """Rows of A x <= b for all bounds, low ones after high ones."""
    rows, limits = [], []
    for sign in (1.0, -1.0):
        for bound in bounds:
            limit = bound.high if sign > 0 else bound.low
            if not isinf(limit):
                row = np.zeros(width)
                row[:dimensions] = [sign * weight for weight in bound.weights]
                rows.append(row)
                limits.append(sign * limit)
    return np.array(rows).reshape(len(rows), width), np.array(limits)


class _Program:
    """Columns: B of each dimension over its largest, u times that, y of each traffic over the
    reference time, e of each end of windows. All are near 1, as solvers like it."""

    def __init__(
        self,
        demand: Demand,
        bounds: Sequence[Bound],
        dimensions: int,
        weights: tuple[float, ...] | None,
        time_ns: float | None,
        added_ns: Sequence[float] = (),
    ) -> None:
        """`weights` are of the cost, which is the objective; otherwise it is the time, and
        `added_ns` for each GB/s of each dimension."""
        self._demand, self._bounds, self._count = demand, bounds, dimensions
        self._weights, self._limit_ns = weights, time_ns
        self._added_ns = np.array([*added_ns] or [0.0] * dimensions)
        sent = [
            sum(t.times * t.bytes_by_dimension[d] for t in demand.traffic)
            for d in range(dimensions)
        ]
        self._used = [amount > 0 for amount in sent]
        self._most = np.array([self._largest(d, sent[d]) for d in range(dimensions)])
        self._traffic = demand.traffic
        self._at_y = 2 * dimensions
        self._at_e = self._at_y + len(self._traffic)
        self._width = self._at_e + len(demand.ends)
        self._reference_ns = max(
            demand.communication_ns([max(rate, 1e-30) for rate in self._most]), 1e-9
        )

    def _largest(self, dimension: int, sent: float) -> float:
        alone = tuple(float(i == dimension) for i in range(self._count))
        most = extreme(alone, self._bounds, most=True)
        if most is None and (self._limit_ns is not None or not sent):
            # So fast that more of it saves less than a ten-thousandth of the time.
            most = max(1e4 * sent / (self._limit_ns or 1.0), extreme(alone, self._bounds) or 0.0)
        if most is None:
            raise Unbounded(dimension)
        if sent and most <= 0:
            raise Infeasible("a dimension that is used has no bandwidth")
        return max(most, 1e-12)

    def solve(self) -> BestBandwidths:
        from scipy.optimize import linprog

        rows, limits = self._linear()
        for dimension in range(self._count):
            if self._used[dimension]:
                grid = np.geomspace(_SMALLEST_SHARE, 1.0, _FIRST_TANGENTS)
                for point in grid:
                    rows, limits = self._tangent(rows, limits, dimension, float(point))
        objective = self._objective()
        least = [_SMALLEST_SHARE if used else 0.0 for used in self._used]
        # Twice what the bounds allow: multipliers are those of the bounds, not of a column's end.
        columns: list[tuple[float, float | None]] = [(low, 2.0) for low in least]
        columns += [(0.0, None)] * (self._width - self._count)
        best: Matrix | None = None
        for _ in range(_MOST_ROUNDS):
            found = linprog(
                objective,
                A_ub=rows,
                b_ub=limits,
                bounds=columns,
                method="highs",
                options={
                    "primal_feasibility_tolerance": _TOLERANCE,
                    "dual_feasibility_tolerance": _TOLERANCE,
                },
            )
            if found.status != 0 or found.x is None:
                raise Infeasible("no bandwidths keep all bounds")
            bound = float(found.fun or 0.0)
            shares = np.asarray(found.x[: self._count])
            looked = [shares]
            # Where many bandwidths seem as good, solutions jump from one end of these to the other.
            # Halfway to the best that is known the true time is less than at either, and cuts more.
            if best is not None:
                looked += [(best + shares) / 2, best]
            if self._weights is None:
                best = min(looked, key=lambda each: self._gap(each * self._most, bound))
            else:
                best = shares  # the cost is linear: only its time can be wrong
            gap = self._gap(best * self._most, bound)
            if gap <= GAP:
                break
            for dimension in range(self._count):
                if self._used[dimension]:
                    for at in (float(each[dimension]) for each in looked[:2]):
                        rows, limits = self._tangent(rows, limits, dimension, at)
        assert best is not None
        return self._answer([float(rate) for rate in best * self._most], gap, found)

    def _linear(self) -> tuple[Matrix, Matrix]:
        """Rows that do not change: bounds, times of traffic, windows, and the time to reach."""
        rows, limits = _rows(self._bounds, self._count, self._width)
        rows[:, : self._count] *= self._most
        self._bound_rows = len(rows)
        more, more_limits = [], []
        for index, one in enumerate(self._traffic):
            for dimension, sent in enumerate(one.bytes_by_dimension):
                if sent:
                    row = np.zeros(self._width)
                    row[self._count + dimension] = sent / self._most[dimension] / self._reference_ns
                    row[self._at_y + index] = -1.0
                    more.append(row)
                    more_limits.append(-one.latency_ns / self._reference_ns)
        ends = self._demand.ends
        for window in self._demand.windows:
            row = np.zeros(self._width)
            for index in self._demand.behind(window):
                row[self._at_y + index] = self._traffic[index].times
            row[self._at_e + ends.index(window.end)] = -1.0
            more.append(row)
            more_limits.append(window.length_ns / self._reference_ns)
        self._time_row: int | None = None
        if self._limit_ns is not None:
            self._time_row = len(rows) + len(more)
            more.append(self._time())
            left_ns = self._limit_ns - self._demand.compute_ns
            more_limits.append(left_ns / self._reference_ns)
        if not more:
            return rows, limits
        return np.vstack([rows, np.array(more)]), np.concatenate([limits, more_limits])

    def _tangent(
        self, rows: Matrix, limits: Matrix, dimension: int, share: float
    ) -> tuple[Matrix, Matrix]:
        """u >= 2/b - B/b^2 (with B and u in shares), divided by 2/b to be near 1."""
        row = np.zeros(self._width)
        row[dimension] = -0.5 / share
        row[self._count + dimension] = -0.5 * share
        return np.vstack([rows, row]), np.append(limits, -1.0)

    def _time(self) -> NDArray[np.float64]:
        row = np.zeros(self._width)
        for index, one in enumerate(self._traffic):
            if one.window is None:
                row[self._at_y + index] = one.times
        row[self._at_e :] = 1.0
        return row

    def _objective(self) -> NDArray[np.float64]:
        if self._weights is None:
            row = self._time()
            row[: self._count] = self._added_ns * self._most / self._reference_ns
            return row
        row = np.zeros(self._width)
        row[: self._count] = np.array(self._weights) * self._most
        scale = float(row.sum())
        self._cost_scale = scale if scale > 0 else 1.0
        return row / self._cost_scale

    def _gap(self, rates: Matrix, bound: float) -> float:
        """The true objective beside the program's, which is below it, as a part of the iteration:
        where all traffic hides, what is exposed is nothing, and no measure."""
        true_ns = self._demand.exposed_ns(rates.tolist())
        gap = 0.0
        if self._limit_ns is not None:
            left_ns = self._limit_ns - self._demand.compute_ns
            gap = max(0.0, true_ns - left_ns) / max(left_ns, 1e-12)
        if self._weights is None:
            true_ns += float(self._added_ns @ rates)
            over_ns = true_ns - bound * self._reference_ns
            gap = max(gap, over_ns / max(self._demand.compute_ns + true_ns, 1e-12))
        return gap

    def _answer(self, rates: list[float], gap: float, found: object) -> BestBandwidths:
        marginals = found.ineqlin.marginals  # type: ignore[attr-defined]
        scale = self._reference_ns if self._weights is None else self._cost_scale
        multipliers = []
        finite = [b for b in self._bounds if not isinf(b.high)]
        finite_low = [b for b in self._bounds if not isinf(b.low)]
        signs = [1.0] * len(finite) + [-1.0] * len(finite_low)
        per_unit: dict[int, float] = {}
        for bound, sign, marginal in zip(
            [*finite, *finite_low], signs, marginals[: self._bound_rows], strict=True
        ):
            change = float(marginal * scale * sign)
            per_unit[id(bound)] = per_unit.get(id(bound), 0.0) + change
        for bound in self._bounds:
            if bound.active_at(rates):
                multipliers.append(Multiplier(bound, per_unit[id(bound)]))
        if self._time_row is not None:
            change = float(marginals[self._time_row] * scale / self._reference_ns)
            multipliers.append(Multiplier(None, change))
        time_ns = self._demand.time_ns(rates)
        objective = time_ns
        if self._weights is not None:
            pairs = zip(self._weights, rates, strict=True)
            objective = sum(weight * rate for weight, rate in pairs)
        return BestBandwidths(tuple(rates), time_ns, objective, gap, tuple(multipliers))


def best_product(
    demand: Demand,
    bounds: Sequence[Bound],
    weights: Sequence[float],
    fixed_cost: float,
    time_ns: float | None = None,
) -> BestBandwidths:
    """The bandwidths of the least time x cost (LIBRA's second objective), within `time_ns`.

    The least time for each cost is convex in it, so the least product is found along the cost:
    on a grid first, then by Brent's method around the best of it. It falls and then grows with the
    cost, so that where it is too slow the cheapest that is fast enough is best. `objective` is
    nanoseconds times dollars. Raises Infeasible, Unbounded.
    """
    best = _along_costs(demand, bounds, weights, fixed_cost)
    if time_ns is not None and best.time_ns > time_ns:
        best = least_cost(demand, bounds, weights, time_ns)
    else:
        time_ns = None
    cost = fixed_cost + _spent(weights, best)
    value = best.time_ns * cost
    if not cost:
        return replace(best, objective=value, multipliers=())
    # Near the best, t c changes as t c0 + t0 c: what that hangs on is linear.
    added_ns = [weight * best.time_ns / cost for weight in weights]
    near = _Program(demand, bounds, len(weights), None, time_ns, added_ns).solve()
    found = near.time_ns * (fixed_cost + _spent(weights, near))
    if found < value and (time_ns is None or near.time_ns <= time_ns):
        best, value = near, found
    multipliers = tuple(Multiplier(one.bound, one.per_unit * cost) for one in near.multipliers)
    return replace(best, objective=value, multipliers=multipliers)


def _spent(weights: Sequence[float], found: BestBandwidths) -> float:
    return sum(w * rate for w, rate in zip(weights, found.gbytes_per_s, strict=True))


def _along_costs(
    demand: Demand, bounds: Sequence[Bound], weights: Sequence[float], fixed_cost: float
) -> BestBandwidths:
    from scipy.optimize import minimize_scalar

    best = least_time(demand, bounds, len(weights))
    highest = _spent(weights, best)
    lowest = max(extreme(weights, bounds) or 0.0, highest * 1e-3)
    value = best.time_ns * (highest + fixed_cost)
    if highest <= 0 or lowest >= highest:
        return best

    def look(logarithm: float) -> float:
        nonlocal best, value
        limit = Bound("cost", (), "", tuple(weights), high=exp(logarithm))
        try:
            found = least_time(demand, (*bounds, limit), len(weights))
        except Infeasible:
            return inf
        looked = found.time_ns * (_spent(weights, found) + fixed_cost)
        if looked < value:
            best, value = found, looked
        return looked

    grid = [float(one) for one in np.linspace(log(lowest), log(highest), _FIRST_COSTS)]
    looked = [look(one) for one in grid]
    position = min(range(len(grid)), key=lambda i: looked[i])
    around = grid[max(0, position - 1)], grid[min(len(grid) - 1, position + 1)]
    minimize_scalar(look, bounds=around, method="bounded", options={"xatol": 1e-4})
    return best
