"""The search: every discrete choice, with pruning, and the best bandwidths of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf, isinf, log

import numpy as np

from analysis.design.bandwidth_program import (
    BestBandwidths,
    Infeasible,
    Multiplier,
    Unbounded,
    best_product,
    culprits,
    extreme,
    least_cost,
    least_time,
)
from analysis.design.bounds import Bound, bounds_of, cost_weights
from analysis.design.network import network_cost
from analysis.design.point import Impossible, Point, Work
from analysis.design.points import host_cost, points_of, work_of
from analysis.report.tables.figures import duration, number, size
from analysis.studies.cases import pareto_front
from topologies.spec.design.document import DesignFile
from topologies.spec.errors import Key, Problem, SpecError
from topologies.units import format_time

MOST_POINTS = 200_000
_FRONT_COSTS = 16
_FRONT_POINTS = 8


@dataclass(frozen=True, slots=True)
class Solution:
    """A point with its best bandwidths. `objective` is in the unit of the design's: nanoseconds,
    dollars, or their product."""

    point: Point
    work: Work
    gbytes_per_s: tuple[float, ...]
    cost: float
    objective: float
    gap: float = 0.0
    multipliers: tuple[Multiplier, ...] = ()

    @property
    def time_ns(self) -> float:
        """The duration of an iteration."""
        return self.work.demand.time_ns(self.gbytes_per_s)

    @property
    def exposed_ns(self) -> float:
        """The communication in it that ranks wait for."""
        return self.work.demand.exposed_ns(self.gbytes_per_s)


@dataclass(frozen=True, slots=True)
class FrontPoint:
    """A point of the Pareto front of time against cost."""

    cost: float
    time_ns: float
    gbytes_per_s: tuple[float, ...]
    words: str


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a search: the best, all that were solved (the best first), the front, and
    how many points there were, could not be, and were pruned. `impossible` has the nearest miss of
    each constraint that points broke, with how many did."""

    file: DesignFile
    best: Solution
    solved: tuple[Solution, ...]
    front: tuple[FrontPoint, ...]
    points: int
    pruned: int
    impossible: tuple[tuple[Impossible, int], ...]


@dataclass(frozen=True, slots=True)
class _Bounded:
    """A point with what bounds it: the fastest and the cheapest that it could be."""

    point: Point
    work: Work
    bounds: tuple[Bound, ...]
    fixed_cost: float
    least_ns: float
    least_cost: float


@dataclass
class _Misses:
    """Why points could not be."""

    nearest: dict[str, Impossible] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, miss: Impossible) -> None:
        self.counts[miss.constraint] = self.counts.get(miss.constraint, 0) + 1
        before = self.nearest.get(miss.constraint)
        if before is None or miss.shortfall < before.shortfall:
            self.nearest[miss.constraint] = miss

    def all(self) -> tuple[tuple[Impossible, int], ...]:
        return tuple((miss, self.counts[name]) for name, miss in self.nearest.items())


def search(
    file: DesignFile, progress: Callable[[int, int], None] = lambda done, total: None
) -> Found:
    """Find the best point of a design. `progress` is told how many points are done, of how many.

    A solved point prunes a point with free bandwidths when it is as fast and as cheap as that one
    could be: the pruned one is neither best nor on the front. Raises SpecError that names the
    constraint that cannot hold when there is no point.
    """
    sections = file.sections
    points = list(points_of(sections))
    if not points:
        raise _no_sizes(file)
    if len(points) > MOST_POINTS:
        expected = f"expected lists with at most {MOST_POINTS} combinations"
        raise file.problem(("design",), f"{len(points)} combinations", expected)
    misses = _Misses()
    bounded = sorted(_bounded(file, points, misses), key=lambda one: one.least_ns)
    pruned = 0
    solved: list[Solution] = []
    for index, one in enumerate(bounded):
        progress(len(points) - len(bounded) + index, len(points))
        free = not all(dimension.fixed for dimension in one.point.dimensions)
        if free and any(s.time_ns <= one.least_ns and s.cost <= one.least_cost for s in solved):
            pruned += 1
            continue
        try:
            solved.append(_solve(file, one))
        except Infeasible:
            misses.add(_too_slow(file, one))
    progress(len(points), len(points))
    if not solved:
        raise _no_point(file, misses)
    solved.sort(key=lambda s: s.objective)
    front = _front(file, solved)
    return Found(file, solved[0], tuple(solved), front, len(points), pruned, misses.all())


