"""A program's lines in the log of its rank, where the run observes ranks (docs/exec.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d

from collectives.schedule.program import ProgramSchedule
from workloads.execution.programs.engine import ChunkTimes


@dataclass(frozen=True, slots=True)
class LoggedProgram:
    """One collective. Without an observer all calls do nothing."""

    observer: Any
    record: dict[str, Any] | None

    @classmethod
    def begin(
        cls,
        group: str,
        ranks: Sequence[int],
        schedule: ProgramSchedule,
        entry: Mapping[str, Any],
        section: Mapping[str, Any],
        first_slot: int,
        op: str,
        phase: str = "",
    ) -> LoggedProgram:
        """A collective starts now, of a group by torch's name for it and its ranks of the run.
        `entry` and `section` are the spec's keys by which it was planned, `op` is torch's name for
        its reduction, `phase` that of its row where this is not its kind."""
        observer = getattr(distributed_c10d, "groundwire_observer", None)
        if observer is None:
            return cls(None, None)
        shape = schedule.shape
        details = {
            "kind": str(shape.kind),
            "size_bytes": shape.size_bytes,
            "element_bytes": shape.element_bytes,
            "root": shape.root,
            "program": dict(entry),
            "section": dict(section),
            "algorithm": schedule.algorithm,
            "chunks": len(schedule.chunks),
            "slots": [first_slot, schedule.slots],
        }
        if shape.kind.traits.reduces:
            details["op"] = op
        if phase:
            details["phase"] = phase
        return cls(observer, observer.program(group, list(ranks), details))

    def chunk(self, times: ChunkTimes) -> None:
        """One of its chunks has run."""
        if self.record is not None:
            self.observer.chunk(self.record, asdict(times))

    def awaited(self, work: dist.Work) -> None:
        """`work` is the work that the caller waits for."""
        if self.record is not None:
            self.observer.awaited(self.record, work)

    def over(self) -> None:
        """It has come to its end, and nobody waits for it."""
        if self.record is not None:
            self.observer.over(self.record)
