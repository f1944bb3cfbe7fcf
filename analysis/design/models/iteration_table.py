"""A design's iteration as a table of layers that ranks can train: the same computing, the same
collectives over the same groups, in few rows.

Entries that the model adds up are joined, so that a row stands for many layers: collectives of the
same kind and group become one of all their bytes. Traffic that hides behind computing keeps its
window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal

from analysis.design.models.demand import Demand, Window
from analysis.design.models.listed_work import traffic_of
from analysis.design.models.transformer import Gathers, critical_sends, gathers_of, sends_of
from analysis.design.network import Dimension
from collectives.kinds import Kind
from topologies.spec.layers_section import Strategy

PassName = Literal["forward", "input_gradient", "weight_gradient"]
PASSES: tuple[PassName, ...] = ("forward", "input_gradient", "weight_gradient")


@dataclass(frozen=True, slots=True)
class TablePass:
    """A row's work in a pass: computing, then a collective of `size_bytes` as a spec counts it
    (the whole array of an all-gather), which may hide behind a window (None: ranks wait)."""

    compute_ns: float = 0.0
    kind: Kind | None = None
    size_bytes: float = 0.0
    window: int | None = None


@dataclass(frozen=True, slots=True)
class TableRow:
    """A layer, or many that are joined. Before each forward and each backward pass
    `parameter_bytes` are gathered, a row ahead, from the ranks that reduce its gradients."""

    name: str
    forward: TablePass = TablePass()
    input_gradient: TablePass = TablePass()
    weight_gradient: TablePass = TablePass()
    update_ns: float = 0.0
    parameter_bytes: float = 0.0

    def of(self, name: PassName) -> TablePass:
        """The pass of a name."""
        found: TablePass = getattr(self, name)
        return found


@dataclass(frozen=True, slots=True)
class IterationTable:
    """An iteration in rows, and what hides what. `degrees` are the parts that each degree of
    parallelism takes of each dimension, the innermost degree first; one where all ranks act
    together, and three where the third is a pipeline's. Rows are those of a stage and of each of
    `microbatches`, whose `activation_bytes` a stage hands on; gradients are reduced behind the last
    one. `overlap` and `last_bottom` are those of a spec's table of layers."""

    parallelism: Strategy
    degrees: tuple[tuple[int, ...], ...]
    rows: tuple[TableRow, ...]
    windows: tuple[Window, ...] = ()
    overlap: bool = True
    last_bottom: int | None = None
    microbatches: int = 1
    activation_bytes: float = 0.0

    @property
    def exchanges(self) -> bool:
        """Whether there is an all-to-all."""
        return any(row.of(p).kind is Kind.ALL_TO_ALL for row in self.rows for p in PASSES)

    def largest_bytes(self, degrees: Sequence[Sequence[int]]) -> float:
        """The largest collective that groups of these degrees have."""
        sizes = [
            row.of(p).size_bytes
            for row in self.rows
            for p in PASSES
            if row.of(p).kind is not None and prod(self.group_of(p, degrees)) > 1
        ]
        if prod(self.group_of("weight_gradient", degrees)) > 1:
            sizes += [row.parameter_bytes for row in self.rows]
        return max(sizes, default=0.0)

    def group_of(self, name: PassName, degrees: Sequence[Sequence[int]]) -> Sequence[int]:
        """The participants of a pass's collectives, in each dimension, for these degrees."""
        if len(degrees) == 1:
            return degrees[0]
        model_first = self.parallelism == "hybrid-data-model"
        return degrees[(name == "weight_gradient") == model_first]

    def stages(self, degrees: Sequence[Sequence[int]]) -> int:
        """The stages of the pipeline, for these degrees."""
        return prod(degrees[2]) if len(degrees) > 2 else 1

    def demand(self, degrees: Sequence[Sequence[int]], dimensions: Sequence[Dimension]) -> Demand:
        """The model's demand of these rows, for groups of these degrees: those of the design, or
        smaller ones."""
        stages = self.stages(degrees)
        rounds = self.microbatches + stages - 1
        pass_ns = sum(row.of(name).compute_ns for row in self.rows for name in PASSES)
        compute_ns = rounds * pass_ns + sum(row.update_ns for row in self.rows)
        found = [
            traffic_of(
                f"{row.name} {name}",
                one.kind,
                one.size_bytes,
                self.group_of(name, degrees),
                dimensions,
                times=1 if name == "weight_gradient" else rounds,
                window=one.window,
            )
            for row in self.rows
            for name in PASSES
            if (one := row.of(name)).kind is not None
        ]
        traffic = [one for one in found if one is not None]
        gathers = self._gathers(degrees, dimensions, rounds)
        if stages > 1:
            sends = critical_sends(stages, self.microbatches)
            traffic.append(sends_of(self.activation_bytes, degrees[2], dimensions, sends))
        return Demand(compute_ns, (*traffic, *gathers.traffic), (*self.windows, *gathers.windows))

    def _gathers(
        self, degrees: Sequence[Sequence[int]], dimensions: Sequence[Dimension], rounds: int
    ) -> Gathers:
        rows = [row for row in self.rows if row.parameter_bytes]
        whole = traffic_of(
            "gathers",
            Kind.ALL_GATHER,
            sum(row.parameter_bytes for row in rows),
            self.group_of("weight_gradient", degrees),
            dimensions,
        )
        if whole is None:
            return Gathers((), ())
        forward_ns = sum(row.forward.compute_ns for row in rows)
        backward_ns = sum(row.input_gradient.compute_ns for row in rows)
        return gathers_of(whole, len(rows), (forward_ns, backward_ns), rounds, len(self.windows))
