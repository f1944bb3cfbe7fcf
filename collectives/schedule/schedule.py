"""The messages of a collective, their participants and their order: one form for every reader."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from collectives.in_network.node import Aggregator, Hold
from collectives.kinds import Kind, Shape
from collectives.program import Program
from collectives.schedule.operations import CompiledPrograms, Gates, Marks, NumberOfMark
from collectives.start_order import CollectiveOrder

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Ints = npt.NDArray[np.int64]


class CollectiveError(ValueError):
    """A collective that cannot be, or that an algorithm or a predictor has no answer for."""


@dataclass(frozen=True)
class Post:
    """Messages posted without blocking: `source[i]` sends `size_bytes[i]` to `destination[i]`.

    With `sends_first` a member posts its send before its receive, so that the payload of a send
    that has its RECV_READY already goes into the port's queue before the member's own RECV_READY.
    """

    source: Ints
    destination: Ints
    size_bytes: Ints
    sends_first: bool = False


@dataclass(frozen=True, slots=True)
class Chunk:
    """Elements `first` to `first + count` of every shard (of the buffer, for kinds that do not
    split), and what is done with them. `hold` is its own share at switches."""

    index: int
    first: int
    count: int
    program: Program
    hold: Hold | None = None

    @property
    def elements(self) -> int:
        """The chunk's elements as the kind counts them."""
        return self.count * (self.program.ranks if self.program.kind.traits.splits else 1)


@dataclass(frozen=True, slots=True)
class NumberedMessage:
    """A message of a program: its ends, its bytes, and its slot, which is unique in the
    schedule."""

    source: int
    destination: int
    size_bytes: int
    slot: int
    chunk: int
    phase: int


@dataclass(frozen=True, slots=True)
class Queue:
    """The queue in which a rank's collectives of a group wait for their start: `at_once` of them
    run, and `order` says which goes next. Collectives whose `name` is equal wait in one queue."""

    name: tuple[object, ...]
    order: CollectiveOrder
    at_once: int


class Schedule(ABC):
    """A collective's messages. Participants are its ranks, by their positions in the group, and
    after them the switches that take part.

    The properties below have the values of a schedule without chunks, switches and queue. A
    schedule that has some overrides them.
    """

    __slots__ = ()

    @property
    def algorithm(self) -> str | None:
        """The name of the program that runs it; None where no program of ours does."""
        return None

    @property
    def observed(self) -> bool:
        """Whether its messages were read off a wire: nobody knows what its ranks wait for."""
        return False

    @property
    def uneven(self) -> bool:
        """Whether members send each other unequal parts, which the shape does not tell: closed
        forms of its kind are not of it."""
        return False

    @property
    def by_carrier(self) -> bool:
        """Whether its messages go between ends of a transport `of_programs`, where ranks have some:
        programs between ranks."""
        return False

    @property
    def chunks(self) -> tuple[Chunk, ...]:
        """The parts that are programs of their own; none where it runs as one."""
        return ()

    @property
    def in_flight(self) -> int:
        """How many chunks are under way at once; 0: all."""
        return 0

    @property
    def priority(self) -> int:
        """Which of the collectives that wait goes first."""
        return 0

    @property
    def aggregators(self) -> tuple[Aggregator, ...]:
        """The switches that take part, after the ranks."""
        return ()

    @property
    def trees(self) -> int:
        """How many trees of switches chunks take in turn."""
        return 1

    @property
    def endpoint_delay_ns(self) -> int:
        """Time that a rank takes to inject each message."""
        return 0

    @property
    def launch_ns(self) -> int:
        """Time that a rank takes before each chunk, or before the whole."""
        return 0

    def participants(self, ranks: Sequence[int]) -> tuple[int, ...]:
        """The numbers of all participants, of which the ranks have these."""
        return (*ranks, *(switch.number for switch in self.aggregators))

    def part(self, number: int, parts: int) -> Self:
        """The chunks that are one of so many trees' turn, with slots and bounds of their own."""
        return self

    def beside(self, others: int) -> Self:
        """The schedule among the ranks of several jobs, which are so many more."""
        return self

    def queue(self, kind: Kind) -> Queue | None:
        """The queue in which a collective of this kind waits for its start; None where it starts at
        once."""
        return None

    def sends_nothing(self, shape: Shape) -> bool:
        """Whether no message leaves a rank."""
        return shape.ranks == 1 or shape.size_bytes == 0

    def ends_when_awaited(self, kind: Kind) -> bool:
        """Whether it ends where a rank waits for it, as nothing tells of its end."""
        return False

    def numbered_messages(self) -> Iterator[NumberedMessage]:
        """The messages that have slots of their own on the wire; none where tags tell them
        apart."""
        return iter(())

    def count(self, shape: Shape, seed: int = 1, most: int | None = None) -> int:
        """Messages, without keeping them. Beyond `most` they are not counted on."""
        found = 0
        for post in self.posts(shape, seed):
            found += len(post.source)
            if most is not None and found > most:
                break
        return found

    def alone(self, shape: Shape, seed: int = 1) -> CompiledPrograms:
        """All that participants do, on its own: ends are participants. Raises CollectiveError."""
        found = CompiledPrograms()
        ends = range(shape.ranks + len(self.aggregators))
        self.compile(shape, found, ends, Marks().number, seed=seed)
        return found

    @abstractmethod
    def posts(self, shape: Shape, seed: int = 1) -> Iterator[Post]:
        """All messages between participants, in as many parts as ranks post them in. `seed` draws
        permutations. Raises CollectiveError for a kind without a schedule."""

    @abstractmethod
    def compile(
        self,
        shape: Shape,
        into: CompiledPrograms,
        ends: Sequence[int],
        mark: NumberOfMark,
        gates: Gates | None = None,
        seed: int = 1,
    ) -> None:
        """Add what all participants do to programs that may have others already. `ends` has the
        number of each participant's end of its connections; `mark` numbers the marks of this
        collective. `gates` are what each chunk begins and ends with, in place of the schedule's own
        bound of chunks in flight. Raises CollectiveError."""
