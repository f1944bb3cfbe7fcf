"""A graph that NCCL found on one server: what goes through its GPUs, for one pattern."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum

from collectives.nccl.server import PathType


class Pattern(IntEnum):
    """Patterns of a search (NCCL_TOPO_PATTERN_* of src/include/graph.h of 2.27)."""

    BALANCED_TREE = 1
    SPLIT_TREE = 2
    TREE = 3
    RING = 4
    NVLS = 5
    COLLNET_DIRECT = 6


@dataclass(slots=True)
class Graph:
    """The channels of a pattern: `intra` has, by channel, positions of GPUs in order, `inter` the
    NICs by which data comes and goes. Bandwidths are GB/s of each channel. A graph of `collnet` has
    no fall-back where nothing is wide enough."""

    pattern: Pattern
    min_channels: int = 1
    max_channels: int = 32
    cross_nic: int = 0
    bw_intra: float = 0.0
    bw_inter: float = 0.0
    type_intra: PathType = PathType.LOC
    type_inter: PathType = PathType.PIX
    same_channels: bool = True
    hops: int = 0
    collnet: bool = False
    intra: list[list[int]] = field(default_factory=list)
    inter: list[list[int]] = field(default_factory=list)

    @property
    def channels(self) -> int:
        """How many channels it has."""
        return len(self.intra)

    def copy(self) -> Graph:
        """The same graph, with lists of its own."""
        return replace(
            self,
            intra=[list(one) for one in self.intra],
            inter=[list(one) for one in self.inter],
        )

    def takes(self, other: Graph) -> None:
        """Become another graph."""
        found = other.copy()
        for name in self.__dataclass_fields__:
            setattr(self, name, getattr(found, name))


def joined(graphs: Sequence[Graph]) -> Graph:
    """The graph that all servers agree on: the least of each (initTransportsRank)."""
    first = graphs[0].copy()
    for one in graphs[1:]:
        first.intra = first.intra[: one.channels]
        first.inter = first.inter[: one.channels]
        first.bw_intra = min(first.bw_intra, one.bw_intra)
        first.bw_inter = min(first.bw_inter, one.bw_inter)
        first.type_intra = max(first.type_intra, one.type_intra)
        first.type_inter = max(first.type_inter, one.type_inter)
        first.same_channels = first.same_channels and one.same_channels
        first.cross_nic = max(first.cross_nic, one.cross_nic)
    return first
