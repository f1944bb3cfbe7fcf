"""Algorithms: each is a way to write the program of a collective, with its options as fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from collectives.builder import Builder
from collectives.in_network.node import Aggregator, Hold
from collectives.kinds import Kind, Shape
from collectives.program import PROGRAM_KINDS, Blocks, Buffer, Division, Program


class DoesNotFit(ValueError):
    """An algorithm that cannot do what it is asked for. `key` is the option that is wrong, or ""
    for the algorithm as such; `found` and `allowed` are for people."""

    def __init__(self, key: str, found: str, allowed: str) -> None:
        super().__init__(f"{key + ': ' if key else ''}found {found}, allowed {allowed}")
        self.key = key
        self.found = found
        self.allowed = allowed


class Refused(DoesNotFit):
    """A demand for more than switches have; an algorithm of hosts might do it instead."""


@dataclass(frozen=True, slots=True)
class Team:
    """The participants of one part of a program, in their order."""

    builder: Builder
    members: tuple[int, ...]
    channel: int = 0

    @property
    def size(self) -> int:
        return len(self.members)


@dataclass(frozen=True, kw_only=True)
class Algorithm:
    """An algorithm with its options.

    A subclass names itself, lists its `parts` (the kinds that it writes itself) and overrides the
    method of each. Blocks that are passed to these methods lie at the same place in all members'
    buffers. Whoever can reduce-scatter and all-gather can all-reduce. Only `all_to_all` reads the
    input and writes the output; the others work in place.
    """

    name: ClassVar[str]
    parts: ClassVar[frozenset[Kind]]

    window: ClassVar[int | None] = None
    """Receives of a sequence that may be under way at once."""

    division: ClassVar[Division] = Division.EVEN

    @property
    def equal_pieces(self) -> int:
        """The number of which a shard's elements must be a multiple."""
        return 1

    @property
    def kinds(self) -> frozenset[Kind]:
        """The kinds that there are programs for."""
        both = {Kind.REDUCE_SCATTER, Kind.ALL_GATHER} <= self.parts
        return self.parts | ({Kind.ALL_REDUCE} if both else set())

    @property
    def aggregators(self) -> tuple[Aggregator, ...]:
        """The switches that take part, whose participants come after the ranks."""
        return ()

    @property
    def hold(self) -> Hold | None:
        """The locks of its collectives at switches."""
        return None

    @property
    def largest_chunk_bytes(self) -> int | None:
        """The most bytes of a chunk, where the algorithm bounds it."""
        return None

    @property
    def most_in_flight(self) -> int | None:
        """How many of its chunks may be in flight, where the algorithm bounds them."""
        return None

    @property
    def least_chunks(self) -> int:
        """Chunks that a collective is cut into at least, where it has as many elements."""
        return 1

    def of_chunk(self, index: int) -> Algorithm:
        """The algorithm as one chunk has it."""
        return self

    def program(self, kind: Kind, ranks: int, root: int = 0) -> Program:
        """The program of a collective. Raises DoesNotFit."""
        if kind not in self.kinds:
            allowed = ", ".join(known for known in PROGRAM_KINDS if known in self.kinds)
            raise DoesNotFit("", f"{self.name} for {kind}", allowed)
        if ranks < 2:
            raise DoesNotFit("ranks", str(ranks), "2 and more")
        if not 0 <= root < ranks:
            raise DoesNotFit("root", str(root), f"0 to {ranks - 1}")
        self.check(ranks)
        participants = ranks + len(self.aggregators)
        builder = Builder(kind, ranks, self.pieces(kind, ranks), root, participants)
        self.write(Team(builder, tuple(range(ranks))))
        return replace(builder.build(self.window, self.division), algorithm=self.name)

    def sized(self, shape: Shape) -> Algorithm:
        """The algorithm with what it chooses by the size of a collective filled in."""
        return self

    def check(self, ranks: int) -> None:
        """Raises DoesNotFit when the algorithm cannot have so many members."""

    def grain(self, members: int) -> int:
        """The number that divides the blocks of an all-reduce, broadcast or reduce."""
        return 1

    def pieces(self, kind: Kind, ranks: int) -> int:
        """Blocks of a shard, for kinds that split; of the buffer for others."""
        grain = self.grain(ranks)
        return max(1, grain // ranks) if kind.traits.splits else grain

    def write(self, team: Team) -> None:
        """Write the whole program of the builder's kind."""
        builder, ranks = team.builder, team.size
        shard = builder.pieces
        match builder.kind:
            case Kind.ALL_REDUCE:
                self.all_reduce(team, Blocks(Buffer.INPUT, 0, shard))
            case Kind.BROADCAST:
                self.broadcast(team, Blocks(Buffer.INPUT, 0, shard), builder.root)
            case Kind.REDUCE:
                self.reduce(team, Blocks(Buffer.INPUT, 0, shard), builder.root)
            case Kind.REDUCE_SCATTER:
                # Partial sums must not end up in the caller's input.
                work = Blocks(Buffer.SCRATCH, builder.scratch(shard * ranks), shard * ranks)
                for rank in team.members:
                    builder.copy(rank, Blocks(Buffer.INPUT, 0, work.count), work, team.channel)
                self.reduce_blocks(team, work)
                for rank in team.members:
                    own = Blocks(Buffer.OUTPUT, 0, shard)
                    builder.copy(rank, work.part(rank, ranks), own, team.channel)
            case Kind.ALL_GATHER:
                work = Blocks(Buffer.OUTPUT, 0, shard * ranks)
                for rank in team.members:
                    own = Blocks(Buffer.INPUT, 0, shard)
                    builder.copy(rank, own, work.part(rank, ranks), team.channel)
                self.gather_blocks(team, work)
            case _:
                self.all_to_all(team, shard)

    def all_reduce(self, team: Team, blocks: Blocks) -> None:
        """All members get the sum of all members' blocks."""
        self.reduce_blocks(team, blocks)
        self.gather_blocks(team, blocks)

    def reduce_blocks(self, team: Team, blocks: Blocks) -> None:
        """Member i gets the sum of part i of all members' blocks."""
        raise NotImplementedError

    def gather_blocks(self, team: Team, blocks: Blocks) -> None:
        """Member i's part i goes to all members."""
        raise NotImplementedError

    def broadcast(self, team: Team, blocks: Blocks, root: int) -> None:
        """The blocks of member `root` go to all members."""
        raise NotImplementedError

    def reduce(self, team: Team, blocks: Blocks, root: int) -> None:
        """Member `root` gets the sum of all members' blocks; theirs are overwritten."""
        raise NotImplementedError

    def all_to_all(self, team: Team, shard: int) -> None:
        """Input shard j of member i becomes output shard i of member j; a shard has `shard`
        blocks."""
        raise NotImplementedError


def rotated(members: Sequence[int], root: int) -> tuple[int, ...]:
    """The members from the root on."""
    return (*members[root:], *members[:root])


def at_least(key: str, value: int, least: int) -> None:
    """Raises DoesNotFit for an option below its least value."""
    if value < least:
        raise DoesNotFit(key, str(value), f"{least} and more")
