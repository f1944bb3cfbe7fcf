"""Messages that ranks post at one time by Gloo's library, and that are no collective of its own, as
a permutation of XLA."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from collectives.kinds import Shape
from collectives.schedule.gloo_steps import Wait, add_steps
from collectives.schedule.operations import CompiledPrograms, Gates, NumberOfMark
from collectives.schedule.schedule import Post, Schedule


@dataclass(frozen=True, slots=True)
class ExchangeSchedule(Schedule):
    """The (source, destination, bytes) of messages, by positions in the ranks. Each rank posts what
    it sends, then what it receives, and waits for both (xla/backends/cpu/collectives,
    `GlooCommunicator::CollectivePermute`)."""

    messages: tuple[tuple[int, int, int], ...]

    def posts(self, shape: Shape, seed: int = 1) -> Iterator[Post]:
        """All at once."""
        if self.messages:
            import numpy as np

            source, destination, size_bytes = np.array(self.messages, dtype=np.int64).T
            yield Post(source, destination, size_bytes, sends_first=True)

    def compile(
        self,
        shape: Shape,
        into: CompiledPrograms,
        ends: Sequence[int],
        mark: NumberOfMark,
        gates: Gates | None = None,
        seed: int = 1,
    ) -> None:
        """A post and a wait of each rank."""
        steps: list[Post | Wait] = [*self.posts(shape)]
        if self.messages:
            steps.append(Wait(0))
        add_steps(steps, into, ends, gates)
