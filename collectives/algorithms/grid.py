"""Collectives for meshes and tori: neighbours talk to neighbours only."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import lcm

from collectives.algorithms.base import Algorithm, DoesNotFit, Team
from collectives.algorithms.hierarchical import Hierarchical
from collectives.algorithms.ring import Ring
from collectives.builder import Move
from collectives.kinds import Kind
from collectives.program import Blocks


@dataclass(frozen=True, kw_only=True)
class Line(Algorithm):
    """A row of ranks without a way round: data goes both ways at once.

    A rank's part of a reduce-scatter comes to it from both ends; what goes farthest goes first, so
    that ranks - 1 steps are enough.
    """

    name = "line"
    parts = frozenset({Kind.REDUCE_SCATTER, Kind.ALL_GATHER})
    window = 4

    def grain(self, members: int) -> int:
        return members

    def reduce_blocks(self, team: Team, blocks: Blocks) -> None:
        team.builder.phase("reduce-scatter", Kind.REDUCE_SCATTER)
        last = team.size - 1
        for step in range(last):
            moves = []
            for i in range(last):
                target = last + i - step
                if i < target <= last:
                    moves.append(_hop(team, blocks, i, i + 1, target, reduce=True))
                    moves.append(_hop(team, blocks, last - i, last - i - 1, last - target, True))
            team.builder.round(moves, team.channel)

    def gather_blocks(self, team: Team, blocks: Blocks) -> None:
        team.builder.phase("all-gather", Kind.ALL_GATHER)
        last = team.size - 1
        for step in range(last):
            moves = []
            for i in range(step, last):
                source = i - step
                moves.append(_hop(team, blocks, i, i + 1, source))
                moves.append(_hop(team, blocks, last - i, last - i - 1, last - source))
            team.builder.round(moves, team.channel)


@dataclass(frozen=True, kw_only=True)
class _Grid(Algorithm):
    """Along one axis after the other. An all-reduce is cut into as many parts as there are axes,
    each of which begins with another one, so that all links are busy."""

    parts = frozenset({Kind.REDUCE_SCATTER, Kind.ALL_GATHER})

    dimensions: tuple[int, ...] = ()

    def _along_axes(self) -> Algorithm:
        raise NotImplementedError

    @property
    def window(self) -> int | None:  # type: ignore[override]
        return self._along_axes().window

    def check(self, ranks: int) -> None:
        if len(self.dimensions) < 2:
            found = str(list(self.dimensions))
            raise DoesNotFit("dimensions", found, "the sizes of two axes or more")
        self._by_axis(0).check(ranks)

    def grain(self, members: int) -> int:
        axes = range(len(self.dimensions))
        return len(axes) * lcm(*(self._by_axis(first).grain(members) for first in axes))

    def pieces(self, kind: Kind, ranks: int) -> int:
        if kind is Kind.ALL_REDUCE:
            return self.grain(ranks)
        return self._by_axis(0).pieces(kind, ranks)

    def write(self, team: Team) -> None:
        if team.builder.kind is Kind.ALL_REDUCE:
            super().write(team)
        else:
            self._by_axis(0).write(team)

    def all_reduce(self, team: Team, blocks: Blocks) -> None:
        axes = len(self.dimensions)
        for first in range(axes):
            part = Team(team.builder, team.members, team.channel + first * self._channels())
            self._by_axis(first).all_reduce(part, blocks.part(first, axes))

    def _channels(self) -> int:
        return 1

    def _by_axis(self, first: int) -> Hierarchical:
        """Along all axes, beginning with this one."""
        axes = len(self.dimensions)
        return Hierarchical(
            dimensions=self.dimensions,
            by_dimension=(self._along_axes(),) * axes,
            order=tuple((first + i) % axes for i in range(axes)),
        )


@dataclass(frozen=True, kw_only=True)
class Mesh(_Grid):
    """A grid without wrap: lines along each axis."""

    name = "mesh"

    def _along_axes(self) -> Algorithm:
        return Line()


@dataclass(frozen=True, kw_only=True)
class Torus(_Grid):
    """A grid with wrap: rings along each axis, both ways round."""

    name = "torus"

    ring: Ring = field(default_factory=lambda: Ring(both_directions=True))

    def _along_axes(self) -> Algorithm:
        return self.ring

    def _channels(self) -> int:
        return self.ring.rings


def _hop(team: Team, blocks: Blocks, start: int, end: int, part: int, reduce: bool = False) -> Move:
    moved = blocks.part(part, team.size)
    return Move(team.members[start], moved, team.members[end], moved, reduce)
