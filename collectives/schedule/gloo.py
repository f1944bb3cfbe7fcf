"""Gloo's own algorithms as a schedule. Their steps are in `gloo_steps`, which needs numpy: commands
know of a schedule before anything of it is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from collectives.kinds import Kind, Shape
from collectives.schedule.operations import CompiledPrograms, Gates, NumberOfMark
from collectives.schedule.schedule import Post, Queue, Schedule
from collectives.start_order import CollectiveOrder

PREAMBLE_BYTES = 48
"""Six little-endian u64 before each Gloo message (gloo/transport/tcp/pair.h, Op::preamble)."""

GREETING_BYTES = 8
"""The bytes that the end that connects sends first (gloo/transport/tcp/device.cc: the sequence
number that the listener knows it by)."""

THREADS = 2
"""ProcessGroupGloo::Options::threads as torch creates the group (ProcessGroupGloo.hpp)."""

POINT_TO_POINT = frozenset({Kind.SEND_RECV, Kind.INCAST, Kind.PERMUTATION})
"""Kinds that take no thread of the process group."""

ENDS_WHEN_AWAITED = POINT_TO_POINT | {Kind.REDUCE_SCATTER}
"""Kinds that end where a rank waits for them: torch gives these no future that tells of the end
(`workloads.execution.operations`)."""


class GlooSchedule(Schedule):
    """Gloo's own algorithm of each kind. There is one, `GLOO`, as it has no settings."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GlooSchedule)

    def __hash__(self) -> int:
        return hash(GlooSchedule)

    def queue(self, kind: Kind) -> Queue | None:
        """The threads of the process group take collectives first in, first out."""
        if kind in POINT_TO_POINT:
            return None
        return Queue(("gloo",), CollectiveOrder.FIFO, THREADS)

    def sends_nothing(self, shape: Shape) -> bool:
        """Some kinds send messages without payload where the array is empty."""
        from collectives.schedule.gloo_steps import sends_nothing

        return sends_nothing(shape)

    def ends_when_awaited(self, kind: Kind) -> bool:
        """Torch tells nobody of the end of some kinds."""
        return kind in ENDS_WHEN_AWAITED

    def posts(self, shape: Shape, seed: int = 1) -> Iterator[Post]:
        """One after the other: all posts of a ring over thousands of ranks are gigabytes."""
        from collectives.schedule.gloo_steps import gloo_steps

        return (step for step in gloo_steps(shape, seed) if isinstance(step, Post))

    def count(self, shape: Shape, seed: int = 1, most: int | None = None) -> int:
        """Those of a shape that was met before are known."""
        from collectives.schedule.gloo_steps import count_of_messages

        return count_of_messages(shape, seed)

    def compile(
        self,
        shape: Shape,
        into: CompiledPrograms,
        ends: Sequence[int],
        mark: NumberOfMark,
        gates: Gates | None = None,
        seed: int = 1,
    ) -> None:
        """All members go through the same steps."""
        from collectives.schedule.gloo_steps import add_gloo_steps

        add_gloo_steps(shape, into, ends, gates, seed)


GLOO = GlooSchedule()
