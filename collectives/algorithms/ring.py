"""Rings: every member talks to its two neighbours only (Patarasuk and Yuan 2009)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from collectives.algorithms.base import Algorithm, Team, at_least, rotated
from collectives.builder import Move
from collectives.kinds import Kind
from collectives.program import Blocks


@dataclass(frozen=True, kw_only=True)
class Ring(Algorithm):
    """A ring per channel; with `both_directions` every other channel goes the other way round.

    A `folded` ring goes along every other member and back along the rest: on a row without a way
    round it takes two hops at most, where the way from the last to the first takes all of them.

    Reduce-scatter and all-gather take ranks - 1 steps of 1/ranks of the data; a broadcast and a
    reduce are chains round the ring, through which the data goes in `ranks` pieces.
    """

    name = "ring"
    parts = frozenset({Kind.REDUCE_SCATTER, Kind.ALL_GATHER, Kind.BROADCAST, Kind.REDUCE})
    window = 2

    channels: int = 1
    both_directions: bool = False
    folded: bool = False

    def __post_init__(self) -> None:
        at_least("channels", self.channels, 1)

    @property
    def rings(self) -> int:
        """Rings that the data is cut over."""
        return self.channels * (2 if self.both_directions else 1)

    def grain(self, members: int) -> int:
        return members * self.rings

    def reduce_blocks(self, team: Team, blocks: Blocks) -> None:
        team.builder.phase("reduce-scatter", Kind.REDUCE_SCATTER)
        ranks, order = team.size, self._order(team.size)
        for step in range(ranks - 1):
            for ring, way in self._ways():
                moves = []
                for i in range(ranks):
                    part = self._part(blocks, order, i - way * (step + 1), ring)
                    start, to = (team.members[order[n % ranks]] for n in (i, i + way))
                    moves.append(Move(start, part, to, part, reduce=True))
                team.builder.round(moves, team.channel + ring)

    def gather_blocks(self, team: Team, blocks: Blocks) -> None:
        team.builder.phase("all-gather", Kind.ALL_GATHER)
        ranks, order = team.size, self._order(team.size)
        for step in range(ranks - 1):
            for ring, way in self._ways():
                moves = []
                for i in range(ranks):
                    part = self._part(blocks, order, i - way * step, ring)
                    start, to = (team.members[order[n % ranks]] for n in (i, i + way))
                    moves.append(Move(start, part, to, part))
                team.builder.round(moves, team.channel + ring)

    def broadcast(self, team: Team, blocks: Blocks, root: int) -> None:
        team.builder.phase("broadcast", Kind.BROADCAST)
        self._chain(team, blocks, root, reduce=False)

    def reduce(self, team: Team, blocks: Blocks, root: int) -> None:
        team.builder.phase("reduce", Kind.REDUCE)
        self._chain(team, blocks, root, reduce=True)

    def _chain(self, team: Team, blocks: Blocks, root: int, reduce: bool) -> None:
        """From the root on round the ring, or, to reduce, from its neighbour to the root."""
        ranks = team.size
        order = self._order(ranks)
        for ring, way in self._ways():
            line = rotated([team.members[n] for n in order], order.index(root))
            if way < 0:
                line = (line[0], *reversed(line[1:]))
            if reduce:
                line = (*line[1:], line[0])
            for time in range(2 * ranks - 2):
                moves = []
                for hop in range(ranks - 1):
                    if 0 <= time - hop < ranks:
                        part = self._part(blocks, range(ranks), time - hop, ring)
                        moves.append(Move(line[hop], part, line[hop + 1], part, reduce))
                team.builder.round(moves, team.channel + ring)

    def _ways(self) -> list[tuple[int, int]]:
        """Rings with their direction."""
        backwards = self.both_directions
        return [(ring, -1 if backwards and ring % 2 else 1) for ring in range(self.rings)]

    def _order(self, ranks: int) -> list[int]:
        """The members as the ring passes them."""
        if not self.folded:
            return list(range(ranks))
        return [*range(0, ranks, 2), *reversed(range(1, ranks, 2))]

    def _part(self, blocks: Blocks, order: Sequence[int], index: int, ring: int) -> Blocks:
        """The part that ends at the member of this place in the ring, or comes from it."""
        return blocks.part(order[index % len(order)], len(order)).part(ring, self.rings)
