"""A collective as a program: what each participant sends, receives, reduces and copies.

A program knows no sizes and no times. Its buffers are cut into blocks; the bytes of a block follow
from the size of the collective (`Program.bounds`). The same object is executed by ranks, priced by
predictors, attributed by the decoder and written by exporters.

How a sequence of steps runs:

1. Its steps are posted in order; a posted message is under way while later steps are posted.
2. A step is posted once the steps in `after` are complete, and once the earlier steps of its own
   sequence that it conflicts with are: a message must not leave before its data is there, nor data
   be overwritten before it has left.
3. A receive-and-reduce lands in a staging area, so that it is posted at once; it is complete when
   its message is there and the earlier steps that it conflicts with are complete.
4. At most `window` receives of a sequence are under way at once.

A send is complete when its message has left, a receive when it has come. A message moves when both
its ends are posted (rendezvous). Sequences of one participant know of each other by `after` alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from collectives.kinds import Kind

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class Buffer(StrEnum):
    """The buffers in which blocks lie. In place, input and output are one buffer, which is called
    input."""

    INPUT = "input"
    OUTPUT = "output"
    SCRATCH = "scratch"


class Action(StrEnum):
    SEND = "send"
    RECEIVE = "receive"
    REDUCE = "receive-and-reduce"
    COPY = "copy"
    ADD = "add"
    """Reduce blocks of the participant's own into others of its own."""


MESSAGES = frozenset({Action.SEND, Action.RECEIVE, Action.REDUCE})
RECEIVES = frozenset({Action.RECEIVE, Action.REDUCE})


@dataclass(frozen=True, slots=True)
class Blocks:
    """`count` blocks of a buffer, from block `start`."""

    buffer: Buffer
    start: int
    count: int = 1

    def part(self, index: int, of: int) -> Blocks:
        """One of `of` equal parts. The count must be a multiple of `of`."""
        size, rest = divmod(self.count, of)
        if rest:
            raise ValueError(f"{self.count} blocks cannot be cut into {of} equal parts")
        return Blocks(self.buffer, self.start + index * size, size)

    def __iter__(self) -> Iterator[tuple[Buffer, int]]:
        return ((self.buffer, self.start + i) for i in range(self.count))


class At(NamedTuple):
    """A step of the same participant: the number of its sequence and its place there."""

    sequence: int
    place: int


@dataclass(frozen=True, slots=True)
class Step:
    """One instruction of one participant.

    `source` is what a send, copy or add reads, `target` what the others write (an add reads it
    too). `peer` and `message` belong to messages: the other participant, and a number that is the
    same at both ends and unique in the program. `phase` is an index into the program's phases.
    """

    action: Action
    source: Blocks | None = None
    target: Blocks | None = None
    peer: int | None = None
    message: int | None = None
    after: tuple[At, ...] = ()
    phase: int = 0

    @property
    def blocks(self) -> Blocks:
        """The blocks that the step moves, named at this end."""
        blocks = self.target if self.source is None else self.source
        assert blocks is not None
        return blocks


@dataclass(frozen=True, slots=True)
class Sequence:
    """Steps that are posted one after the other. `channel` says which of several parallel
    connections of a pair they are meant for."""

    channel: int
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of a program that reports and schedules name: along which dimension it goes (None:
    all ranks at once), and what it does there."""

    name: str
    kind: Kind | None = None
    dimension: int | None = None


class Division(StrEnum):
    """How the elements of a shard are cut into its blocks."""

    EVEN = "even"
    """Lengths differ by at most one element."""
    SEGMENTS = "segments"
    """All as long as the longest must be; the last ones are short or empty, as Gloo cuts."""
    EQUAL = "equal"
    """All alike; a shard must be a multiple of `pieces`. Then any block can become any other."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a program, as its sender names its blocks."""

    number: int
    source: int
    destination: int
    blocks: Blocks
    phase: int


