"""The active constraints of the optimum, and what each would be worth."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf, isinf

from analysis.design.points import points_of, work_of
from analysis.design.search import Found


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """An active constraint. `limit` and `per_unit` are in `unit` (GB/s, dollars or nanoseconds):
    the objective changes by `per_unit` for each by which the limit grows. `elasticity` is the
    relative change for a relative change: -0.5 says that 1% more of it is worth half a percent."""

    constraint: str
    value: str
    unit: str
    limit: float
    per_unit: float
    elasticity: float


@dataclass(frozen=True, slots=True)
class MemoryStep:
    """A point that more memory makes possible: the least that a host needs for it, and the
    objective if all of it were as fast as the first tier."""

    words: str
    footprint_bytes: float
    time_ns: float


def sensitivities(found: Found) -> tuple[Sensitivity, ...]:
    """The constraints of the best point, the strongest first."""
    best, design = found.best, found.file.sections.design
    scale = best.objective
    rows = []
    for one in best.multipliers:
        if one.bound is None:
            limit = float(design.constraints.time_ns or 0)
            elasticity = one.per_unit * limit / scale if scale else 0.0
            rows.append(Sensitivity("time", f"{limit:g} ns", "ns", limit, one.per_unit, elasticity))
            continue
        bound = one.bound
        limit = bound.high if not isinf(bound.high) else bound.low
        if limit in (inf, -inf):
            continue
        unit = "GB/s"
        if bound.name == "cost":
            # The bound is the part that is left for bandwidths; the ceiling is that of all.
            unit, limit = "$", design.constraints.cost or limit
        elasticity = one.per_unit * limit / scale if scale else 0.0
        rows.append(Sensitivity(bound.name, bound.value, unit, limit, one.per_unit, elasticity))
    return tuple(sorted(rows, key=lambda row: -abs(row.elasticity)))


def memory_steps(found: Found) -> tuple[MemoryStep, ...]:
    """Points that would be faster than the best one on its host if only they fitted, the smallest
    footprint first, each faster than those before it. Empty where hosts have no memory."""
    host = found.best.point.host
    if host is None:
        return ()
    sections, rates = found.file.sections, found.best.gbytes_per_s
    roomy = replace(host, memory_bytes=inf)
    steps = []
    for point in points_of(sections):
        if point.host != host or point.dimensions != found.best.point.dimensions:
            continue
        work = work_of(sections, replace(point, host=roomy))
        if work is None or work.footprint_bytes <= host.capacity_bytes:
            continue
        words = str(point.strategy) if point.strategy is not None else point.words
        steps.append(MemoryStep(words, work.footprint_bytes, work.demand.time_ns(rates)))
    chosen, fastest = [], found.best.time_ns
    for step in sorted(steps, key=lambda one: (one.footprint_bytes, one.time_ns)):
        if step.time_ns < fastest:
            chosen.append(step)
            fastest = step.time_ns
    return tuple(chosen)
