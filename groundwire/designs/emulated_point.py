"""Points as specs that run: the winner, the baseline and points around the winner, at a size that
can be emulated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from analysis.design.comparison import equal_split_of, neighbours
from analysis.design.confirmed import EmulatedPoint
from analysis.design.models.tables import MOST_MICROBATCHES
from analysis.design.point import Work
from analysis.design.points import point_cost
from analysis.design.search import Found, Solution, solve_point
from collectives.algorithms.ring import Ring
from collectives.kinds import Kind
from groundwire.designs.emulated_network import (
    Part,
    degrees_of,
    dimension_fabric,
    parts_of,
    resized,
    shrunk,
    shrunk_alike,
)
from groundwire.designs.emulated_workload import (
    Emulated,
    Scale,
    collectives_section,
    emulated_workload,
)
from topologies.spec.design.document import DesignFile, DesignSections
from topologies.spec.errors import SpecError
from topologies.spec.spec import Spec, parse_dict

WINNER = "winner"
EQUAL = "equal split"
_MOVED = 0.15
_PREDICTED_UP_TO_RANKS = 128
_RUNS = Ring.parts | {Kind.ALL_REDUCE, Kind.ALL_TO_ALL}


@dataclass(frozen=True, slots=True)
class Emulation:
    """Specs to run with what each stands for, the winner first, the baseline second; and the rules
    by which they were scaled, in words."""

    points: tuple[tuple[EmulatedPoint, Spec], ...]
    rules: tuple[str, ...]


class NotEmulated(ValueError):
    """A design that has nothing to emulate: file, what was found, what is allowed."""


@dataclass(frozen=True, slots=True)
class _Small:
    """A solution at the size at which it is emulated: the parts of its network, and its bandwidths
    there, of the design's dimensions."""

    full: Solution
    iteration: Emulated
    parts: tuple[Part, ...]
    solution: Solution

    @property
    def degrees(self) -> tuple[tuple[int, ...], ...]:
        return degrees_of(self.parts, len(self.full.point.dimensions), len(self.iteration.degrees))


def emulation_of(found: Found, around: int) -> Emulation:
    """The points to emulate of a design: with two bandwidths and more to choose, the winner, the
    equal split and `around` points between which bandwidth is moved; otherwise the winner, the
    nearest of its neighbours, and `around` more of them. Raises NotEmulated."""
    winner = _winner(found)
    scale = _scale_of(found.file, winner)
    free = [i for i, one in enumerate(found.best.point.dimensions) if not one.fixed]
    if len(free) > 1:
        points = _around_bandwidths(found, winner, free, around)
    else:
        points = _around_choices(found, winner, around)
    made = []
    sections = found.file.sections
    for one in points:
        small, full = one.small.solution, one.small.full
        point = EmulatedPoint(
            one.name,
            one.words,
            small.work.demand.time_ns(one.gbytes_per_s) / scale.time,
            full.work.demand.time_ns(one.full_gbytes_per_s),
            point_cost(sections, small.point, one.gbytes_per_s),
            point_cost(sections, full.point, one.full_gbytes_per_s),
        )
        made.append((point, _spec(found.file, one.small, one.gbytes_per_s, scale, one.name)))
    return Emulation(tuple(made), _rules(found, points, scale))


def winning_spec(found: Found) -> Spec:
    """The winner as a spec that runs, scaled as for a confirmation. Raises NotEmulated."""
    winner = _winner(found)
    scale = _scale_of(found.file, winner)
    return _spec(found.file, winner, winner.solution.gbytes_per_s, scale, WINNER)


@dataclass(frozen=True, slots=True)
class _Point:
    """The specs that are emulated with their bandwidths, and those of the full size."""

    name: str
    words: str
    small: _Small
    gbytes_per_s: Sequence[float]
    full_gbytes_per_s: Sequence[float]


