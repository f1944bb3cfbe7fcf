"""From a collective to the phases of each chunk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import prod

from analysis.astra.errors import AstraRefused
from analysis.astra.files.system import Implementation, SystemConfig
from analysis.astra.system.logical import LogicalRing, TreeNode, binary_tree, dimension_ring
from analysis.astra.system.phase import AstraCollective, DimensionPhase
from analysis.chakra.group_file import CommunicatorGroup

# The original assumes this of a collective that does not say which dimensions it involves.
_DEFAULT_INVOLVED = 4


class _QueueLevel:
    """Hands out the queues of one dimension (system/QueueLevelHandler.cc).

    Phases that come before and after an all-reduce's turning point draw on halves of their own.
    """

    def __init__(self, first_queue: int, queues: int) -> None:
        self._first_queue = first_queue
        self._queues = queues
        self._next = 0
        self._next_first = 0
        self._next_last = queues // 2

    def any(self) -> tuple[int, int]:
        """(queue, direction): the upper half of the queues runs anticlockwise."""
        step = -1 if self._queues > 1 and self._next >= self._queues // 2 else 1
        queue = self._first_queue + self._next
        self._next = (self._next + 1) % self._queues
        return queue, step

    def first(self) -> tuple[int, int]:
        """A queue of the lower half, clockwise."""
        queue = self._first_queue + self._next_first
        self._next_first += 1
        if self._next_first >= self._queues // 2:
            self._next_first = 0
        return queue, 1

    def last(self) -> tuple[int, int]:
        """A queue of the upper half, anticlockwise."""
        queue = self._first_queue + self._next_last
        self._next_last += 1
        if self._next_last >= self._queues:
            self._next_last = self._queues // 2
        return queue, -1


@dataclass(frozen=True, slots=True)
class _Level:
    """One dimension of a logical topology, for one rank: a ring or two trees."""

    implementation: Implementation
    members: int
    ring: LogicalRing | None
    trees: tuple[TreeNode, TreeNode] | None


class Planner:
    """The logical topologies of all collectives over a network (GeneralComplexTopology.cc)."""

    def __init__(self, config: SystemConfig, npus_per_dimension: Sequence[int]) -> None:
        """Raises AstraRefused when a collective names more dimensions than the network has."""
        self.config = config
        self.npus_per_dimension = tuple(npus_per_dimension)
        for name, implementations in config.implementations.items():
            if len(implementations) > len(self.npus_per_dimension):
                raise AstraRefused(
                    f"{name}-implementation has {len(implementations)} entries for a network of "
                    f"{len(self.npus_per_dimension)} dimensions: ASTRA-sim aborts"
                )
        self.ring = cache(LogicalRing)
        self.tree = cache(binary_tree)

    def for_rank(self, rank: int, queues_per_dimension: int) -> RankPlanner:
        """The planner of one rank, which keeps count of the queues and trees handed out."""
        return RankPlanner(self, rank, queues_per_dimension)

    def levels(self, rank: int, name: str) -> tuple[_Level, ...]:
        """One rank's logical topology of the collective `name`."""
        if name not in self.config.implementations:
            raise AstraRefused(
                f"the system file has no {name}-implementation, but the workload runs {name}"
            )
        levels: list[_Level] = []
        stride = 1
        for implementation, size in zip(
            self.config.implementations[name], self.npus_per_dimension, strict=False
        ):
            if implementation.one:
                npus = prod(self.npus_per_dimension)
                ring = self.ring(tuple(range(npus)))
                return (*levels, _Level(implementation, npus, ring, None))
            members = dimension_ring(rank, size, stride)
            if implementation.algorithm == "doubleBinaryTree":
                places = (self.tree(members, True)[rank], self.tree(members, False)[rank])
                levels.append(_Level(implementation, size, None, places))
            else:
                levels.append(_Level(implementation, size, self.ring(members), None))
            stride *= size
        return tuple(levels)

    def group_level(self, rank: int, name: str, group: CommunicatorGroup) -> _Level:
        """The single ring that a group smaller than the world runs on (CommunicatorGroup.cc)."""
        implementations = self.config.implementations.get(name)
        if implementations is None:
            raise AstraRefused(
                f"the system file has no {name}-implementation, but the workload runs {name}"
            )
        if rank not in group.ranks:
            raise AstraRefused(
                f"rank {rank} runs {name} in group {group.id}, of which it is no member: "
                "ASTRA-sim aborts"
            )
        implementation = implementations[0] if len(implementations) == 1 else Implementation("ring")
        if implementation.algorithm == "doubleBinaryTree":
            raise AstraRefused(
                f"{name} by doubleBinaryTree in group {group.id}: ASTRA-sim takes the group's "
                "ring for a tree and crashes"
            )
        ring = self.ring(group.ranks, True)
        return _Level(implementation, len(group.ranks), ring, None)


