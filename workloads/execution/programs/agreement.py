"""How ranks agree on the order of a collective: the highest of their proposals."""

from __future__ import annotations

from typing import Any

import torch

from collectives.schedule.program import ProgramSchedule
from workloads.execution.programs.engine import ProgramEngine, ProgramWork


def find_highest(
    engine: ProgramEngine,
    schedule: ProgramSchedule,
    group: Any,
    numbers: torch.Tensor,
    first_slot: int,
) -> ProgramWork:
    """Start to find the maximum of `numbers`, an int64, over all ranks, in place. It takes part in
    no order itself. `schedule` is `collectives.settings.agreement_of`."""
    return engine.start(
        schedule,
        group,
        numbers,
        numbers,
        first_slot,
        combine=lambda highest, other: torch.maximum(highest, other, out=highest),
    )
