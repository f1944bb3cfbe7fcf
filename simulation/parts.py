"""The parts of ranks in a collective, as the driven engine is told of them (engine/parts.hpp): each
with all that a rank does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from collectives.kinds import Shape
from collectives.schedule.operations import (
    Await,
    CompiledPrograms,
    Do,
    Gates,
    Mark,
    Marks,
    Operation,
    Pause,
    Runner,
    Start,
)
from collectives.schedule.schedule import Schedule

RECEIVES_FIRST, SENDS_FIRST, WAITS, MARKS, WAITS_FOR_MARK, SLEEPS, ENDS = range(7)
"""`Part::Kind` of engine/parts.hpp."""


@dataclass(frozen=True, slots=True)
class PartsOfRanks:
    """The part of each rank in a collective, in 64-bit words, and how many tags its messages
    take."""

    words: tuple[Sequence[int], ...]
    tags: int

    @classmethod
    def of(cls, schedule: Schedule, shape: Shape) -> PartsOfRanks:
        """Those of a schedule, without switches. Chunks of a program begin as a rank has slots and
        threads for them (`workloads.execution.programs.engine`). Raises CollectiveError."""
        ranks = range(shape.ranks)
        marks = Marks()
        if schedule.algorithm is None:
            compiled = schedule.alone(shape)
            chunks = 0
        else:
            compiled = CompiledPrograms()
            chunks = len(schedule.chunks)

            def begin(chunk: int, rank: int) -> Operation:
                return Await([], [], [marks.number("begins", chunk, rank)])

            def woken(chunk: int, rank: int) -> int:
                return marks.number("woken", chunk, rank)

            gates = Gates(begin, lambda chunk, rank, ends: Do(_ChunkIsOver(chunk)), woken)
            schedule.compile(shape, compiled, ranks, marks.number, gates)
        own: list[list[int]] = [[] for _ in ranks]
        for number, rank in enumerate(compiled.ends):
            own[rank].append(number)
        members = {rank: rank for rank in ranks}
        words = []
        for rank, numbers in zip(ranks, own, strict=True):
            known = {
                marks.number(what, chunk, rank): 2 * chunk + place
                for chunk in range(chunks)
                for place, what in enumerate(("begins", "woken"))
            }
            in_flight = schedule.in_flight if chunks else 0
            words.append(part_words(compiled, numbers, members, known, chunks, in_flight))
        return cls(tuple(words), len(compiled.source))


@dataclass(frozen=True, slots=True)
class _ChunkIsOver:
    """A chunk of a rank has come to its end. Engines are told of it, and do not call it."""

    chunk: int

    def __call__(self, programs: Runner, now: float) -> None:
        raise NotImplementedError


def part_words(
    programs: CompiledPrograms,
    numbers: Sequence[int],
    members: Mapping[int, int],
    marks: Mapping[int, int] | None = None,
    chunks: int = 0,
    in_flight: int = 0,
) -> list[int]:
    """A rank's part of a compiled schedule, as the engine has it: its programs, by their numbers.
    `members` has the position of each end among the ranks of the collective; tags are the numbers
    of messages. There are so many `chunks`, `in_flight` of them under way at once (0: all), and
    `marks` has the numbers of the marks by which they begin. Raises TypeError for an operation of
    switches, or of several collectives."""
    known: dict[int, int] = {}
    known_marks = dict(marks or {})
    threads: list[int] = []
    for number in numbers:
        steps = [
            step
            for operation in programs.programs[number]
            for step in _steps(operation, known, known_marks)
        ]
        threads.append(len(steps))
        for step in steps:
            threads += step
    found = [len(known)]
    for each in known:
        ends = members[programs.source[each]], members[programs.destination[each]]
        found += (*ends, each, programs.size_bytes[each])
    return [*found, chunks, in_flight, *threads]


def _steps(
    operation: Operation, known: dict[int, int], marks: dict[int, int]
) -> Iterator[list[int]]:
    """The steps of an operation; messages and marks are numbered as they come."""
    match operation:
        case Start(sends, receives, sends_first):
            yield _of_messages(
                SENDS_FIRST if sends_first else RECEIVES_FIRST, sends, receives, known
            )
        case Await(sends, receives, awaited):
            if sends or receives:
                yield _of_messages(WAITS, sends, receives, known)
            for mark in awaited:
                yield [WAITS_FOR_MARK, marks.setdefault(mark, len(marks))]
        case Mark(number):
            yield [MARKS, marks.setdefault(number, len(marks))]
        case Pause(duration_ns):
            yield [SLEEPS, round(duration_ns)]
        case Do(_ChunkIsOver(chunk)):
            yield [ENDS, chunk]
        case _:
            raise TypeError(f"no post, wait, mark or pause: {operation!r}")


def _of_messages(
    kind: int, sends: Sequence[int], receives: Sequence[int], known: dict[int, int]
) -> list[int]:
    messages = (known.setdefault(each, len(known)) for each in (*sends, *receives))
    return [kind, len(sends), len(receives), *messages]