class RankPlanner:
    """Turns collectives into phases on one rank (Sys::generate_collective)."""

    def __init__(self, planner: Planner, rank: int, queues_per_dimension: int) -> None:
        self.npus = prod(planner.npus_per_dimension)
        self._planner = planner
        self._rank = rank
        self._queues = [
            _QueueLevel(dimension * queues_per_dimension, queues_per_dimension)
            for dimension in range(len(planner.npus_per_dimension))
        ]
        self._levels: dict[str, tuple[_Level, ...]] = {}
        self._group_levels: dict[tuple[str, int], tuple[_Level, ...]] = {}
        # By collective and dimension: which of the two trees comes next.
        self._tree_turn: dict[tuple[str, int], int] = {}

    def phases(
        self,
        collective: AstraCollective,
        size_bytes: int,
        involved: tuple[bool, ...] | None,
        group: CommunicatorGroup | None,
    ) -> list[DimensionPhase]:
        """The phases of the next chunk of a collective. Empty when no dimension takes part."""
        name = collective.value
        levels = self._find_levels(name, group)
        # A group that spans the world uses every dimension, whatever the node says.
        taking_part = range(len(levels)) if group else self._involved(levels, involved)
        dimensions = [d for d in taking_part if levels[d].members > 1]
        if collective is AstraCollective.ALL_GATHER:
            dimensions.reverse()
        split = (
            collective is AstraCollective.ALL_REDUCE
            and self._planner.config.collective_optimization == "localBWAware"
        )
        phases: list[DimensionPhase] = []

        def add(part: AstraCollective, dimension: int, queue: tuple[int, int]) -> None:
            size = phases[-1].final_size_bytes() if phases else size_bytes
            place = self._place(name, dimension, levels[dimension])
            level = levels[dimension]
            phases.append(
                DimensionPhase(
                    part, level.implementation, size, *queue, level.ring, place, level.members
                )
            )

        if not split:
            for dimension in dimensions:
                add(collective, dimension, self._queues[dimension].any())
        elif dimensions:
            *outer, turning = dimensions
            for dimension in outer:
                add(AstraCollective.REDUCE_SCATTER, dimension, self._queues[dimension].first())
            add(AstraCollective.ALL_REDUCE, turning, self._queues[turning].first())
            for dimension in reversed(outer):
                add(AstraCollective.ALL_GATHER, dimension, self._queues[dimension].last())
        return phases

    def _find_levels(self, name: str, group: CommunicatorGroup | None) -> tuple[_Level, ...]:
        if group is None or len(group.ranks) == self.npus:
            if name not in self._levels:
                self._levels[name] = self._planner.levels(self._rank, name)
            return self._levels[name]
        key = (name, group.id)
        if key not in self._group_levels:
            self._group_levels[key] = (self._planner.group_level(self._rank, name, group),)
        return self._group_levels[key]

    def _involved(self, levels: tuple[_Level, ...], involved: tuple[bool, ...] | None) -> list[int]:
        if involved is None:
            involved = (True,) * _DEFAULT_INVOLVED
        if len(involved) < len(levels):
            raise AstraRefused(
                f"involved_dim covers {len(involved)} of {len(levels)} dimensions: "
                "ASTRA-sim reads past its end"
            )
        return [dimension for dimension in range(len(levels)) if involved[dimension]]

    def _place(self, name: str, dimension: int, level: _Level) -> TreeNode | None:
        if level.trees is None:
            return None
        turn = self._tree_turn.get((name, dimension), 0)
        self._tree_turn[name, dimension] = turn + 1
        return level.trees[turn % 2]
