"""Recursive doubling: everybody exchanges all that it has with a partner twice as far away each
time (Thakur, Rabenseifner and Gropp, IJHPCA 2005, section 3.1)."""

from __future__ import annotations

from dataclasses import dataclass

from collectives.algorithms.base import Algorithm, DoesNotFit, Team
from collectives.builder import Move
from collectives.kinds import Kind
from collectives.program import Blocks, Buffer


@dataclass(frozen=True, kw_only=True)
class RecursiveDoubling(Algorithm):
    """log2(ranks) exchanges of the whole data: the fewest that hosts can do with, for small
    messages. Both partners add the same two numbers, so that all ranks have the same bits."""

    name = "recursive-doubling"
    parts = frozenset({Kind.ALL_REDUCE})

    def check(self, ranks: int) -> None:
        if ranks & ranks - 1:
            raise DoesNotFit("ranks", str(ranks), "a power of two")

    def all_reduce(self, team: Team, blocks: Blocks) -> None:
        builder = team.builder
        builder.phase("exchange", Kind.ALL_REDUCE)
        rounds = (team.size - 1).bit_length()
        first = builder.scratch(rounds * blocks.count)
        arrived = [
            Blocks(Buffer.SCRATCH, first + i * blocks.count, blocks.count) for i in range(rounds)
        ]
        moves = [
            [
                (builder.number(), Move(member, blocks, team.members[i ^ 1 << n], arrived[n]))
                for i, member in enumerate(team.members)
            ]
            for n in range(rounds)
        ]
        # All receives go first, so that no partner waits for the other to get ready.
        for exchange in moves:
            for number, move in exchange:
                builder.receive(number, move, team.channel)
        for n, exchange in enumerate(moves):
            for number, move in exchange:
                builder.send(number, move, team.channel)
            for member in team.members:
                builder.add(member, arrived[n], blocks, team.channel)
