"""The stages of hierarchical collectives that a run has too seldom to know them again."""

from __future__ import annotations

from collections import Counter
from itertools import groupby

import numpy as np
import numpy.typing as npt

from analysis.predict.engines.joint_programs import JointPrograms
from collectives.program import Action, Program
from collectives.schedule.program import ProgramSchedule
from simulation.columns import Column

_KNOWN_FROM = 5
"""A program that comes so often is leapt over as a whole: the first time is none, the next three
agree (simulation/engine/leaps.hpp)."""

_NONE = -1


def stage_column(joint: JointPrograms) -> dict[str, Column]:
    """The stage of each message, -1 for those of other collectives; no column where all are such. A
    stage is what a program does along one dimension of the ranks before it goes on along
    another."""
    programs = [_program(grouped.call.schedule) for grouped in joint.calls]
    met = Counter(id(program) for program in programs if program is not None)
    owners = np.frombuffer(joint.owners, dtype=np.int32)
    found = np.full(len(owners), _NONE, dtype=np.int32)
    stages: dict[int, npt.NDArray[np.int32]] = {}
    for call, program in enumerate(programs):
        if program is None or met[id(program)] >= _KNOWN_FROM:
            continue
        if id(program) not in stages:
            stages[id(program)] = _stages(program)
        mine = np.flatnonzero(owners == call)
        # There are others for agreements on an order and several connections, fewer where some are
        # empty.
        if len(mine) == len(stages[id(program)]):
            found[mine] = stages[id(program)]
    return {"message.stage": found} if (found != _NONE).any() else {}


def _program(schedule: object) -> Program | None:
    """The program of a collective in one chunk that goes along several dimensions."""
    if not isinstance(schedule, ProgramSchedule) or len(schedule.chunks) > 1:
        return None
    if schedule.aggregators or schedule.turns or schedule.endpoint_delay_ns:
        return None
    (chunk,) = schedule.chunks
    dimensions = {phase.dimension for phase in chunk.program.phases}
    return chunk.program if len(dimensions) > 1 and None not in dimensions else None


def _stages(program: Program) -> npt.NDArray[np.int32]:
    """The stage of each message of a program."""
    dimensions = groupby(range(len(program.phases)), lambda at: program.phases[at].dimension)
    of_phase = np.zeros(len(program.phases), dtype=np.int32)
    for stage, (_, phases) in enumerate(dimensions):
        of_phase[list(phases)] = stage
    phase = np.zeros(program.message_count, dtype=np.int64)
    for _, _, step in program.steps():
        if step.action is Action.SEND:
            phase[step.message] = step.phase
    found: npt.NDArray[np.int32] = of_phase[phase]
    return found
