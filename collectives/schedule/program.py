"""A collective that runs as a program, cut into chunks that take turns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from collectives.in_network.node import Aggregator
from collectives.kinds import Kind, Shape
from collectives.program import Message
from collectives.schedule.lines import PLAIN, Lines
from collectives.schedule.operations import CompiledPrograms, Gates, NumberOfMark
from collectives.schedule.schedule import Chunk, NumberedMessage, Post, Queue, Schedule
from collectives.start_order import CollectiveOrder
from collectives.turns import Turn
from collectives.verify import blocks_in_lines, staging_blocks

FIRST_SLOT = 1 << 24
"""The slot of the first message of a group's first program: tags below are those of messages that
workloads send themselves."""


@dataclass(frozen=True, slots=True)
class ProgramSchedule(Schedule):
    """A collective that is ready to run. `in_flight` is 0 where all chunks are. `turns` has, by
    dimension, the order in which the phases of chunks use it; empty where whoever comes goes.
    Chunks take the `trees` of switches in turn. `slot_stride` is how many slots each chunk has,
    where the schedule is a part of another one (0: as many as it needs). A rank takes `launch_ns`
    before each chunk. Messages go in `lines`."""

    shape: Shape
    chunks: tuple[Chunk, ...] = field()
    in_flight: int = field()
    turns: dict[int, tuple[Turn, ...]]
    active_per_dimension: int
    endpoint_delay_ns: int = 0
    order: CollectiveOrder = CollectiveOrder.FIFO
    priority: int = 0
    aggregators: tuple[Aggregator, ...] = ()
    trees: int = 1
    slot_stride: int = 0
    launch_ns: int = 0
    lines: Lines = PLAIN

    @property
    def algorithm(self) -> str:
        """The name of its program."""
        return self.chunks[0].program.algorithm

    @property
    def by_carrier(self) -> bool:
        """Whether ranks alone send its messages."""
        return not self.aggregators

    def part(self, number: int, parts: int) -> ProgramSchedule:
        """The chunks that are one of so many trees' turn, with slots and bounds of their own."""
        if parts == 1:
            return self
        return replace(
            self,
            chunks=self.chunks[number::parts],
            in_flight=self.in_flight // parts,
            slot_stride=self.slots_per_chunk,
        )

    @property
    def participant_count(self) -> int:
        """Its ranks, and the switches that take part."""
        return max(len(chunk.program.participants) for chunk in self.chunks)

    def seen_by(self, participant: int) -> ProgramSchedule:
        """The schedule with the steps of one participant alone: `Program.seen_by` of each chunk."""
        programs = {id(chunk.program): chunk.program for chunk in self.chunks}
        seen = {key: program.seen_by(participant) for key, program in programs.items()}
        own = tuple(replace(chunk, program=seen[id(chunk.program)]) for chunk in self.chunks)
        return replace(self, chunks=own)

    def beside(self, others: int) -> ProgramSchedule:
        """Switches are numbered after the ranks of all jobs."""
        moved = tuple(replace(each, number=each.number + others) for each in self.aggregators)
        return replace(self, aggregators=moved)

    def queue(self, kind: Kind) -> Queue | None:
        """Chunks wait for one of `in_flight` places. Switches have places of their own, for each
        number of them."""
        if not self.in_flight:
            return None
        own = (self.in_flight,) if self.aggregators else ()
        return Queue(("programs", *own), self.order, self.in_flight)

    @property
    def slots_per_chunk(self) -> int:
        """How many slots each chunk has: as many as the program with most messages."""
        if self.slot_stride:
            return self.slot_stride
        return max(chunk.program.message_count for chunk in self.chunks)

    @property
    def slots(self) -> int:
        """How many slots its messages have."""
        return len(self.chunks) * self.slots_per_chunk

    def numbered_messages(self) -> Iterator[NumberedMessage]:
        """All messages but empty ones, which are not sent. The slot of message m of chunk c is
        c * slots_per_chunk + m."""
        stride = self.slots_per_chunk
        element_bytes = self.shape.element_bytes
        messages: dict[int, tuple[Message, ...]] = {}
        for chunk in self.chunks:
            key = id(chunk.program)
            if key not in messages:
                messages[key] = chunk.program.messages()
            for message in messages[key]:
                elements = chunk.program.elements_of(message.blocks, chunk.elements)
                if elements:
                    yield NumberedMessage(
                        message.source,
                        message.destination,
                        self.lines.wire_bytes(elements * element_bytes),
                        chunk.index * stride + message.number,
                        chunk.index,
                        message.phase,
                    )

    def count(self, shape: Shape, seed: int = 1, most: int | None = None) -> int:
        """Messages, empty ones included."""
        return sum(chunk.program.message_count for chunk in self.chunks)

    def posts(self, shape: Shape, seed: int = 1) -> Iterator[Post]:
        """A post for each chunk."""
        ends: list[tuple[int, int, int]] = []
        chunk = 0
        for message in self.numbered_messages():
            if message.chunk != chunk and ends:
                yield _post(ends)
                ends = []
            chunk = message.chunk
            ends.append((message.source, message.destination, message.size_bytes))
        if ends:
            yield _post(ends)

    def compile(
        self,
        shape: Shape,
        into: CompiledPrograms,
        ends: Sequence[int],
        mark: NumberOfMark,
        gates: Gates | None = None,
        seed: int = 1,
    ) -> None:
        """Each sequence of each chunk is a program."""
        from collectives.schedule.program_operations import ProgramCompiler  # needs numpy

        ProgramCompiler(self, into, ends, mark, gates).compile()

    @property
    def working_bytes(self) -> int:
        """Memory that a rank needs beside source and target: scratch, staging, the chunks of shards
        copied together, and lines, of all chunks under way."""
        element_bytes = self.shape.element_bytes
        sizes = []
        known: dict[int, tuple[int, int]] = {}
        for chunk in self.chunks:
            program = chunk.program
            key = id(program)
            if key not in known:
                staged = staging_blocks(program)
                copied = 0
                if program.kind.traits.splits and len(self.chunks) > 1:
                    copied = program.input_blocks + program.output_blocks
                in_lines = blocks_in_lines(program) if self.lines.flagged else 0
                known[key] = program.scratch_blocks + staged + copied, in_lines
            shard = program.shard_elements(chunk.elements)
            block_bytes = -(-shard // program.pieces) * element_bytes
            plain, in_lines = known[key]
            sizes.append(plain * block_bytes + in_lines * self.lines.wire_bytes(block_bytes))
        return sum(sorted(sizes)[-(self.in_flight or len(sizes)) :])

    @property
    def threads(self) -> int:
        """Threads of a rank: one for each sequence of the chunks under way."""
        under_way = min(self.in_flight or len(self.chunks), len(self.chunks))
        programs = {id(chunk.program): chunk.program for chunk in self.chunks}
        return under_way * max(
            len(sequences) for one in programs.values() for sequences in one.participants
        )


def _post(ends: list[tuple[int, int, int]]) -> Post:
    import numpy as np

    source, destination, size_bytes = np.array(ends, dtype=np.int64).T
    return Post(source, destination, size_bytes)
