"""Gloo's own ring as a program (gloo/allreduce.cc as of torch 2.13)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from collectives.algorithms.base import Algorithm, Team, at_least
from collectives.builder import Move
from collectives.kinds import Kind, Shape
from collectives.program import Blocks, Division
from collectives.schedule.gloo_steps import MAX_SEGMENT_BYTES


@dataclass(frozen=True, kw_only=True)
class GlooRing(Algorithm):
    """The ring that Gloo's all-reduce takes, with its segments: at least two per rank, at most
    1 MiB each; data flows to the rank before. `segments_per_rank` 0 is what Gloo would choose."""

    name = "gloo-ring"
    parts = frozenset({Kind.ALL_REDUCE})
    window = 2
    division = Division.SEGMENTS

    segments_per_rank: int = 0

    def __post_init__(self) -> None:
        at_least("segments_per_rank", self.segments_per_rank, 0)

    def sized(self, shape: Shape) -> Algorithm:
        if self.segments_per_rank:
            return self
        largest = shape.element_bytes * max(1, MAX_SEGMENT_BYTES // shape.element_bytes)
        segments = max(-(-shape.size_bytes // largest), 2 * shape.ranks)
        return replace(self, segments_per_rank=-(-segments // shape.ranks))

    def grain(self, members: int) -> int:
        return members * (self.segments_per_rank or 2)

    def all_reduce(self, team: Team, blocks: Blocks) -> None:
        for phase, kind, ahead in (
            ("reduce-scatter", Kind.REDUCE_SCATTER, 1),
            ("all-gather", Kind.ALL_GATHER, 0),
        ):
            team.builder.phase(phase, kind)
            per_rank = blocks.count // team.size
            for step in range(blocks.count - per_rank):
                moves = []
                for i, member in enumerate(team.members):
                    index = ((i + ahead) * per_rank + step) % blocks.count
                    part = Blocks(blocks.buffer, blocks.start + index)
                    to = team.members[i - 1]
                    reduce = kind is Kind.REDUCE_SCATTER
                    moves.append(Move(member, part, to, part, reduce))
                team.builder.round(moves, team.channel)