def solve_point(file: DesignFile, point: Point, work: Work | None = None) -> Solution:
    """The best bandwidths of one point, whose work is that of the file's workload or what is given.
    Raises SpecError when it can keep not all constraints."""
    misses = _Misses()
    for one in _bounded(file, [point], misses, work):
        try:
            return _solve(file, one)
        except Infeasible:
            misses.add(_too_slow(file, one))
    raise _no_point(file, misses)


def _bounded(
    file: DesignFile, points: Sequence[Point], misses: _Misses, given: Work | None = None
) -> list[_Bounded]:
    """The points that their own constraints allow; `given` is their work if it is not that of the
    file's workload. Raises SpecError for a bandwidth that nothing
    bounds."""
    sections = file.sections
    known: dict[object, tuple[tuple[Bound, ...], tuple[float, ...], float, Impossible | None]] = {}
    found = []
    for point in points:
        work = given or work_of(sections, point)
        if work is None:
            misses.add(_does_not_divide(point))
            continue
        host = point.host
        if host is not None and work.footprint_bytes > host.capacity_bytes:
            misses.add(_too_large(point, work))
            continue
        fixed = host_cost(sections, point) + network_cost(
            point.dimensions, (0.0,) * len(point.sizes)
        )
        used = tuple(
            any(one.bytes_by_dimension[d] for one in work.demand.traffic)
            for d in range(len(point.sizes))
        )
        key = (point.dimensions, fixed, used)
        if key not in known:
            known[key] = _network(file, point, fixed, used)
        bounds, fastest, cheapest, miss = known[key]
        if miss is not None:
            misses.add(miss)
            continue
        least_ns = work.demand.time_ns(fastest)
        found.append(_Bounded(point, work, bounds, fixed, least_ns, fixed + cheapest))
    return found


def _network(
    file: DesignFile, point: Point, fixed_cost: float, used: tuple[bool, ...]
) -> tuple[tuple[Bound, ...], tuple[float, ...], float, Impossible | None]:
    """The bounds of a network, the most that each bandwidth may be, the least that all cost; or
    which bounds contradict each other."""
    constraints = file.sections.design.constraints
    bounds = bounds_of(constraints, point.dimensions, fixed_cost)
    count = len(point.dimensions)
    wrong = culprits(bounds, count)
    if wrong:
        return bounds, (), 0.0, _contradiction(wrong, point, fixed_cost)
    fastest = []
    for index, dimension in enumerate(point.dimensions):
        alone = tuple(float(i == index) for i in range(count))
        most = extreme(alone, bounds, most=True)
        if most is None:
            if used[index] and file.sections.design.objective != "cost":
                expected = (
                    "expected something that bounds it: to, constraints.total_bandwidth, a linear "
                    "constraint or constraints.cost with a price"
                )
                where: Key = ("design", "dimensions", index, "bandwidth")
                raise file.problem(where, f"no upper limit of {dimension.name}", expected)
            most = inf
        if used[index] and not most > 0:
            where = ("design", "dimensions", index)
            found = f"no bandwidth is left for {dimension.name}"
            expected = "expected constraints that leave it some: collectives use it"
            return bounds, (), 0.0, Impossible("bandwidth", where, found, expected, inf)
        fastest.append(max(most, 1e-12))
    return bounds, tuple(fastest), extreme(cost_weights(point.dimensions), bounds) or 0.0, None


