"""Programs on an aggregation tree: an engine for each bound of what is in flight."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from collectives.schedule.program import ProgramSchedule
from collectives.schedule.schedule import Chunk
from topologies.spec.workload_types import ReduceOp
from workloads.execution.aggregation.stream_locks import StreamLocks
from workloads.execution.payload.tensors import Tensors
from workloads.execution.programs.engine import ChunkTimes, ProgramEngine, ProgramWork


class TreeEngines:
    """The programs of one participant. Operations with slots and streams have bounds of their own,
    as SHARP's trees of the two kinds have. `passes` is called with what goes through the unit of a
    switch (`ProgramEngine`). Switches take what streams hold by `locks`."""

    def __init__(
        self,
        me: int,
        links: Any,
        tensors: Tensors,
        passes: Callable[[int, bool], None] | None = None,
        locks: StreamLocks | None = None,
    ) -> None:
        self._tensors = tensors
        self._me = me
        self._links = links
        self._passes = passes
        self._locks = locks
        self._engines: dict[int, ProgramEngine] = {}

    def start(
        self,
        schedule: ProgramSchedule,
        source: torch.Tensor,
        target: torch.Tensor,
        first_slot: int,
        op: ReduceOp,
        report: Callable[[ChunkTimes], None] = lambda times: None,
    ) -> ProgramWork:
        """Start a collective; chunks wait for slots in the order of posting."""
        if schedule.in_flight not in self._engines:
            self._engines[schedule.in_flight] = ProgramEngine(
                self._me,
                schedule.in_flight,
                passes=self._passes,
            )
        engine = self._engines[schedule.in_flight]
        return engine.start(
            schedule,
            self._links,
            source,
            target,
            first_slot,
            report,
            _no_agreement,
            self._tensors.combine(op),
            self._tensors,
            self._hold,
        )

    def _hold(self, chunk: Chunk) -> AbstractContextManager[None]:
        """The root takes what a stream has to itself."""
        hold = chunk.hold
        if self._locks is None or hold is None or hold.participant != self._me:
            return nullcontext()
        return self._locks.held(hold.locks)


def _no_agreement(proposal: int, agreed: Callable[[int | BaseException], None]) -> None:
    raise AssertionError("first in, first out needs no agreement")
