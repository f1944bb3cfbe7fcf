"""Hierarchical collectives: one dimension of the ranks after the other, each with its algorithm.

As BlueConnect (Cho, Finkler, Serrano, Kung and Hunter 2019) and ASTRA-sim's multi-dimensional
collectives do: reduce-scatter along all dimensions but the last, all-reduce along the last,
all-gather back. `full_size` is ASTRA-sim 1's `baseline`: an all-reduce of all the data along every
dimension.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import lcm, prod

from collectives.algorithms.base import Algorithm, DoesNotFit, Team
from collectives.algorithms.direct import Direct
from collectives.builder import Move
from collectives.dimensions import coordinates, lines, rank_at
from collectives.kinds import Kind
from collectives.program import Blocks, Buffer


@dataclass(frozen=True, kw_only=True)
class Hierarchical(Algorithm):
    """`dimensions` are the sizes, whose product is the number of ranks; the first is the innermost.

    `inside` is the algorithm along all dimensions but the last, `across` that of the last one;
    `by_dimension` names one for each instead. `order` is the order in which a reduce-scatter goes
    through the dimensions (an all-gather goes back); by default from the first to the last.
    """

    name = "hierarchical"
    parts = frozenset()

    dimensions: tuple[int, ...] = ()
    inside: Algorithm = field(default_factory=Direct)
    across: Algorithm = field(default_factory=Direct)
    by_dimension: tuple[Algorithm, ...] = ()
    order: tuple[int, ...] = ()
    full_size: bool = False

    def __post_init__(self) -> None:
        count = len(self.dimensions)
        if any(size < 1 for size in self.dimensions):
            raise DoesNotFit("dimensions", str(list(self.dimensions)), "sizes of 1 and more")
        if self.by_dimension and len(self.by_dimension) != count:
            found = f"{len(self.by_dimension)} algorithms"
            raise DoesNotFit("by_dimension", found, f"{count}, one for each dimension")
        if self.order and sorted(self.order) != list(range(count)):
            raise DoesNotFit("order", str(list(self.order)), f"each of 0 to {count - 1} once")

    @property
    def kinds(self) -> frozenset[Kind]:
        along = [self.along(d) for d in range(len(self.dimensions))] or [self.inside, self.across]
        shared = frozenset.intersection(*(one.kinds for one in along))
        found = shared & {Kind.REDUCE_SCATTER, Kind.ALL_GATHER, Kind.BROADCAST, Kind.REDUCE}
        outer = along if self.full_size else along[-1:]
        scattered = all({Kind.REDUCE_SCATTER, Kind.ALL_GATHER} <= one.kinds for one in along[:-1])
        if all(Kind.ALL_REDUCE in one.kinds for one in outer) and (self.full_size or scattered):
            found |= {Kind.ALL_REDUCE}
        return found | {Kind.ALL_TO_ALL}

    @property
    def window(self) -> int | None:  # type: ignore[override]
        windows = [self.along(d).window for d in range(len(self.dimensions))]
        known = [one for one in windows if one is not None]
        return max(known) if known and len(known) == len(windows) else None

    def along(self, dimension: int) -> Algorithm:
        """The algorithm along a dimension."""
        if self.by_dimension:
            return self.by_dimension[dimension]
        return self.across if dimension == len(self.dimensions) - 1 else self.inside

    def check(self, ranks: int) -> None:
        if prod(self.dimensions) != ranks or not self.dimensions:
            found = f"{list(self.dimensions)}"
            raise DoesNotFit("dimensions", found, f"sizes whose product is the ranks, {ranks}")
        for dimension in self._sequence():
            self.along(dimension).check(self.dimensions[dimension])

    def grain(self, members: int) -> int:
        sequence = self._sequence()
        if not sequence:
            return 1
        if self.full_size:
            return lcm(*(self.along(d).grain(self.dimensions[d]) for d in sequence))
        last = sequence[-1]
        return self._scattered(sequence[:-1], self.along(last).grain(self.dimensions[last]))

    def pieces(self, kind: Kind, ranks: int) -> int:
        sequence = self._sequence()
        match kind:
            case Kind.ALL_TO_ALL:
                return 1
            case Kind.BROADCAST | Kind.REDUCE:
                return lcm(*(self.along(d).pieces(kind, self.dimensions[d]) for d in sequence))
            case Kind.ALL_REDUCE:
                return self.grain(ranks)
            case _:
                return self._scattered(sequence, 1) // ranks

    def write(self, team: Team) -> None:
        builder = team.builder
        shard, ranks = builder.pieces, team.size
        match builder.kind:
            case Kind.REDUCE_SCATTER:
                work = Blocks(Buffer.SCRATCH, builder.scratch(shard * ranks), shard * ranks)
                for member in team.members:
                    for rank in range(ranks):
                        source = Blocks(Buffer.INPUT, rank * shard, shard)
                        place = work.part(self._place(rank), ranks)
                        builder.copy(member, source, place, team.channel)
                sequence = self._sequence()
                for step in range(len(sequence)):
                    for line, part in self._lines(team, work, sequence, step):
                        self.along(sequence[step]).reduce_blocks(line, part)
                for i, member in enumerate(team.members):
                    own = Blocks(Buffer.OUTPUT, 0, shard)
                    builder.copy(member, work.part(self._place(i), ranks), own, team.channel)
            case Kind.ALL_GATHER:
                work = Blocks(Buffer.SCRATCH, builder.scratch(shard * ranks), shard * ranks)
                for i, member in enumerate(team.members):
                    own = Blocks(Buffer.INPUT, 0, shard)
                    builder.copy(member, own, work.part(self._place(i), ranks), team.channel)
                sequence = self._sequence()
                for step in reversed(range(len(sequence))):
                    for line, part in self._lines(team, work, sequence, step):
                        self.along(sequence[step]).gather_blocks(line, part)
                for member in team.members:
                    for rank in range(ranks):
                        target = Blocks(Buffer.OUTPUT, rank * shard, shard)
                        place = work.part(self._place(rank), ranks)
                        builder.copy(member, place, target, team.channel)
            case _:
                super().write(team)

    def all_reduce(self, team: Team, blocks: Blocks) -> None:
        sequence = self._sequence()
        if self.full_size:
            for dimension in sequence:
                with team.builder.along(dimension):
                    for members in lines(self.dimensions, dimension):
                        line = _line(team, members)
                        self.along(dimension).all_reduce(line, blocks)
            return
        scattered = range(len(sequence) - 1)
        for step in scattered:
            for line, part in self._lines(team, blocks, sequence, step):
                self.along(sequence[step]).reduce_blocks(line, part)
        for line, part in self._lines(team, blocks, sequence, len(sequence) - 1):
            self.along(sequence[-1]).all_reduce(line, part)
        for step in reversed(scattered):
            for line, part in self._lines(team, blocks, sequence, step):
                self.along(sequence[step]).gather_blocks(line, part)

    def broadcast(self, team: Team, blocks: Blocks, root: int) -> None:
        """From the last dimension to the first: across, then inside."""
        self._spread(team, blocks, root, Kind.BROADCAST)

    def reduce(self, team: Team, blocks: Blocks, root: int) -> None:
        self._spread(team, blocks, root, Kind.REDUCE)

    def all_to_all(self, team: Team, shard: int) -> None:
        """Direct along each dimension; all the data goes through each (its own share stays)."""
        exchange_by_dimension(team, shard, self.dimensions, self._sequence())

    def _sequence(self) -> tuple[int, ...]:
        """Dimensions in order; those of size 1 are left out."""
        order = self.order or tuple(range(len(self.dimensions)))
        return tuple(d for d in order if self.dimensions[d] > 1)

    def _scattered(self, sequence: tuple[int, ...], grain: int) -> int:
        """The grain of data that is scattered along these dimensions before it has this grain."""
        for dimension in reversed(sequence):
            size = self.dimensions[dimension]
            grain = size * lcm(grain, self.along(dimension).grain(size) // size)
        return grain

    def _place(self, rank: int) -> int:
        """Which part of the data a rank has when it is scattered along all dimensions."""
        point = coordinates(rank, self.dimensions)
        place = 0
        for dimension in self._sequence():
            place = place * self.dimensions[dimension] + point[dimension]
        return place

    def _lines(
        self, team: Team, blocks: Blocks, sequence: tuple[int, ...], step: int
    ) -> Iterator[tuple[Team, Blocks]]:
        """The lines along the dimension of a step, each with what its members have left of the
        data after the steps before. Phases begun meanwhile go along that dimension."""
        dimension = sequence[step]
        with team.builder.along(dimension):
            for members in lines(self.dimensions, dimension):
                point = coordinates(members[0], self.dimensions)
                part = blocks
                for before in sequence[:step]:
                    part = part.part(point[before], self.dimensions[before])
                yield _line(team, members), part

    def _spread(self, team: Team, blocks: Blocks, root: int, kind: Kind) -> None:
        """Along each dimension in the lines of those that, in the dimensions that come later on the
        way to the root, are where the root is."""
        point = coordinates(root, self.dimensions)
        sequence = self._sequence()
        steps = list(range(len(sequence)))
        for step in reversed(steps) if kind is Kind.BROADCAST else steps:
            dimension = sequence[step]
            inner = sequence[:step]
            with team.builder.along(dimension):
                for members in lines(self.dimensions, dimension):
                    here = coordinates(members[0], self.dimensions)
                    if any(here[d] != point[d] for d in inner):
                        continue
                    along, line = self.along(dimension), _line(team, members)
                    if kind is Kind.BROADCAST:
                        along.broadcast(line, blocks, point[dimension])
                    else:
                        along.reduce(line, blocks, point[dimension])


@dataclass(frozen=True, kw_only=True)
class TwoStep(Algorithm):
    """Two-step all-to-all (msccl-tools, alltoall_a100_two_step): first inside the node, so that
    then each rank sends one message to each other node, to the rank with its own local number."""

    name = "two-step"
    parts = frozenset({Kind.ALL_TO_ALL})

    ranks_per_node: int = 8

    def check(self, ranks: int) -> None:
        if self.ranks_per_node < 1 or ranks % self.ranks_per_node:
            found = str(self.ranks_per_node)
            raise DoesNotFit("ranks_per_node", found, f"divisors of the ranks, {ranks}")

    def all_to_all(self, team: Team, shard: int) -> None:
        dimensions = (self.ranks_per_node, team.size // self.ranks_per_node)
        sequence = tuple(d for d in (0, 1) if dimensions[d] > 1)
        exchange_by_dimension(team, shard, dimensions, sequence)


def exchange_by_dimension(
    team: Team, shard: int, dimensions: tuple[int, ...], sequence: tuple[int, ...]
) -> None:
    """An all-to-all along one dimension after the other.

    A shard's key is where it goes; along a dimension it is swapped for where the shard comes from.
    Before each dimension the shards are put in the order of that coordinate, so that what goes to
    one peer is one message.
    """
    builder, ranks, channel = team.builder, team.size, team.channel
    going = builder.scratch(ranks * shard)
    come = builder.scratch(ranks * shard)
    keys = [coordinates(rank, dimensions) for rank in range(ranks)]

    def place(key: tuple[int, ...], slowest: int) -> int:
        order = [d for d in range(len(dimensions)) if d != slowest] + [slowest]
        return rank_at([key[d] for d in order], [dimensions[d] for d in order])

    def block(buffer: Buffer, index: int, first: int = 0) -> Blocks:
        return Blocks(buffer, first + index * shard, shard)

    before = None
    for dimension in sequence:
        size = dimensions[dimension]
        with builder.along(dimension):
            builder.phase("all-to-all", Kind.ALL_TO_ALL)
        for member in team.members:
            for rank, key in enumerate(keys):
                if before is None:
                    source = block(Buffer.INPUT, rank)
                else:
                    source = block(Buffer.SCRATCH, place(key, before), come)
                target = block(Buffer.SCRATCH, place(key, dimension), going)
                builder.copy(member, source, target, channel)
        out = Blocks(Buffer.SCRATCH, going, ranks * shard)
        into = Blocks(Buffer.SCRATCH, come, ranks * shard)
        for positions in lines(dimensions, dimension):
            line = _line(team, positions)
            for i, member in enumerate(line.members):
                builder.copy(member, out.part(i, size), into.part(i, size), channel)
            for shift in range(1, size):
                moves = []
                for i, member in enumerate(line.members):
                    to = (i + shift) % size
                    moves.append(
                        Move(member, out.part(to, size), line.members[to], into.part(i, size))
                    )
                builder.round(moves, channel)
        before = dimension
    assert before is not None
    for member in team.members:
        for rank, key in enumerate(keys):
            source = block(Buffer.SCRATCH, place(key, before), come)
            builder.copy(member, source, block(Buffer.OUTPUT, rank), channel)


def _line(team: Team, positions: tuple[int, ...]) -> Team:
    return Team(team.builder, tuple(team.members[i] for i in positions), team.channel)
