"""Gloo's all-to-all whose members send each other unequal parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from collectives.kinds import Kind, Shape
from collectives.schedule.gloo import GLOO
from collectives.schedule.gloo_steps import Step, Wait, add_steps
from collectives.schedule.operations import CompiledPrograms, Gates, NumberOfMark
from collectives.schedule.schedule import Post, Queue, Schedule


@dataclass(frozen=True, slots=True)
class UnevenAllToAll(Schedule):
    """`parts_bytes[i][j]` is what member i sends to member j; what it keeps counts for nothing. In
    round r each posts what it sends to the r-th behind it, then what it receives from the r-th
    before it, and waits for all rounds in the end. A part of no bytes is a message all the same
    (gloo/alltoallv.cc; the rounds are those of gloo/alltoall.cc)."""

    parts_bytes: tuple[tuple[int, ...], ...]

    @property
    def uneven(self) -> bool:
        """It is why there is this schedule."""
        return True

    def queue(self, kind: Kind) -> Queue | None:
        """That of Gloo's other collectives."""
        return GLOO.queue(kind)

    def sends_nothing(self, shape: Shape) -> bool:
        """Nobody is alone."""
        return len(self.parts_bytes) < 2

    def posts(self, shape: Shape, seed: int = 1) -> Iterator[Post]:
        """A round each."""
        import numpy as np

        parts = np.array(self.parts_bytes, dtype=np.int64)
        member = np.arange(len(parts), dtype=np.int64)
        for shift in range(1, len(parts)):
            peer = (member + shift) % len(parts)
            yield Post(member, peer, parts[member, peer], sends_first=True)

    def compile(
        self,
        shape: Shape,
        into: CompiledPrograms,
        ends: Sequence[int],
        mark: NumberOfMark,
        gates: Gates | None = None,
        seed: int = 1,
    ) -> None:
        """All members go through the same rounds."""
        posts = [*self.posts(shape)]
        steps: list[Step] = [*posts, *(Wait(number) for number in range(len(posts)))]
        add_steps(steps, into, ends, gates)
