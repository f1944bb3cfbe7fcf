"""Writes programs: rounds of messages in an order in which they could run one after the other.

Because every participant posts its steps in the order of the rounds, the earliest round that is not
over has all its ends posted: what is built so cannot deadlock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from collectives.kinds import Kind
from collectives.program import (
    Action,
    At,
    Blocks,
    Buffer,
    Division,
    Phase,
    Program,
    Sequence,
    Step,
)
from collectives.waits import reads, writes


@dataclass(frozen=True, slots=True)
class Move:
    """A message: `source` of participant `sender` to `target` of `receiver`, added there with
    `reduce`."""

    sender: int
    source: Blocks
    receiver: int
    target: Blocks
    reduce: bool = False


@dataclass(slots=True)
class _Access:
    writer: At | None
    readers: list[At]


class Builder:
    """A program in the making. Channels of a participant become its sequences."""

    def __init__(
        self, kind: Kind, ranks: int, pieces: int, root: int = 0, participants: int | None = None
    ) -> None:
        self.kind = kind
        self.ranks = ranks
        self.pieces = pieces
        self.root = root
        self._steps: list[dict[int, list[Step]]] = [{} for _ in range(participants or ranks)]
        self._phases: list[Phase] = []
        self._phase = 0
        self._scratch = 0
        self._messages = 0
        self._access: list[dict[tuple[Buffer, int], _Access]] = [
            defaultdict(lambda: _Access(None, [])) for _ in range(participants or ranks)
        ]
        self._keys: list[dict[int, int]] = [{} for _ in range(participants or ranks)]
        self._dimension: int | None = None

    def scratch(self, blocks: int) -> int:
        """Take scratch blocks, in whole shards; the first one's number."""
        first = self._scratch
        self._scratch += -(-blocks // self.pieces) * self.pieces
        return first

    @contextmanager
    def along(self, dimension: int | None) -> Iterator[None]:
        """Phases begun inside go along this dimension."""
        before, self._dimension = self._dimension, dimension
        yield
        self._dimension = before

    def phase(self, name: str, kind: Kind | None = None) -> None:
        """Begin a phase, to which all that follows belongs until the next one begins."""
        if self._dimension is not None:
            name = f"{name} {self._dimension}"
        phase = Phase(name, kind, self._dimension)
        if phase not in self._phases:
            self._phases.append(phase)
        self._phase = self._phases.index(phase)

    def round(self, moves: Iterable[Move], channel: int = 0) -> None:
        """Messages that no participant waits between: it posts its receives, then its sends."""
        numbered = [(self.number(), move) for move in moves]
        for number, move in numbered:
            self.receive(number, move, channel)
        for number, move in numbered:
            self.send(number, move, channel)

    def number(self) -> int:
        """The number of a message whose ends are posted one by one, `receive` and `send`. Whoever
        does so answers for it that nobody waits for ever."""
        self._messages += 1
        return self._messages - 1

    def receive(self, number: int, move: Move, channel: int = 0) -> None:
        """The receiver's end of a message."""
        action = Action.REDUCE if move.reduce else Action.RECEIVE
        self._add(move.receiver, channel, Step(action, None, move.target, move.sender, number))

    def send(self, number: int, move: Move, channel: int = 0) -> None:
        """The sender's end of a message."""
        step = Step(Action.SEND, move.source, None, move.receiver, number)
        self._add(move.sender, channel, step)

    def copy(self, participant: int, source: Blocks, target: Blocks, channel: int = 0) -> None:
        """Copy within one participant."""
        self._add(participant, channel, Step(Action.COPY, source, target))

    def add(self, participant: int, source: Blocks, target: Blocks, channel: int = 0) -> None:
        """Reduce blocks of one participant into others of its own."""
        self._add(participant, channel, Step(Action.ADD, source, target))

    def build(self, window: int | None = None, division: Division = Division.EVEN) -> Program:
        """The program. Its messages are numbered by sender, sequence and place."""
        participants = tuple(
            tuple(Sequence(channel, tuple(steps)) for channel, steps in channels.items())
            for channels in self._steps
        )
        return renumbered(
            Program(
                self.kind,
                self.ranks,
                self.pieces,
                participants,
                tuple(self._phases) or (Phase("nothing"),),
                self._scratch,
                self.root,
                window,
                division,
            )
        )

    def _add(self, participant: int, channel: int, step: Step) -> None:
        if not self._phases:
            self.phase(self.kind.traits.label)
        steps = self._steps[participant].setdefault(channel, [])
        sequence = self._keys[participant].setdefault(channel, len(self._keys[participant]))
        here = At(sequence, len(steps))
        access = self._access[participant]
        conflicts: set[At] = set()
        for block in reads(step) | writes(step):
            last = access[block].writer
            if last is not None:
                conflicts.add(last)
        for block in writes(step):
            conflicts.update(access[block].readers)
        # Those of its own sequence it waits for anyway.
        after = tuple(sorted(at for at in conflicts if at.sequence != sequence))
        source, target, peer, message = step.source, step.target, step.peer, step.message
        steps.append(Step(step.action, source, target, peer, message, after, self._phase))
        for block in writes(step):
            access[block] = _Access(here, [])
        for block in reads(step) - writes(step):
            access[block].readers.append(here)


def renumbered(program: Program) -> Program:
    """The same program with its messages numbered by sender, sequence and place."""
    number: dict[int, int] = {}
    for _, _, step in program.steps():
        if step.action is Action.SEND and step.message is not None:
            number[step.message] = len(number)

    def of(step: Step) -> Step:
        if step.message is None or number.get(step.message) == step.message:
            return step
        return replace(step, message=number.get(step.message, step.message))

    participants = tuple(
        tuple(replace(s, steps=tuple(of(step) for step in s.steps)) for s in sequences)
        for sequences in program.participants
    )
    return replace(program, participants=participants)
