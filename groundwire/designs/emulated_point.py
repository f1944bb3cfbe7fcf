"""Points as specs that run: the winner, the baseline and points around the winner, at a size that
can be emulated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from analysis.design.comparison import equal_split_of
from analysis.design.confirmed import EmulatedPoint
from analysis.design.point import Point
from analysis.design.search import Found, Solution, solve_point
from collectives.algorithms.ring import Ring
from collectives.kinds import Kind
from groundwire.designs.emulated_network import dimension_fabric, shrunk
from topologies.spec.design.document import DesignFile, DesignSections
from topologies.spec.errors import SpecError
from topologies.spec.spec import Spec, parse_dict
from topologies.spec.workload_section import ITEM_BYTES, CollectivesWorkload

WINNER = "winner"
EQUAL = "equal split"
_MOVED = 0.15
_FLOW_UP_TO_RANKS = 16


@dataclass(frozen=True, slots=True)
class Emulation:
    """Specs to run with what each stands for, the winner first, the baseline second; and the rules
    by which they were scaled, in words."""

    points: tuple[tuple[EmulatedPoint, Spec], ...]
    rules: tuple[str, ...]


class NotEmulated(ValueError):
    """A design that has nothing to emulate: file, what was found, what is allowed."""


def emulation_of(found: Found, around: int) -> Emulation:
    """The points to emulate of a design that lists its collectives, with `around` of them around
    the winner. Raises NotEmulated."""
    file = found.file
    _refuse_unlisted(file)
    best = found.best
    equal_full = equal_split_of(best)
    if equal_full is None:
        raise NotEmulated(
            f"{file.source}: design.dimensions: found fewer than 2 dimensions whose bandwidth is "
            "chosen; --confirm compares ways to split bandwidth among 2 and more"
        )
    small = _at_emulated_size(found)
    scale = _Scale.of(file, small)
    equal = equal_split_of(small)
    assert equal is not None
    points = [
        (WINNER, "the best bandwidths", small.gbytes_per_s, best.gbytes_per_s),
        (EQUAL, "the same total, split equally", equal.gbytes_per_s, equal_full.gbytes_per_s),
    ]
    free = [i for i, one in enumerate(best.point.dimensions) if not one.fixed]
    for number in range(around):
        to = free[number % len(free)]
        part = _MOVED * (1 + number // len(free))
        if part >= 1:
            break
        name = f"{part:.0%} to {best.point.dimensions[to].name}"
        words = f"{part:.0%} of the total taken from all and given to one"
        moved = [_moved(one, free, to, part) for one in (small.gbytes_per_s, best.gbytes_per_s)]
        points.append((name, words, moved[0], moved[1]))
    made = []
    for name, words, rates, full_rates in points:
        emulated = EmulatedPoint(
            name,
            words,
            small.work.demand.time_ns(rates) / scale.time,
            best.work.demand.time_ns(full_rates),
        )
        made.append((emulated, scale.spec(file, small, rates, name)))
    return Emulation(tuple(made), scale.rules(found, small))


def winning_spec(found: Found) -> Spec:
    """The winner as a spec that runs, scaled as for a confirmation. Raises NotEmulated."""
    _refuse_unlisted(found.file)
    small = _at_emulated_size(found)
    return _Scale.of(found.file, small).spec(found.file, small, small.gbytes_per_s, WINNER)


def _refuse_unlisted(file: DesignFile) -> None:
    """Raises NotEmulated for what does not run on rings."""
    workload = file.sections.workload
    if not isinstance(workload, CollectivesWorkload):
        raise NotEmulated(
            f"{file.source}: workload.kind: found {workload.kind}; allowed: collectives, the "
            "workload whose designs are emulated"
        )
    for index, operation in enumerate(workload.operations):
        if operation.kind not in Ring.parts | {Kind.ALL_REDUCE}:
            raise NotEmulated(
                f"{file.source}: workload.operations[{index}].kind: found {operation.kind}; "
                "allowed: collectives that run on rings, as dimensions are emulated by them"
            )


def _at_emulated_size(found: Found) -> Solution:
    """The best bandwidths of the shrunk network under the same constraints, the cost in proportion
    to the ranks; the best point itself where it is small enough."""
    file, point = found.file, found.best.point
    confirm = file.sections.design.confirm
    try:
        sizes = shrunk(point.sizes, confirm.ranks)
    except ValueError as error:
        raise NotEmulated(f"{file.source}: design.confirm.ranks: {error}") from error
    if sizes == point.sizes:
        return found.best
    dimensions = tuple(
        replace(one, size=size) for one, size in zip(point.dimensions, sizes, strict=True)
    )
    smaller = replace(point, dimensions=dimensions)
    try:
        return solve_point(_shrunk_file(file, point, smaller), smaller)
    except SpecError as error:
        raise NotEmulated(f"at the emulated size: {error}") from error


def _shrunk_file(file: DesignFile, point: Point, smaller: Point) -> DesignFile:
    """The file for the shrunk network."""
    design, workload = file.sections.design, file.sections.workload
    share = smaller.ranks / point.ranks
    update: dict[str, Any] = {}
    if design.constraints.cost is not None:
        cost = design.constraints.cost * share
        limits = design.constraints.model_copy(update={"cost": cost})
        update["design"] = design.model_copy(update={"constraints": limits})
    update["workload"] = workload.model_copy(update={"ranks": smaller.ranks})
    sections: DesignSections = file.sections.model_copy(update=update)
    return replace(file, sections=sections)


def _moved(rates: Sequence[float], free: Sequence[int], to: int, part: float) -> tuple[float, ...]:
    """A part of the total of the dimensions that are free, taken from all and given to one."""
    total = sum(rates[i] for i in free)
    return tuple(
        rate * (1 - part) + (part * total if i == to else 0.0) if i in free else rate
        for i, rate in enumerate(rates)
    )


@dataclass(frozen=True, slots=True)
class _Scale:
    """Bandwidths are multiplied by `rate`, times divided by `time`, sizes multiplied by `size`."""

    rate: float
    time: float

    @classmethod
    def of(cls, file: DesignFile, small: Solution) -> _Scale:
        confirm, workload = file.sections.design.confirm, file.sections.workload
        assert isinstance(workload, CollectivesWorkload)
        rate = confirm.rate_bps / 8e9 / max(small.gbytes_per_s)
        largest = max(operation.size_bytes for operation in workload.operations)
        return cls(rate, largest * rate / confirm.size_bytes)

    @property
    def size(self) -> float:
        return self.rate / self.time

    def spec(self, file: DesignFile, small: Solution, rates: Sequence[float], name: str) -> Spec:
        """The spec of these bandwidths."""
        sections = file.sections
        workload, confirm = sections.workload, sections.design.confirm
        assert isinstance(workload, CollectivesWorkload)
        dimensions = small.point.dimensions
        ranks = small.point.ranks
        rates_bps = [max(1, round(rate * self.rate * 8e9)) for rate in rates]
        raw = {
            "name": f"{sections.name[:40]}-{name.replace(' ', '-').replace('%', '')}"[:64],
            "seed": sections.seed,
            "fabric": dimension_fabric(
                small.point.sizes,
                rates_bps,
                [dimension.latency_ns / self.time for dimension in dimensions],
            ),
            "transport": sections.transport.model_dump(mode="python", by_alias=True),
            "virtual": sections.virtual.model_dump(mode="python", by_alias=True),
            "workload": self._workload(workload, small),
            "collectives": collectives_section(
                small.point.sizes,
                rates_bps,
                confirm.chunks,
                [one.kind for one in workload.operations],
            ),
            "capture": {"points": []},
            "predict": ["flow"] if ranks <= _FLOW_UP_TO_RANKS else [],
        }
        return parse_dict(raw, f"{file.source}: {name}, emulated")

    def _workload(self, workload: CollectivesWorkload, small: Solution) -> dict[str, Any]:
        ranks = small.point.ranks
        step = ranks * ITEM_BYTES[workload.dtype]

        def scaled(size_bytes: int) -> int:
            return max(1, round(size_bytes * self.size / step)) * step

        return {
            "kind": "collectives",
            "ranks": ranks,
            "dtype": workload.dtype,
            "operations": [
                {"kind": one.kind, "size": scaled(one.size_bytes)} for one in workload.operations
            ],
        }

    def rules(self, found: Found, small: Solution) -> tuple[str, ...]:
        """In words."""
        told = []
        if small.point.sizes != found.best.point.sizes:
            before = "x".join(map(str, found.best.point.sizes))
            after = "x".join(map(str, small.point.sizes))
            told.append(
                f"{before} is emulated as {after}: the largest dimension halved until there are at "
                f"most {found.file.sections.design.confirm.ranks} ranks. The winner there is what "
                "the same search finds for it."
            )
        told.append(
            f"Bandwidths are multiplied by {self.rate:.4g} and sizes by {self.size:.4g}, so that "
            f"times are divided by {self.time:.4g}. Each dimension is a ring of hosts, "
            f"whatever its kind; collectives are cut into "
            f"{found.file.sections.design.confirm.chunks} chunks, one at a time in a dimension."
        )
        return tuple(told)


def collectives_section(
    sizes: Sequence[int], rates_bps: Sequence[int], chunks: int, kinds: Sequence[str]
) -> dict[str, Any]:
    """Hierarchical programs over the dimensions, whose chunks take turns."""
    entry = {"algorithm": "hierarchical", "inside": "ring", "across": "ring"}
    least = min(rates_bps)
    return {
        "backend": "programs",
        "dimensions": list(sizes),
        "dimension_rates": [max(1, round(1000 * rate / least)) for rate in rates_bps],
        "active_per_dimension": 1,
        "chunks": chunks,
        **{kind: dict(entry) for kind in dict.fromkeys(kinds)},
    }
