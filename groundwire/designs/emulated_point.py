"""Points as specs that run: the winner, the baseline and points around the winner, at a size that
can be emulated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from analysis.design.comparison import equal_split_of, neighbours
from analysis.design.confirmed import EmulatedPoint
from analysis.design.models.tables import NoTable
from analysis.design.point import Work
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
from topologies.spec.workload_section import CollectivesWorkload

WINNER = "winner"
EQUAL = "equal split"
_MOVED = 0.15
_FLOW_UP_TO_RANKS = 16
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
    for name, words, small, rates, full_ns in points:
        predicted_ns = small.solution.work.demand.time_ns(rates) / scale.time
        point = EmulatedPoint(name, words, predicted_ns, full_ns)
        made.append((point, _spec(found.file, small, rates, scale, name)))
    return Emulation(tuple(made), _rules(found, winner, scale))


def winning_spec(found: Found) -> Spec:
    """The winner as a spec that runs, scaled as for a confirmation. Raises NotEmulated."""
    winner = _winner(found)
    scale = _scale_of(found.file, winner)
    return _spec(found.file, winner, winner.solution.gbytes_per_s, scale, WINNER)


_Point = tuple[str, str, _Small, Sequence[float], float]
"""A name, words, what is emulated with which bandwidths, and the time of the full size."""


def _around_bandwidths(
    found: Found, winner: _Small, free: Sequence[int], around: int
) -> list[_Point]:
    full, small = found.best, winner.solution
    equal, equal_full = equal_split_of(small), equal_split_of(full)
    assert equal is not None and equal_full is not None
    points: list[_Point] = [
        (WINNER, "the best bandwidths", winner, small.gbytes_per_s, full.time_ns),
        (EQUAL, "the same total, split equally", winner, equal.gbytes_per_s, equal_full.time_ns),
    ]
    for number in range(around):
        to = free[number % len(free)]
        part = _MOVED * (1 + number // len(free))
        if part >= 1:
            break
        name = f"{part:.0%} to {full.point.dimensions[to].name}"
        words = f"{part:.0%} of the total taken from all and given to one"
        moved = [_moved(one, free, to, part) for one in (small.gbytes_per_s, full.gbytes_per_s)]
        points.append((name, words, winner, moved[0], full.work.demand.time_ns(moved[1])))
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
    points: list[_Point] = [
        (WINNER, found.best.point.words, winner, found.best.gbytes_per_s, found.best.time_ns)
    ]
    for number, solution in enumerate(near[: around + 1], 1):
        iteration = _iteration(found.file, solution)
        most = found.file.sections.design.confirm.ranks
        parts = shrunk_alike(parts_of(iteration.degrees), divided, most)
        small = _same_bandwidths(solution, iteration, parts)
        words = _differing(found.best, solution)
        points.append(
            (f"neighbour {number}", words, small, solution.gbytes_per_s, solution.time_ns)
        )
    return points


def _differing(best: Solution, other: Solution) -> str:
    """What a neighbour has in place of what the winner has."""
    before, after = best.point.chosen, other.point.chosen
    return ", ".join(
        f"{name} {after.get(name, 'none')} for {before.get(name, 'none')}"
        for name in {**before, **after}
        if before.get(name) != after.get(name)
    )


def _iteration(file: DesignFile, solution: Solution) -> Emulated:
    """What is emulated of a solution. Raises NotEmulated."""
    try:
        found = emulated_workload(file.sections, solution.point)
    except NoTable as error:
        raise NotEmulated(f"{file.source}: {error}") from error
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
        "predict": ["flow"] if workload["ranks"] <= _FLOW_UP_TO_RANKS else [],
    }
    return parse_dict(raw, f"{file.source}: {name}, emulated")


def _rules(found: Found, winner: _Small, scale: Scale) -> tuple[str, ...]:
    """How the points were scaled, in words."""
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
    if not isinstance(found.file.sections.workload, CollectivesWorkload):
        told.append(
            "The iteration is a table of layers: what the model adds up is joined in few rows, "
            "with its computing as time. A dimension that two degrees of parallelism share is "
            "two, each with its bandwidth."
        )
    kind = "connects all its hosts" if winner.iteration.exchanges else "is a ring of hosts"
    told.append(
        f"Bandwidths are multiplied by {scale.rate:.4g} and sizes by {scale.size:.4g}, so that "
        f"times are divided by {scale.time:.4g}. Each dimension {kind}, whatever its kind; "
        f"collectives are cut into {confirm.chunks} chunks, one at a time in a dimension."
    )
    return tuple(told)