def _solve(file: DesignFile, one: _Bounded) -> Solution:
    """Raises Infeasible when the time cannot be reached."""
    design, demand = file.sections.design, one.work.demand
    limit_ns = design.constraints.time_ns
    weights = cost_weights(one.point.dimensions)
    if all(dimension.fixed for dimension in one.point.dimensions):
        rates = tuple(d.least_gbytes_per_s for d in one.point.dimensions)
        best = BestBandwidths(rates, demand.time_ns(rates), 0.0, 0.0, ())
    elif not demand.traffic:
        raise Infeasible("nothing is sent: there is no best bandwidth")
    else:
        try:
            best = _best(design.objective, one, weights, limit_ns)
        except Unbounded as error:
            key = ("design", "dimensions", error.dimension, "bandwidth")
            expected = "expected something that bounds it: collectives use it"
            raise file.problem(key, "no upper limit", expected) from error
    if limit_ns is not None and best.time_ns > limit_ns * (1 + 1e-6):
        raise Infeasible("the iteration takes longer than it may")
    rates = best.gbytes_per_s
    cost = one.fixed_cost + sum(w * rate for w, rate in zip(weights, rates, strict=True))
    objective = {"time": best.time_ns, "cost": cost, "time-x-cost": best.time_ns * cost}
    return Solution(
        one.point,
        one.work,
        rates,
        cost,
        objective[design.objective],
        best.gap,
        best.multipliers,
    )


def _best(
    objective: str, one: _Bounded, weights: tuple[float, ...], limit_ns: int | None
) -> BestBandwidths:
    count = len(weights)
    if objective == "cost":
        return least_cost(one.work.demand, one.bounds, weights, float(limit_ns or inf))
    fastest = least_time(one.work.demand, one.bounds, count)
    if objective == "time" or (limit_ns is not None and fastest.time_ns > limit_ns):
        return fastest
    return best_product(one.work.demand, one.bounds, weights, one.fixed_cost, limit_ns)


def _front(file: DesignFile, solved: Sequence[Solution]) -> tuple[FrontPoint, ...]:
    """The Pareto front: all solutions, and of those nearest to it whose bandwidths are free, the
    least time for costs from the least to their own."""
    points = [FrontPoint(s.cost, s.time_ns, s.gbytes_per_s, s.point.words) for s in solved]
    free = [s for s in solved if not all(d.fixed for d in s.point.dimensions)]
    for solution in sorted(free, key=lambda s: s.time_ns)[:_FRONT_POINTS]:
        points += _along_cost(file, solution)
    chosen = pareto_front([(one.cost, one.time_ns) for one in points])
    return tuple(points[position] for position in chosen)


def _along_cost(file: DesignFile, solution: Solution) -> list[FrontPoint]:
    dimensions = solution.point.dimensions
    weights = cost_weights(dimensions)
    fixed = solution.cost - sum(
        w * rate for w, rate in zip(weights, solution.gbytes_per_s, strict=True)
    )
    bounds = bounds_of(file.sections.design.constraints, dimensions, fixed)
    demand = solution.work.demand
    try:
        fastest = least_time(demand, bounds, len(weights))
    except (Infeasible, Unbounded):
        return []
    highest = sum(w * rate for w, rate in zip(weights, fastest.gbytes_per_s, strict=True))
    lowest = max(extreme(weights, bounds) or 0.0, highest / 30)
    if not 0 < lowest < highest:
        return []
    found = []
    for logarithm in np.linspace(log(lowest), log(highest), _FRONT_COSTS):
        limit = Bound("cost", (), "", weights, high=float(np.exp(logarithm)))
        try:
            best = least_time(demand, (*bounds, limit), len(weights))
        except Infeasible:
            continue
        spent = sum(w * rate for w, rate in zip(weights, best.gbytes_per_s, strict=True))
        words = solution.point.words
        found.append(FrontPoint(fixed + spent, best.time_ns, best.gbytes_per_s, words))
    return found


