"""Bruck's all-to-all in log2(ranks) steps (Bruck, Ho, Kipnis, Upfal and Weathersby 1997)."""

from __future__ import annotations

from dataclasses import dataclass

from collectives.algorithms.base import Algorithm, Team
from collectives.builder import Move
from collectives.kinds import Kind
from collectives.program import Blocks, Buffer


@dataclass(frozen=True, kw_only=True)
class Bruck(Algorithm):
    """In step k every rank sends the shards that have bit k in the distance they must go to the
    rank 2^k after it: fewer messages, each shard up to log2(ranks) times."""

    name = "bruck"
    parts = frozenset({Kind.ALL_TO_ALL})

    def all_to_all(self, team: Team, shard: int) -> None:
        team.builder.phase("all-to-all", Kind.ALL_TO_ALL)
        builder, ranks, channel = team.builder, team.size, team.channel
        work = builder.scratch(ranks * shard)
        packed = builder.scratch(ranks * shard)
        arrived = builder.scratch(ranks * shard)

        def slot(first: int, index: int, count: int = 1) -> Blocks:
            return Blocks(Buffer.SCRATCH, first + index * shard, count * shard)

        for i, member in enumerate(team.members):
            for distance in range(ranks):
                source = Blocks(Buffer.INPUT, (i + distance) % ranks * shard, shard)
                builder.copy(member, source, slot(work, distance), channel)
        step = 1
        while step < ranks:
            going = [distance for distance in range(ranks) if distance & step]
            moves = []
            for i, member in enumerate(team.members):
                for place, distance in enumerate(going):
                    builder.copy(member, slot(work, distance), slot(packed, place), channel)
                to = team.members[(i + step) % ranks]
                count = len(going)
                moves.append(Move(member, slot(packed, 0, count), to, slot(arrived, 0, count)))
            builder.round(moves, channel)
            for member in team.members:
                for place, distance in enumerate(going):
                    builder.copy(member, slot(arrived, place), slot(work, distance), channel)
            step *= 2
        for i, member in enumerate(team.members):
            for distance in range(ranks):
                target = Blocks(Buffer.OUTPUT, (i - distance) % ranks * shard, shard)
                builder.copy(member, slot(work, distance), target, channel)
