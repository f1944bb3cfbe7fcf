"""The waits of each step of a participant, by the rules of `program`."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from collectives.program import RECEIVES, Action, At, Blocks, Buffer, Program, Sequence


@dataclass(frozen=True, slots=True)
class Waits:
    """Steps that must be complete before a step is posted, and, for a receive-and-reduce, those
    that must be complete before it is applied."""

    posted: tuple[At, ...]
    applied: tuple[At, ...]


_KEPT = 1 << 14
"""Participants' waits that are kept: those of some dozen programs of a thousand ranks."""


def waits_of(program: Program, participant: int) -> tuple[tuple[Waits, ...], ...]:
    """By sequence and place. Steps that are complete because others are may be left out.

    A comparison compiles each program for each predictor, so they are kept, by the program itself:
    to compare two takes as long as to find the waits.
    """
    return _kept(_Itself(program), participant)


class _Itself:
    """A program that is equal to itself alone."""

    __slots__ = ("program",)

    def __init__(self, program: Program) -> None:
        self.program = program

    def __hash__(self) -> int:
        return id(self.program)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and other.program is self.program


@lru_cache(maxsize=_KEPT)
def _kept(itself: _Itself, participant: int) -> tuple[tuple[Waits, ...], ...]:
    program = itself.program
    return tuple(
        _of_sequence(number, sequence, program.window)
        for number, sequence in enumerate(program.participants[participant])
    )


class Moves(Protocol):
    """A step, or one that is to be: what it does to which blocks."""

    @property
    def action(self) -> Action: ...
    @property
    def source(self) -> Blocks | None: ...
    @property
    def target(self) -> Blocks | None: ...


def reads(step: Moves) -> frozenset[tuple[Buffer, int]]:
    """Blocks that a step reads when it is posted or applied."""
    blocks = set() if step.source is None else set(step.source)
    if step.action in (Action.REDUCE, Action.ADD) and step.target is not None:
        blocks |= set(step.target)
    return frozenset(blocks)


def writes(step: Moves) -> frozenset[tuple[Buffer, int]]:
    """Blocks that a step writes."""
    return frozenset() if step.target is None else frozenset(step.target)


_NOBODY = -1
"""In place of a step."""


def _of_sequence(number: int, sequence: Sequence, window: int | None) -> tuple[Waits, ...]:
    pieces = _Pieces(sequence)
    # By piece, of which steps name many in a row: who wrote it last, and who has read it since.
    writer = [_NOBODY] * len(pieces)
    readers: list[tuple[int, ...]] = [()] * len(pieces)
    receives: list[int] = []
    # Steps wait for the same ones again and again: each place is made once.
    places = [At(number, place) for place in range(len(sequence.steps))]
    found = []
    for place, step in enumerate(sequence.steps):
        source, target = pieces.of(step.source), pieces.of(step.target)
        first, end = target.start, target.stop
        conflicts = {*writer[source.start : source.stop], *writer[first:end]}
        conflicts.update(*readers[first:end])
        conflicts.discard(_NOBODY)
        posted: set[int] = set()
        if step.action in RECEIVES:
            if window is not None and len(receives) >= window:
                posted.add(receives[-window])
            receives.append(place)
        staged = step.action is Action.REDUCE
        if not staged:
            posted |= conflicts
        local = tuple(map(places.__getitem__, sorted(posted)))
        applied = tuple(map(places.__getitem__, sorted(conflicts))) if staged else ()
        found.append(Waits(step.after + local, applied))
        if target:
            writer[first:end] = [place] * len(target)
            readers[first:end] = [()] * len(target)
        for piece in source:
            if piece not in target:
                readers[piece] += (place,)
    return tuple(found)


class _Pieces:
    """Blocks that all steps of a sequence name together, or not at all, as one piece."""

    def __init__(self, sequence: Sequence) -> None:
        cuts: dict[Buffer, set[int]] = defaultdict(set)
        for step in sequence.steps:
            for blocks in (step.source, step.target):
                if blocks is not None:
                    cuts[blocks.buffer] |= {blocks.start, blocks.start + blocks.count}
        self._of: dict[tuple[Buffer, int], int] = {}
        for buffer, places in cuts.items():
            for place in sorted(places):
                self._of[buffer, place] = len(self._of)

    def __len__(self) -> int:
        return len(self._of)

    def of(self, blocks: Blocks | None) -> range:
        """The pieces of some blocks."""
        if blocks is None:
            return range(0)
        first = self._of[blocks.buffer, blocks.start]
        return range(first, self._of[blocks.buffer, blocks.start + blocks.count])
