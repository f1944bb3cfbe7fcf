"""Direct: everybody exchanges with everybody else at once."""

from __future__ import annotations

from dataclasses import dataclass

from collectives.algorithms.base import Algorithm, Team, at_least
from collectives.builder import Move
from collectives.kinds import Kind
from collectives.program import Blocks, Buffer


@dataclass(frozen=True, kw_only=True)
class Direct(Algorithm):
    """Two steps of ranks - 1 messages each for an all-reduce. `in_flight` bounds the messages that
    a rank receives at once; 0 leaves it open."""

    name = "direct"
    parts = frozenset(
        {Kind.REDUCE_SCATTER, Kind.ALL_GATHER, Kind.ALL_TO_ALL, Kind.BROADCAST, Kind.REDUCE}
    )

    in_flight: int = 0

    def __post_init__(self) -> None:
        at_least("in_flight", self.in_flight, 0)

    @property
    def window(self) -> int | None:  # type: ignore[override]
        return self.in_flight or None

    def grain(self, members: int) -> int:
        return members

    def reduce_blocks(self, team: Team, blocks: Blocks) -> None:
        team.builder.phase("reduce-scatter", Kind.REDUCE_SCATTER)
        ranks = team.size
        for shift in range(1, ranks):
            moves = []
            for i, member in enumerate(team.members):
                part = blocks.part((i + shift) % ranks, ranks)
                moves.append(Move(member, part, team.members[(i + shift) % ranks], part, True))
            team.builder.round(moves, team.channel)

    def gather_blocks(self, team: Team, blocks: Blocks) -> None:
        team.builder.phase("all-gather", Kind.ALL_GATHER)
        ranks = team.size
        for shift in range(1, ranks):
            moves = []
            for i, member in enumerate(team.members):
                part = blocks.part(i, ranks)
                moves.append(Move(member, part, team.members[(i + shift) % ranks], part))
            team.builder.round(moves, team.channel)

    def broadcast(self, team: Team, blocks: Blocks, root: int) -> None:
        team.builder.phase("broadcast", Kind.BROADCAST)
        others = [member for i, member in enumerate(team.members) if i != root]
        moves = [Move(team.members[root], blocks, other, blocks) for other in others]
        team.builder.round(moves, team.channel)

    def reduce(self, team: Team, blocks: Blocks, root: int) -> None:
        team.builder.phase("reduce", Kind.REDUCE)
        others = [member for i, member in enumerate(team.members) if i != root]
        for other in others:
            move = Move(other, blocks, team.members[root], blocks, True)
            team.builder.round([move], team.channel)

    def pieces(self, kind: Kind, ranks: int) -> int:
        return 1 if kind in (Kind.BROADCAST, Kind.REDUCE) else super().pieces(kind, ranks)

    def all_to_all(self, team: Team, shard: int) -> None:
        team.builder.phase("all-to-all", Kind.ALL_TO_ALL)
        keep_own_shard(team, shard)
        for shift in range(1, team.size):
            team.builder.round(shifted(team, shard, shift), team.channel)


def keep_own_shard(team: Team, shard: int) -> None:
    """The block of an all-to-all that a member keeps."""
    for i, member in enumerate(team.members):
        own = Blocks(Buffer.INPUT, i * shard, shard)
        team.builder.copy(member, own, Blocks(Buffer.OUTPUT, i * shard, shard), team.channel)


def shifted(team: Team, shard: int, shift: int) -> list[Move]:
    """Every member's shard for the member that comes `shift` after it."""
    moves = []
    for i, member in enumerate(team.members):
        to = (i + shift) % team.size
        source = Blocks(Buffer.INPUT, to * shard, shard)
        moves.append(
            Move(member, source, team.members[to], Blocks(Buffer.OUTPUT, i * shard, shard))
        )
    return moves
