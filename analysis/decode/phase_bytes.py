"""The bytes of collectives that ran as programs, by chunk and phase.

A message's slot says which of the program's messages it is (`Schedule.numbered_messages`), and its
notifications have the same slot. So what `attribute` gives a collective is divided without rest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from analysis.decode.attribution import Attribution
from analysis.decode.byte_ledger import COLUMNS
from analysis.decode.gloo.connection_groups import LoggedCollective
from analysis.decode.ledger import BYTE_COLUMNS, Purpose
from collectives.program import Phase
from collectives.schedule.program import ProgramSchedule

Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class PhaseBytes:
    """The bytes that one phase of one chunk put on the wire, each packet once, where it was first
    seen."""

    collective: LoggedCollective
    chunk: int
    phase: Phase
    messages: int
    data_bytes: int
    wire_bytes: int


def bytes_by_phase(attribution: Attribution) -> tuple[PhaseBytes, ...]:
    """All phases of all chunks, by collective in the order of the log."""
    found: list[PhaseBytes] = []
    ledger = attribution.ledger
    chosen = ledger.primary & (ledger.purpose < Purpose.SET_UP)
    for number, collective in enumerate(attribution.collectives):
        if isinstance(collective.schedule, ProgramSchedule) and collective.slots is not None:
            rows = np.flatnonzero(chosen & (ledger.collective == number))
            found += _of_collective(attribution, collective, collective.schedule, rows)
    return tuple(found)


def _of_collective(
    attribution: Attribution,
    collective: LoggedCollective,
    schedule: ProgramSchedule,
    rows: Int64,
) -> list[PhaseBytes]:
    assert collective.slots is not None
    ledger = attribution.ledger
    stride = schedule.slots_per_chunk
    place = ((ledger.tag[rows] << 24) | ledger.delta[rows]) - collective.slots[0]
    chunk, message = place // stride, place % stride
    phases: dict[int, Int64] = {}
    for one in schedule.chunks:
        key = id(one.program)
        if key not in phases:
            of = [message.phase for message in one.program.messages()]
            phases[key] = np.array(of + [0] * (stride - len(of)), dtype=np.int64)
    phase = np.zeros(len(rows), dtype=np.int64)
    for index in np.unique(chunk).tolist():
        mine = chunk == index
        phase[mine] = phases[id(schedule.chunks[index].program)][message[mine]]
    wire = ledger.counts[: len(BYTE_COLUMNS), rows].sum(axis=0)
    data = ledger.counts[COLUMNS.index("data_bytes"), rows]
    carries = ledger.purpose[rows] == Purpose.DATA
    found = []
    for index, number in np.unique(np.stack([chunk, phase], axis=1), axis=0).tolist():
        mine = (chunk == index) & (phase == number)
        found.append(
            PhaseBytes(
                collective,
                index,
                schedule.chunks[index].program.phases[number],
                len(np.unique(place[mine & carries])),
                int(data[mine].sum()),
                int(wire[mine].sum()),
            )
        )
    return found