@dataclass(frozen=True, slots=True)
class Program:
    """The steps of every participant of a collective; the same for every size.

    Participants are numbered from 0; the first `ranks` of them are the collective's ranks, others
    (switches) have neither input nor output. `pieces` is the number of blocks of a shard for kinds
    that split, of the whole buffer for others. Block i of any buffer is as long as block
    i modulo `pieces`, and moves to blocks of its own length only. `window` bounds the receives
    under way in a sequence; None: unbounded.
    """

    kind: Kind
    ranks: int
    pieces: int
    participants: tuple[tuple[Sequence, ...], ...]
    phases: tuple[Phase, ...] = (Phase("all"),)
    scratch_blocks: int = 0
    root: int = 0
    window: int | None = None
    division: Division = Division.EVEN
    algorithm: str = ""
    message_count: int = field(init=False, compare=False)
    """How many messages there are. Counted once: each rank asks for each of its collectives."""

    def __post_init__(self) -> None:
        count = sum(
            step.action is Action.SEND
            for sequences in self.participants
            for sequence in sequences
            for step in sequence.steps
        )
        object.__setattr__(self, "message_count", count)

    def seen_by(self, participant: int) -> Program:
        """The program with the steps of one participant alone, which it needs to run its part; all
        messages still count."""
        own = tuple(
            sequences if number == participant else ()
            for number, sequences in enumerate(self.participants)
        )
        seen = replace(self, participants=own)
        object.__setattr__(seen, "message_count", self.message_count)
        return seen

    @property
    def in_place(self) -> bool:
        return self.kind in IN_PLACE

    @property
    def input_blocks(self) -> int:
        split = self.kind in (Kind.REDUCE_SCATTER, Kind.ALL_TO_ALL)
        return self.pieces * (self.ranks if split else 1)

    @property
    def output_blocks(self) -> int:
        split = self.kind in (Kind.ALL_GATHER, Kind.ALL_TO_ALL)
        return self.pieces * (self.ranks if split else 1)

    def blocks_of(self, buffer: Buffer) -> int:
        """How many blocks a buffer has."""
        match buffer:
            case Buffer.INPUT:
                return self.input_blocks
            case Buffer.OUTPUT:
                return self.output_blocks
            case Buffer.SCRATCH:
                return self.scratch_blocks

    def shard_elements(self, elements: int) -> int:
        """Elements that `pieces` blocks hold, of a collective of `elements` (as its kind counts
        them)."""
        return elements // self.ranks if self.kind.traits.splits else elements

    def bounds(self, blocks: Blocks, elements: int) -> tuple[int, int]:
        """First element and end of some blocks in their buffer, for a collective of `elements`."""
        shard = self.shard_elements(elements)
        return self._offset(blocks.start, shard), self._offset(blocks.start + blocks.count, shard)

    def elements_of(self, blocks: Blocks, elements: int) -> int:
        """How many elements some blocks hold."""
        first, end = self.bounds(blocks, elements)
        return end - first

    def offsets(self, blocks: npt.NDArray[np.int64], elements: int) -> npt.NDArray[np.int64]:
        """The first element of each of some blocks (`bounds`)."""
        import numpy as np

        shard = self.shard_elements(elements)
        shards, piece = np.divmod(blocks, self.pieces)
        if self.division is not Division.SEGMENTS:
            within = piece * shard // self.pieces
        else:
            within = np.minimum(piece * -(-shard // self.pieces), shard)
        found: npt.NDArray[np.int64] = shards * shard + within
        return found

    def _offset(self, block: int, shard: int) -> int:
        shards, piece = divmod(block, self.pieces)
        if self.division is not Division.SEGMENTS:
            within = piece * shard // self.pieces
        else:
            within = min(piece * -(-shard // self.pieces), shard)
        return shards * shard + within

    def steps(self) -> Iterator[tuple[int, At, Step]]:
        """Every step with its participant and its place."""
        for participant, sequences in enumerate(self.participants):
            for number, sequence in enumerate(sequences):
                for place, step in enumerate(sequence.steps):
                    yield participant, At(number, place), step

    def messages(self) -> tuple[Message, ...]:
        """All messages, by number."""
        found = []
        for participant, _, step in self.steps():
            if step.action is Action.SEND:
                assert step.message is not None
                assert step.peer is not None
                message = Message(step.message, participant, step.peer, step.blocks, step.phase)
                found.append(message)
        return tuple(sorted(found, key=lambda message: message.number))

    def sent_bytes(self, size_bytes: int, element_bytes: int) -> tuple[int, ...]:
        """Payload that each participant sends."""
        sent = [0] * len(self.participants)
        elements = size_bytes // element_bytes
        for message in self.messages():
            sent[message.source] += self.elements_of(message.blocks, elements) * element_bytes
        return tuple(sent)


IN_PLACE = frozenset({Kind.ALL_REDUCE, Kind.BROADCAST, Kind.REDUCE})
"""Kinds whose programs work in the caller's buffer."""

PROGRAM_KINDS = (
    Kind.ALL_REDUCE,
    Kind.REDUCE_SCATTER,
    Kind.ALL_GATHER,
    Kind.ALL_TO_ALL,
    Kind.BROADCAST,
    Kind.REDUCE,
)
"""Kinds that programs exist for."""
