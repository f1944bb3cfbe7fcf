"""Writes programs: rounds of messages in an order in which they could run one after the other.

Because every participant posts its steps in the order of the rounds, the earliest round that is not
over has all its ends posted: what is built so cannot deadlock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
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


@dataclass(slots=True)
class _Added:
    """A step as it was added."""

    action: Action
    source: Blocks | None
    target: Blocks | None
    peer: int | None
    message: int | None
    phase: int


class Builder:
    """A program in the making. Channels of a participant become its sequences."""

    def __init__(
        self, kind: Kind, ranks: int, pieces: int, root: int = 0, participants: int | None = None
    ) -> None:
        self.kind = kind
        self.ranks = ranks
        self.pieces = pieces
        self.root = root
        self._steps: list[dict[int, list[_Added]]] = [{} for _ in range(participants or ranks)]
        self._order: list[list[int]] = [[] for _ in range(participants or ranks)]
        """The channel of each step of a participant, in the order in which they were added."""
        self._phases: list[Phase] = []
        self._phase = 0
        self._scratch = 0
        self._messages = 0
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
        self._add(move.receiver, channel, action, None, move.target, move.sender, number)

    def send(self, number: int, move: Move, channel: int = 0) -> None:
        """The sender's end of a message."""
        self._add(move.sender, channel, Action.SEND, move.source, None, move.receiver, number)

    def copy(self, participant: int, source: Blocks, target: Blocks, channel: int = 0) -> None:
        """Copy within one participant."""
        self._add(participant, channel, Action.COPY, source, target)

    def add(self, participant: int, source: Blocks, target: Blocks, channel: int = 0) -> None:
        """Reduce blocks of one participant into others of its own."""
        self._add(participant, channel, Action.ADD, source, target)

    def build(self, window: int | None = None, division: Division = Division.EVEN) -> Program:
        """The program. Its messages are numbered by sender, sequence and place."""
        number: dict[int, int] = {}
        for channels in self._steps:
            for steps in channels.values():
                for each in steps:
                    if each.action is Action.SEND and each.message is not None:
                        number[each.message] = len(number)
        return Program(
            self.kind,
            self.ranks,
            self.pieces,
            tuple(self._sequences(each, number) for each in range(len(self._steps))),
            tuple(self._phases) or (Phase("nothing"),),
            self._scratch,
            self.root,
            window,
            division,
        )

    def _add(
        self,
        participant: int,
        channel: int,
        action: Action,
        source: Blocks | None,
        target: Blocks | None,
        peer: int | None = None,
        message: int | None = None,
    ) -> None:
        if not self._phases:
            self.phase(self.kind.traits.label)
        step = _Added(action, source, target, peer, message, self._phase)
        self._steps[participant].setdefault(channel, []).append(step)
        self._order[participant].append(channel)

    def _sequences(self, participant: int, number: Mapping[int, int]) -> tuple[Sequence, ...]:
        """The sequences of a participant, whose messages get these numbers."""
        channels = self._steps[participant]
        after = self._conflicts(participant)
        return tuple(
            Sequence(
                channel,
                tuple(
                    Step(
                        each.action,
                        each.source,
                        each.target,
                        each.peer,
                        None if each.message is None else number.get(each.message, each.message),
                        after.get(At(sequence, place), ()) if after else (),
                        each.phase,
                    )
                    for place, each in enumerate(steps)
                ),
            )
            for sequence, (channel, steps) in enumerate(channels.items())
        )

    def _conflicts(self, participant: int) -> dict[At, tuple[At, ...]]:
        """By step: the earlier ones of other sequences that it conflicts with. Those of its own
        sequence it waits for anyway."""
        channels = self._steps[participant]
        if len(channels) < 2:
            return {}
        keys = {channel: number for number, channel in enumerate(channels)}
        access: dict[tuple[Buffer, int], _Access] = defaultdict(lambda: _Access(None, []))
        places = [0] * len(channels)
        found = {}
        for channel in self._order[participant]:
            sequence = keys[channel]
            here = At(sequence, places[sequence])
            places[sequence] += 1
            step = channels[channel][here.place]
            read, written = reads(step), writes(step)
            conflicts: set[At] = set()
            for block in read | written:
                last = access[block].writer
                if last is not None:
                    conflicts.add(last)
            for block in written:
                conflicts.update(access[block].readers)
            found[here] = tuple(sorted(at for at in conflicts if at.sequence != sequence))
            for block in written:
                access[block] = _Access(here, [])
            for block in read - written:
                access[block].readers.append(here)
        return found


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
