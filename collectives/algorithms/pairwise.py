"""Pairwise exchange: one partner at a time (Thakur, Rabenseifner and Gropp 2005, section 4.4)."""

from __future__ import annotations

from dataclasses import dataclass

from collectives.algorithms.base import Algorithm, Team
from collectives.algorithms.direct import keep_own_shard, shifted
from collectives.builder import Move
from collectives.kinds import Kind
from collectives.program import Blocks, Buffer


@dataclass(frozen=True, kw_only=True)
class Pairwise(Algorithm):
    """ranks - 1 steps. In step s the partner of rank r is r xor s when the ranks are a power of
    two; otherwise r sends to r + s and receives from r - s."""

    name = "pairwise"
    parts = frozenset({Kind.ALL_TO_ALL})
    window = 1

    def all_to_all(self, team: Team, shard: int) -> None:
        team.builder.phase("all-to-all", Kind.ALL_TO_ALL)
        keep_own_shard(team, shard)
        ranks = team.size
        for step in range(1, ranks):
            moves = shifted(team, shard, step) if ranks & ranks - 1 else _pairs(team, shard, step)
            team.builder.round(moves, team.channel)


def _pairs(team: Team, shard: int, step: int) -> list[Move]:
    moves = []
    for i, member in enumerate(team.members):
        source = Blocks(Buffer.INPUT, (i ^ step) * shard, shard)
        target = Blocks(Buffer.OUTPUT, i * shard, shard)
        moves.append(Move(member, source, team.members[i ^ step], target))
    return moves