def _around_bandwidths(
    found: Found, winner: _Small, free: Sequence[int], around: int
) -> list[_Point]:
    best, small = found.best, winner.solution
    equal, of_best = equal_split_of(small), equal_split_of(best)
    assert equal is not None and of_best is not None
    words = "the same total, split equally"
    points = [
        _Point(WINNER, "the best bandwidths", winner, small.gbytes_per_s, best.gbytes_per_s),
        _Point(EQUAL, words, winner, equal.gbytes_per_s, of_best.gbytes_per_s),
    ]
    for number in range(around):
        to = free[number % len(free)]
        part = _MOVED * (1 + number // len(free))
        if part >= 1:
            break
        name = f"{part:.0%} to {best.point.dimensions[to].name}"
        words = f"{part:.0%} of the total taken from all and given to one"
        moved = [_moved(one, free, to, part) for one in (small.gbytes_per_s, best.gbytes_per_s)]
        points.append(_Point(name, words, winner, *moved))
    return points


def _around_choices(found: Found, winner: _Small, around: int) -> list[_Point]:
    near = neighbours(found)
    if not near:
        raise NotEmulated(
            f"{found.file.source}: design: found nothing to compare with: fewer than 2 bandwidths "
            "to choose, and no other point that takes another time; allowed: either"
        )
    divided = {
        full.key: full.size // small.size
        for full, small in zip(parts_of(winner.iteration.degrees), winner.parts, strict=True)
    }
    rates = found.best.gbytes_per_s
    points = [_Point(WINNER, found.best.point.words, winner, rates, rates)]
    for number, solution in enumerate(near[: around + 1], 1):
        iteration = _iteration(found.file, solution)
        most = found.file.sections.design.confirm.ranks
        parts = shrunk_alike(parts_of(iteration.degrees), divided, most)
        small = _same_bandwidths(solution, iteration, parts)
        words, rates = _differing(found.best, solution), solution.gbytes_per_s
        points.append(_Point(f"neighbour {number}", words, small, rates, rates))
    return points


def _differing(best: Solution, other: Solution) -> str:
    """The choices of a neighbour that differ from the winner's."""
    before, after = best.point.choices, other.point.choices
    return ", ".join(
        f"{name} {after.get(name, 'none')} for {before.get(name, 'none')}"
        for name in {**before, **after}
        if before.get(name) != after.get(name)
    )


def _iteration(file: DesignFile, solution: Solution) -> Emulated:
    """The emulated part of a solution. Raises NotEmulated."""
    found = emulated_workload(file.sections, solution.point)
    wrong = [kind for kind in found.kinds() if kind not in _RUNS]
    if wrong:
        raise NotEmulated(
            f"{file.source}: workload: found {wrong[0]}; allowed: collectives that run as "
            "programs along a dimension"
        )
    if not parts_of(found.degrees):
        raise NotEmulated(f"{file.source}: workload: found one rank; allowed: 2 and more")
    return found


def _winner(found: Found) -> _Small:
    """The winner at the size at which it is emulated: with bandwidths to choose, the best of the
    shrunk network under the same constraints, the cost in proportion to the ranks."""
    file, full = found.file, found.best
    iteration = _iteration(file, full)
    parts = parts_of(iteration.degrees)
    try:
        parts = resized(parts, shrunk([p.size for p in parts], file.sections.design.confirm.ranks))
    except ValueError as error:
        raise NotEmulated(f"{file.source}: design.confirm.ranks: {error}") from error
    if all(one.fixed for one in full.point.dimensions):
        return _same_bandwidths(full, iteration, parts)
    small = _same_bandwidths(full, iteration, parts)
    point, work = small.solution.point, small.solution.work
    try:
        solution = solve_point(_shrunk_file(file, point.ranks / full.point.ranks), point, work)
    except SpecError as error:
        raise NotEmulated(f"at the emulated size: {error}") from error
    return replace(small, solution=solution)


def _same_bandwidths(full: Solution, iteration: Emulated, parts: tuple[Part, ...]) -> _Small:
    """A solution in a shrunk network, with the bandwidths that it has."""
    of_full = full.point.dimensions
    degrees = degrees_of(parts, len(of_full), len(iteration.degrees))
    sizes = [1] * len(of_full)
    for part in parts:
        sizes[part.dimension] *= part.size
    dimensions = tuple(replace(one, size=s) for one, s in zip(of_full, sizes, strict=True))
    point = replace(full.point, dimensions=dimensions)
    work = Work(iteration.demand(degrees, dimensions))
    solution = replace(full, point=point, work=work)
    return _Small(full, iteration, parts, solution)


def _shrunk_file(file: DesignFile, share: float) -> DesignFile:
    """The file for a network of this share of its ranks."""
    design = file.sections.design
    if design.constraints.cost is None:
        return file
    cost = design.constraints.cost * share
    limits = design.constraints.model_copy(update={"cost": cost})
    update = {"design": design.model_copy(update={"constraints": limits})}
    sections: DesignSections = file.sections.model_copy(update=update)
    return replace(file, sections=sections)


def _moved(rates: Sequence[float], free: Sequence[int], to: int, part: float) -> tuple[float, ...]:
    """A part of the total of the dimensions that are free, taken from all and given to one."""
    total = sum(rates[i] for i in free)
    return tuple(
        rate * (1 - part) + (part * total if i == to else 0.0) if i in free else rate
        for i, rate in enumerate(rates)
    )


def _scale_of(file: DesignFile, winner: _Small) -> Scale:
    confirm = file.sections.design.confirm
    used = {part.dimension for part in winner.parts}
    fastest = max(winner.solution.gbytes_per_s[dimension] for dimension in used)
    rate = confirm.rate_bps / 8e9 / fastest
    largest = winner.iteration.largest_bytes(winner.degrees)
    return Scale(rate, largest * rate / confirm.size_bytes)


def _spec(file: DesignFile, small: _Small, rates: Sequence[float], scale: Scale, name: str) -> Spec:
    """The spec of these bandwidths."""
    sections = file.sections
    dimensions = small.solution.point.dimensions
    sizes = [part.size for part in small.parts]
    used = [rate * one.used for rate, one in zip(rates, dimensions, strict=True)]
    rates_bps = [max(1, round(used[part.dimension] * scale.rate * 8e9)) for part in small.parts]
    latencies = [dimensions[part.dimension].latency_ns / scale.time for part in small.parts]
    workload = small.iteration.section(small.parts, scale)
    connected = small.iteration.exchanges
    raw: dict[str, Any] = {
        "name": f"{sections.name[:40]}-{name.replace(' ', '-').replace('%', '')}"[:64],
        "seed": sections.seed,
        "fabric": dimension_fabric(sizes, rates_bps, latencies, connected=connected),
        "transport": sections.transport.model_dump(mode="python", by_alias=True),
        "virtual": sections.virtual.model_dump(mode="python", by_alias=True),
        "workload": workload,
        "collectives": collectives_section(
            sizes,
            rates_bps,
            sections.design.confirm.chunks,
            small.iteration.kinds(),
            connected=connected,
        ),
        "capture": {"points": []},
        "predict": ["packet"] if workload["ranks"] <= _PREDICTED_UP_TO_RANKS else [],
    }
    return parse_dict(raw, f"{file.source}: {name}, emulated")


def _rules(found: Found, points: Sequence[_Point], scale: Scale) -> tuple[str, ...]:
    """How the points were scaled, in words."""
    winner = points[0].small
    confirm = found.file.sections.design.confirm
    told = []
    full = parts_of(winner.iteration.degrees)
    if full != winner.parts:
        before, after = ("x".join(str(p.size) for p in parts) for parts in (full, winner.parts))
        solved = not all(one.fixed for one in found.best.point.dimensions)
        best = " The winner there is what the same search finds for it." if solved else ""
        told.append(
            f"{before} is emulated as {after}: the largest dimension halved until there are at "
            f"most {confirm.ranks} ranks.{best}"
        )
    if found.file.sections.workload.listed is None:
        told.append(
            "The iteration is a table of layers: parts that the model adds up share few rows, "
            "with its computing as time. A dimension that two degrees of parallelism share is "
            "two, each with its bandwidth."
        )
    if any(one.small.iteration.microbatches > 1 for one in points):
        told.append(
            f"With a pipeline or ZeRO's third stage microbatches are run one by one; more than "
            f"{MOST_MICROBATCHES} are joined."
        )
    if any(one.used < 1 for point in points for one in point.small.full.point.dimensions):
        told.append(
            "Buffers are not emulated: links have the bandwidth that the model lets TCP use, and "
            "nothing is measured of that."
        )
    kind = "connects all its hosts" if winner.iteration.exchanges else "is a ring of hosts"
    told.append(
        f"Bandwidths are multiplied by {scale.rate:.4g} and sizes by {scale.size:.4g}, so that "
        f"times are divided by {scale.time:.4g}. Each dimension {kind}, whatever its kind; "
        f"collectives are cut into {confirm.chunks} chunks, one at a time in a dimension."
    )
    return tuple(told)
