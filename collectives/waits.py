"""The waits of each step of a participant, by the rules of `program`."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from collectives.program import RECEIVES, Action, At, Buffer, Program, Sequence, Step


@dataclass(frozen=True, slots=True)
class Waits:
    """Steps that must be complete before a step is posted, and, for a receive-and-reduce, those
    that must be complete before it is applied."""

    posted: tuple[At, ...]
    applied: tuple[At, ...]


def waits_of(program: Program, participant: int) -> tuple[tuple[Waits, ...], ...]:
    """By sequence and place. Steps that are complete because others are may be left out."""
    return tuple(
        _of_sequence(number, sequence, program.window)
        for number, sequence in enumerate(program.participants[participant])
    )


def reads(step: Step) -> frozenset[tuple[Buffer, int]]:
    """Blocks that a step reads when it is posted or applied."""
    blocks = set() if step.source is None else set(step.source)
    if step.action in (Action.REDUCE, Action.ADD) and step.target is not None:
        blocks |= set(step.target)
    return frozenset(blocks)


def writes(step: Step) -> frozenset[tuple[Buffer, int]]:
    """Blocks that a step writes."""
    return frozenset() if step.target is None else frozenset(step.target)


def _of_sequence(number: int, sequence: Sequence, window: int | None) -> tuple[Waits, ...]:
    writer: dict[tuple[Buffer, int], int] = {}
    readers: dict[tuple[Buffer, int], list[int]] = defaultdict(list)
    receives: list[int] = []
    found = []
    for place, step in enumerate(sequence.steps):
        conflicts: set[int] = set()
        for block in reads(step):
            if block in writer:
                conflicts.add(writer[block])
        for block in writes(step):
            if block in writer:
                conflicts.add(writer[block])
            conflicts.update(readers[block])
        posted: set[int] = set()
        if step.action in RECEIVES:
            if window is not None and len(receives) >= window:
                posted.add(receives[-window])
            receives.append(place)
        staged = step.action is Action.REDUCE
        if not staged:
            posted |= conflicts
        local = tuple(At(number, earlier) for earlier in sorted(posted))
        applied = tuple(At(number, earlier) for earlier in sorted(conflicts)) if staged else ()
        found.append(Waits(step.after + local, applied))
        for block in writes(step):
            writer[block] = place
            readers[block] = []
        for block in reads(step) - writes(step):
            readers[block].append(place)
    return tuple(found)