def _does_not_divide(point: Point) -> Impossible:
    key = ("design", "strategy") if point.strategy is not None else ("design", "dimensions")
    expected = (
        "expected degrees that divide the sizes of dimensions, the innermost first, and the model"
    )
    return Impossible("degrees", key, point.words or str(list(point.sizes)), expected, inf)


def _too_large(point: Point, work: Work) -> Impossible:
    assert point.host is not None
    capacity = point.host.capacity_bytes
    parts = ", ".join(f"{name} {size(of)}" for name, of in work.parts)
    expected = (
        f"expected at least {size(work.footprint_bytes)}: the smallest footprint is that of "
        f"{point.words or 'the only point'} ({parts})"
    )
    key = ("design", "host", "memory")
    shortfall = work.footprint_bytes / capacity - 1
    return Impossible("memory", key, size(capacity), expected, shortfall)


def _too_slow(file: DesignFile, one: _Bounded) -> Impossible:
    limit_ns = file.sections.design.constraints.time_ns or 0
    try:
        reached_ns = least_time(one.work.demand, one.bounds, len(one.point.sizes)).time_ns
    except (Infeasible, Unbounded):
        reached_ns = one.least_ns
    expected = f"expected at least {duration(reached_ns)}, the fastest that any point is"
    key = ("design", "constraints", "time")
    found = format_time(limit_ns)
    return Impossible("time", key, found, expected, reached_ns / max(limit_ns, 1) - 1)


def _contradiction(wrong: Sequence[Bound], point: Point, fixed_cost: float) -> Impossible:
    first, *others = wrong
    if first.name == "cost" and first.high < 0:
        least = f"the hosts alone cost {number(fixed_cost)}"
        found = f"{number(first.high + fixed_cost)}"
        return Impossible("cost", first.key, found, f"expected more: {least}", -first.high)
    if not others:
        expected = "expected a limit that bandwidths from 0 on can keep"
        return Impossible(first.name, first.key, first.value, expected, 0.0)
    told = "; ".join(dict.fromkeys(f"{_told(one)}" for one in others))
    last = f"expected a limit that goes with {told}: no bandwidths keep all of them"
    bounds = [one for one in wrong if not isinf(one.high)]
    shortfall = min((one.high for one in bounds), default=0.0)
    return Impossible(first.name, first.key, first.value, last, -shortfall)


def _told(bound: Bound) -> str:
    return bound.value if bound.key[-1:] != ("total_bandwidth",) else f"{bound.name} {bound.value}"


def _no_point(file: DesignFile, misses: _Misses) -> SpecError:
    """Why there is no point: the constraints that were broken, the one that most points broke
    first. Degrees that do not divide are told only where nothing else is wrong."""
    found = sorted(misses.all(), key=lambda pair: -pair[1])
    real = [miss for miss, _ in found if miss.constraint != "degrees"] or [m for m, _ in found]
    problems = [
        Problem(miss.key, miss.found, f"no point can be: {miss.expected}", None) for miss in real
    ]
    at = tuple(Problem(p.key, p.found, p.expected, file.document.line_of(p.key)) for p in problems)
    return SpecError(file.source, at)


def _no_sizes(file: DesignFile) -> SpecError:
    design, workload = file.sections.design, file.sections.workload
    ranks = getattr(workload, "ranks", None)
    if ranks is None:
        return file.problem(
            ("design", "strategy"),
            "no degrees whose product divides the ranks",
            "expected tensor and pipeline degrees that divide them, and leave a data degree that "
            "is allowed",
        )
    sizes = " x ".join(str(list(one.size)) for one in design.dimensions)
    expected = f"expected sizes whose product is workload.ranks, {ranks}"
    return file.problem(("design", "dimensions"), f"sizes {sizes}", expected)
