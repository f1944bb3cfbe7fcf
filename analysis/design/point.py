"""A point of the design's space: what has been chosen, and what follows from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from analysis.design.models.demand import Demand
from analysis.design.models.host import Host
from analysis.design.network import Dimension
from topologies.spec.errors import Key


@dataclass(frozen=True, slots=True)
class Strategy:
    """How a transformer is spread over the ranks."""

    data: int
    tensor: int
    pipeline: int = 1
    microbatches: int = 1
    zero: int = 0

    @property
    def parts(self) -> dict[str, int]:
        """By name."""
        return {
            "tensor": self.tensor,
            "data": self.data,
            "pipeline": self.pipeline,
            "microbatches": self.microbatches,
            "ZeRO": self.zero,
        }

    def __str__(self) -> str:
        usual = {"pipeline": 1, "microbatches": 1, "ZeRO": 0}
        parts = self.parts.items()
        return ", ".join(f"{name} {value}" for name, value in parts if value != usual.get(name))


@dataclass(frozen=True, slots=True)
class Point:
    """All discrete choices: dimensions with their sizes, a strategy and a host where the model has
    them. `chosen` has the choices of which there was more than one, by name, in words."""

    dimensions: tuple[Dimension, ...]
    host: Host | None = None
    strategy: Strategy | None = None
    chosen: dict[str, str] = field(default_factory=dict)

    @property
    def ranks(self) -> int:
        """One on each host."""
        return prod(dimension.size for dimension in self.dimensions)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes of the dimensions, the innermost first."""
        return tuple(dimension.size for dimension in self.dimensions)

    @property
    def choices(self) -> dict[str, str]:
        """The choices, with the strategy taken apart."""
        found = {name: value for name, value in self.chosen.items() if name != "strategy"}
        if self.strategy is not None and "strategy" in self.chosen:
            found |= {name: str(value) for name, value in self.strategy.parts.items()}
        return found

    @property
    def words(self) -> str:
        """The words that tell it from the others."""
        return ", ".join(f"{name} {value}" for name, value in self.chosen.items())


@dataclass(frozen=True, slots=True)
class Impossible:
    """The constraint that the point breaks, and by how much; so there is no such point. `shortfall`
    is how far it is off, relative, to find the nearest."""

    constraint: str
    key: Key
    found: str
    expected: str
    shortfall: float


@dataclass(frozen=True, slots=True)
class Work:
    """The needs of a point's iteration: its demand, and the bytes that a host keeps."""

    demand: Demand
    footprint_bytes: float = 0.0
    parts: tuple[tuple[str, float], ...] = ()
    """The parts of the footprint, by name."""
