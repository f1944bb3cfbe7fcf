"""The operations of a program's ranks as words, which are made once, and moved to each chunk.

A run has the same program in many chunks and collectives, and a comparison compiles each of them
for each predictor.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from collectives.program import Program
from collectives.schedule.operations import (
    AWAIT_WORD,
    START_WORD,
    Await,
    CompiledPrograms,
    Exchange,
    Mark,
    Operation,
    Start,
)

Ints = npt.NDArray[np.int32]

_KEPT = 64
"""Programs that are kept."""


@dataclass(frozen=True, slots=True)
class PackedProgram:
    """By message: its ends, as participants, and its bounds in blocks. By participant, who has one
    sequence: where its words begin. `is_message` says which words are numbers of messages, which
    count from 0 here."""

    source: Ints
    destination: Ints
    first_block: npt.NDArray[np.int64]
    end_block: npt.NDArray[np.int64]
    words: Ints
    is_message: npt.NDArray[np.bool_]
    first: tuple[int, ...]

    @classmethod
    def of(
        cls, program: Program, programs: Sequence[Sequence[Operation]], message: int
    ) -> PackedProgram | None:
        """From what the participants were compiled to, each one's with an operation before and one
        after it. The first message has this number, and no message is empty. None where they do
        more than exchange messages."""
        words, is_message = array("i"), bytearray()
        first = [0]
        for _, *own, _ in programs:
            for operation in own:
                if isinstance(operation, Mark):
                    continue  # of a local step, which the only sequence itself waits for
                if isinstance(operation, Start):
                    lists = operation.sends, operation.receives
                    head = [START_WORD, operation.sends_first, *map(len, lists)]
                elif isinstance(operation, Await) and not operation.marks:
                    lists = operation.sends, operation.receives
                    head = [AWAIT_WORD, *map(len, lists), 0]
                else:
                    return None
                words.extend(head)
                is_message += b"\0" * len(head)
                for numbers in lists:
                    words.extend(number - message for number in numbers)
                    is_message += b"\1" * len(numbers)
            first.append(len(words))
        messages = program.messages()
        return cls(
            np.array([each.source for each in messages], dtype=np.int32),
            np.array([each.destination for each in messages], dtype=np.int32),
            np.array([each.blocks.start for each in messages], dtype=np.int64),
            np.array([each.blocks.start + each.blocks.count for each in messages], dtype=np.int64),
            np.frombuffer(words, dtype=np.int32),
            np.frombuffer(is_message, dtype=np.bool_),
            tuple(first),
        )

    def add(
        self,
        into: CompiledPrograms,
        ends: npt.NDArray[np.int32],
        size_bytes: npt.NDArray[np.int64],
    ) -> list[Exchange]:
        """Add the messages, with so many bytes each; the exchange of each participant, whose
        programs are the next ones."""
        message, program = len(into.source), np.int32(len(into.programs))
        into.source.frombytes(ends[self.source].tobytes())
        into.destination.frombytes(ends[self.destination].tobytes())
        into.size_bytes.frombytes(size_bytes.tobytes())
        into.sender.frombytes((self.source + program).tobytes())
        into.receiver.frombytes((self.destination + program).tobytes())
        words = self.words + self.is_message * np.int32(message)
        return [Exchange(words[begin:end]) for begin, end in pairwise(self.first)]

    def elements(self, program: Program, elements: int) -> npt.NDArray[np.int64]:
        """How many elements each message has, of a collective of `elements`."""
        found: npt.NDArray[np.int64] = program.offsets(self.end_block, elements)
        return found - program.offsets(self.first_block, elements)


class PackedPrograms:
    """The last programs that were met; those that were met twice by themselves, packed, or None
    where they cannot be. One that comes once, such as a collective of thousands of ranks, is not
    worth it."""

    def __init__(self) -> None:
        self._met: dict[int, Program] = {}
        self._known: dict[int, PackedProgram | None] = {}

    def knows(self, program: Program) -> bool:
        """Whether it was kept before."""
        return id(program) in self._known

    def __getitem__(self, program: Program) -> PackedProgram | None:
        return self._known[id(program)]

    def comes_again(self, program: Program) -> bool:
        """Whether it was met before; it is from now on. The program is kept, so that no other has
        its place."""
        if id(program) in self._met:
            return True
        while len(self._met) >= _KEPT:
            first = next(iter(self._met))
            del self._met[first]
            self._known.pop(first, None)
        self._met[id(program)] = program
        return False

    def keep(self, program: Program, packed: PackedProgram | None) -> None:
        """Keep what a program that was met before is packed to."""
        self._known[id(program)] = packed
