"""Operations of a compiled schedule: what each participant posts, and what it waits for next."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Ints = npt.NDArray[np.int32]


class Runner(Protocol):
    """An engine that runs operations."""

    def mark(self, number: int, now: float) -> None:
        """Make a mark, and let those go on that wait for it."""


@dataclass(slots=True)
class Start:
    """Messages that a member posts at once, by number: its sends and its receives."""

    sends: list[int]
    receives: list[int]
    sends_first: bool = False


@dataclass(slots=True)
class Await:
    """A wait for messages, and for marks that others of its own make."""

    sends: list[int]
    receives: list[int]
    marks: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Mark:
    """Tells those who wait for this mark that the member has come here."""

    number: int


@dataclass(frozen=True, slots=True)
class Pause:
    """Nothing is done for a while."""

    duration_ns: float


@dataclass(frozen=True, slots=True)
class Sleep:
    """Nothing is done until a time that is known by then."""

    until_ns: Callable[[], float]


@dataclass(frozen=True, slots=True)
class Occupy:
    """A unit is taken for a while, by one after the other; what it does is ready `latency_ns` after
    that."""

    unit: int
    duration_ns: float
    latency_ns: float


@dataclass(frozen=True, slots=True)
class Do:
    """Something is done at once, such as choosing what starts next: it gets the programs that run
    and the time."""

    call: Callable[[Runner, float], None]


@dataclass(frozen=True, slots=True)
class Follow:
    """The program's part of steps that it goes through with others, by their number
    (`CompiledPrograms.steps`)."""

    steps: int


@dataclass(frozen=True, slots=True)
class Exchange:
    """Starts and waits for messages alone, one after the other, as words (`EXCHANGE_WORDS`)."""

    words: Ints


Operation = Start | Await | Mark | Pause | Sleep | Occupy | Do | Follow | Exchange


EXCHANGE_WORDS = START_WORD, AWAIT_WORD = 0, 1
"""The words of an exchange: for a start START_WORD, whether its sends go before its receives, how
many there are of each, and their numbers, sends first; for a wait AWAIT_WORD, how many sends,
receives and marks there are, and their numbers in that order. They are those of the packet engine
(`Operation` of simulation/engine/programs.hpp)."""


NumberOfMark = Callable[..., int]
"""The number of a mark, by the thing that it marks."""


class Marks:
    """Numbers of marks, by the things that they mark."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[object, ...], int] = {}

    def number(self, *what: object) -> int:
        """The number of a mark."""
        return self._numbers.setdefault(what, len(self._numbers))


@dataclass(frozen=True, slots=True)
class Gates:
    """The operations around a chunk: `begin(chunk, participant)` comes before it, and
    `end(chunk, participant, sequences)` after each of so many sequences. The chunk's thread runs
    the first of several sequences, and has a thread for each of the others wake by a mark,
    `woken(chunk, participant)`; where each sequence begins by itself there is none (None)."""

    begin: Callable[[int, int], Operation]
    end: Callable[[int, int, int], Operation]
    woken: Callable[[int, int], int] | None = None


SENDS, RECEIVES, WAITS, RECEIVES_FIRST = 1, 2, 4, 8
"""The kind of a step is a sum: a post, whose sends go before its receives (SENDS) or not (0), or a
wait (WAITS) for sends, receives or both, receives before sends (RECEIVES_FIRST) or not."""


@dataclass(frozen=True, slots=True)
class CommonSteps:
    """Steps that programs `first_program` and the `programs` - 1 after it go through together, each
    doing its part: step i is of `kind[i]`, and of the messages from `first[i]` up to `end[i]`,
    which is not among them."""

    first_program: int
    programs: int
    kind: array[int]
    first: array[int]
    end: array[int]


@dataclass(slots=True)
class CompiledPrograms:
    """Programs, and for each message its bytes and its ends: `source` and `destination` are the
    ends of connections, `sender` and `receiver` the programs that send and receive it. Several
    programs can belong to one end: `ends` has that of each program. `has_nodes` says that switches
    take part. Steps that programs go through together are kept as such where the reader
    `follows_steps`; else each program has its own part of them. Where it `packs`, what a program
    does may come as exchanges."""

    programs: list[list[Operation]] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    source: array[int] = field(default_factory=lambda: array("i"))
    destination: array[int] = field(default_factory=lambda: array("i"))
    sender: array[int] = field(default_factory=lambda: array("i"))
    receiver: array[int] = field(default_factory=lambda: array("i"))
    size_bytes: array[int] = field(default_factory=lambda: array("q"))
    has_nodes: bool = False
    follows_steps: bool = False
    packs: bool = False
    steps: list[CommonSteps] = field(default_factory=list)

    def program(self, end: int, operations: list[Operation] | None = None) -> int:
        """Add a program of an end; its number."""
        self.programs.append([] if operations is None else operations)
        self.ends.append(end)
        return len(self.programs) - 1

    def message(
        self, source: int, destination: int, size_bytes: int, sender: int = -1, receiver: int = -1
    ) -> int:
        """Add a message between ends; its number."""
        self.source.append(source)
        self.destination.append(destination)
        self.size_bytes.append(size_bytes)
        self.sender.append(sender)
        self.receiver.append(receiver)
        return len(self.source) - 1
