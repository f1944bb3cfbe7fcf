"""Recursive halving and doubling (Thakur, Rabenseifner and Gropp 2005)."""

from __future__ import annotations

from dataclasses import dataclass

from collectives.algorithms.base import Algorithm, DoesNotFit, Team
from collectives.builder import Move
from collectives.kinds import Kind
from collectives.program import Blocks


@dataclass(frozen=True, kw_only=True)
class HalvingDoubling(Algorithm):
    """Reduce-scatter with partners at distance ranks/2, ranks/4, ... 1, which halves the data each
    time; all-gather the other way round. For a power of two of ranks."""

    name = "halving-doubling"
    parts = frozenset({Kind.REDUCE_SCATTER, Kind.ALL_GATHER})

    def check(self, ranks: int) -> None:
        if ranks & ranks - 1:
            raise DoesNotFit("ranks", f"{ranks} for {self.name}", "powers of two")

    def grain(self, members: int) -> int:
        return members

    def reduce_blocks(self, team: Team, blocks: Blocks) -> None:
        team.builder.phase("reduce-scatter", Kind.REDUCE_SCATTER)
        distance = team.size // 2
        while distance:
            moves = []
            for i, member in enumerate(team.members):
                partner = i ^ distance
                part = _aligned(blocks, team.size, partner, distance)
                moves.append(Move(member, part, team.members[partner], part, reduce=True))
            team.builder.round(moves, team.channel)
            distance //= 2

    def gather_blocks(self, team: Team, blocks: Blocks) -> None:
        team.builder.phase("all-gather", Kind.ALL_GATHER)
        distance = 1
        while distance < team.size:
            moves = []
            for i, member in enumerate(team.members):
                part = _aligned(blocks, team.size, i, distance)
                moves.append(Move(member, part, team.members[i ^ distance], part))
            team.builder.round(moves, team.channel)
            distance *= 2


def _aligned(blocks: Blocks, ranks: int, member: int, count: int) -> Blocks:
    """The parts of `count` members: of this one and of those that share its higher bits."""
    return blocks.part(member // count, ranks // count)
