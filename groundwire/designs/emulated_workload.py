"""The emulated part of a design's workload, and how bandwidths, sizes and times are scaled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Protocol

from analysis.design.models.demand import Demand
from analysis.design.models.iteration_table import PASSES, IterationTable, TablePass, TableRow
from analysis.design.models.listed_work import work_of_operations
from analysis.design.models.tables import table_of
from analysis.design.network import Dimension
from analysis.design.point import Point
from collectives.kinds import Kind
from groundwire.designs.emulated_network import Part, degrees_of
from topologies.spec.design.document import DesignSections
from topologies.spec.workload_section import CollectivesWorkload
from topologies.spec.workload_types import Dtype

Degrees = Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True)
class Scale:
    """Bandwidths are multiplied by `rate`, times divided by `time`, sizes multiplied by `size`."""

    rate: float
    time: float

    @property
    def size(self) -> float:
        return self.rate / self.time


class Emulated(Protocol):
    """An iteration that can be emulated. `degrees` are the parts that each degree of parallelism
    takes of each of the design's dimensions; other methods take smaller ones."""

    @property
    def degrees(self) -> Degrees: ...
    @property
    def exchanges(self) -> bool:
        """Whether there is an all-to-all."""
        ...

    @property
    def microbatches(self) -> int:
        """Microbatches that are run one by one."""
        ...

    def demand(self, degrees: Degrees, dimensions: Sequence[Dimension]) -> Demand: ...
    def largest_bytes(self, degrees: Degrees) -> float: ...
    def kinds(self) -> tuple[Kind, ...]: ...
    def section(self, parts: Sequence[Part], scale: Scale) -> dict[str, Any]:
        """The `workload` section of the emulated spec."""
        ...


@dataclass(frozen=True, slots=True)
class Operations:
    """Listed collectives, over all ranks."""

    workload: CollectivesWorkload
    sizes: tuple[int, ...]

    @property
    def degrees(self) -> Degrees:
        return (self.sizes,)

    @property
    def exchanges(self) -> bool:
        return Kind.ALL_TO_ALL in self.kinds()

    @property
    def microbatches(self) -> int:
        return 1

    def demand(self, degrees: Degrees, dimensions: Sequence[Dimension]) -> Demand:
        return work_of_operations(self.workload, dimensions).demand

    def largest_bytes(self, degrees: Degrees) -> float:
        return max(operation.size_bytes for operation in self.workload.operations)

    def kinds(self) -> tuple[Kind, ...]:
        return tuple(dict.fromkeys(Kind(one.kind) for one in self.workload.operations))

    def section(self, parts: Sequence[Part], scale: Scale) -> dict[str, Any]:
        ranks = prod(part.size for part in parts)
        step = ranks * self.workload.item_bytes

        def scaled(size_bytes: int) -> int:
            return max(1, round(size_bytes * scale.size / step)) * step

        return {
            "kind": "collectives",
            "ranks": ranks,
            "dtype": self.workload.dtype,
            "operations": [
                {"kind": one.kind, "size": scaled(one.size_bytes)}
                for one in self.workload.operations
            ],
        }


@dataclass(frozen=True, slots=True)
class Table:
    """A table of layers."""

    table: IterationTable
    dtype: Dtype

    @property
    def degrees(self) -> Degrees:
        return self.table.degrees

    @property
    def exchanges(self) -> bool:
        return self.table.exchanges

    @property
    def microbatches(self) -> int:
        return self.table.microbatches

    def demand(self, degrees: Degrees, dimensions: Sequence[Dimension]) -> Demand:
        return self.table.demand(degrees, dimensions)

    def largest_bytes(self, degrees: Degrees) -> float:
        return self.table.largest_bytes(degrees)

    def kinds(self) -> tuple[Kind, ...]:
        passes = [row.of(name) for row in self.table.rows for name in PASSES]
        kinds = [one.kind for one in passes if one.kind is not None]
        if any(row.parameter_bytes for row in self.table.rows):
            kinds.append(Kind.ALL_GATHER)
        return tuple(dict.fromkeys(kinds))

    def section(self, parts: Sequence[Part], scale: Scale) -> dict[str, Any]:
        ranks = prod(part.size for part in parts)
        found: dict[str, Any] = {
            "kind": "layers",
            "ranks": ranks,
            "passes": 1,
            "parallelism": self.table.parallelism,
            "overlap": self.table.overlap,
            "dtype": self.dtype,
        }
        degrees = degrees_of(parts, len(self.table.degrees[0]), len(self.table.degrees))
        if len(degrees) > 1:
            found["innermost"] = prod(degrees[0])
        if self.table.last_bottom is not None:
            found["last_bottom_layer"] = self.table.last_bottom
        stages = self.table.stages(degrees)
        if stages > 1:
            found["stages"] = stages
            found["activation"] = max(1, round(self.table.activation_bytes * scale.size))
        if self.table.microbatches > 1:
            found["microbatches"] = self.table.microbatches
        layers = [self._layer(row, degrees, scale) for row in self.table.rows]
        return {**found, "layers": layers}

    def _layer(self, row: TableRow, degrees: Degrees, scale: Scale) -> dict[str, Any]:
        found: dict[str, Any] = {"name": row.name, "update": _time(row.update_ns, scale)}
        reducing = prod(self.table.group_of("weight_gradient", degrees))
        for name in PASSES:
            one = row.of(name)
            if name == "weight_gradient" and self.table.overlap and reducing < 2:
                # With nobody to reduce gradients with, ranks update where they are computed.
                update_ns = row.update_ns / self.table.microbatches
                one = replace(one, compute_ns=one.compute_ns + update_ns)
                found["update"] = _time(0.0, scale)
            found[name] = _pass(one, scale, prod(self.table.group_of(name, degrees)))
        if row.parameter_bytes and reducing > 1:
            shard_bytes = row.parameter_bytes * scale.size / reducing
            found["parameter_shard"] = max(1, round(shard_bytes))
        return found


def emulated_workload(sections: DesignSections, point: Point) -> Emulated:
    """The emulated part of a point."""
    workload = sections.workload
    if workload.listed is not None:
        return Operations(workload.listed, point.sizes)
    return Table(table_of(sections, point), workload.dtype)


def _time(time_ns: float, scale: Scale) -> str:
    return f"{round(time_ns / scale.time)}ns"


def _pass(one: TablePass, scale: Scale, group: int) -> dict[str, Any]:
    """A pass of a layer, for a group of so many ranks."""
    found: dict[str, Any] = {"compute": _time(one.compute_ns, scale)}
    if one.kind is not None and group > 1:
        # A table counts what a rank brings.
        size_bytes = one.size_bytes * scale.size / one.kind.traits.contributions(group)
        found |= {"collective": one.kind.value, "size": max(1, round(size_bytes))}
    return found


def collectives_section(
    sizes: Sequence[int],
    rates_bps: Sequence[int],
    chunks: int,
    kinds: Sequence[Kind],
    *,
    connected: bool = False,
) -> dict[str, Any]:
    """Hierarchical programs over the dimensions, whose chunks take turns: on rings, or directly
    where all hosts of a line are connected."""
    along = "direct" if connected else "ring"
    entry: Mapping[str, Any] = {"algorithm": "hierarchical", "inside": along, "across": along}
    least = min(rates_bps)
    return {
        "backend": "programs",
        "dimensions": list(sizes),
        "dimension_rates": [max(1, round(1000 * rate / least)) for rate in rates_bps],
        "active_per_dimension": 1,
        "chunks": chunks,
        **{kind.value: dict(entry) for kind in kinds},
    }
