"""Faults of links during a run, as programs of the engine that change ports."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from analysis.predict.engines.joint_programs import JointPrograms
from analysis.predict.interface import PredictorError
from collectives.schedule.operations import Await, Do, Operation, Pause, Runner
from simulation.columns import Column
from topologies.fabrics.fabric import Fabric, Link
from topologies.fabrics.selectors import links_between
from topologies.spec.run_sections import Corruption, DelayChange, FaultSpec, Loss, RateChange
from topologies.units import q32

Followed = Loss | Corruption | RateChange | DelayChange

_WAKES_LATE_NS = 1
"""A sleeping process goes on in the nanosecond after the one that it asked for."""

_SLEEPS_IN_NS = 1000
"""Python's timed waits are whole microseconds."""


@dataclass(frozen=True, slots=True)
class Impaired:
    """A link becomes what this row of the faults says, both its directions."""

    row: int

    def __call__(self, _: Runner, now: float) -> None:
        """Only the engine does so."""
        raise TypeError("faults are followed packet by packet")


_Event = tuple[int, int, Followed, Link, bool]
"""So long after the iteration's begin, the fault of this number begins on a link, or ends."""


@dataclass(slots=True)
class LinkFaults:
    """The faults of a scenario: the states that links get into, and the programs that bring them
    there, as the thread that injects faults does."""

    fabric: Fabric
    _rows: list[tuple[int, ...]] = field(default_factory=list)

    def add(self, joint: JointPrograms, faults: Sequence[FaultSpec]) -> None:
        """Add the programs. Raises PredictorError for faults that are not followed."""
        by_start: dict[int, list[_Event]] = defaultdict(list)
        begun: dict[int, int] = {}
        for number, fault in enumerate(faults):
            if not isinstance(fault, Followed):
                raise PredictorError(
                    f"faults of kind {fault.kind} are not followed, but those of kinds loss, "
                    "corrupt, rate and delay"
                )
            start, after_ns = fault.iteration or 0, fault.at_ns or 0
            for link in links_between(self.fabric, fault.link):
                if begun.setdefault(link.index, start) != start:
                    raise PredictorError(
                        f"faults of {fault.link} in several iterations are not followed"
                    )
                by_start[start].append((after_ns, number, fault, link, True))
                if fault.duration_ns is not None:
                    ends_ns = after_ns + fault.duration_ns
                    by_start[start].append((ends_ns, number, fault, link, False))
        for iteration, events in by_start.items():
            joint.compiled.program(-1, self._program(joint.begun(iteration), events))

    def _program(self, mark: int, events: list[_Event]) -> list[Operation]:
        """The thread hears of an iteration through another process: it goes on in the nanosecond
        of the iteration's begin, once all ranks have done what they do in it."""
        program: list[Operation] = [Await([], [], [mark]), Pause(-_WAKES_LATE_NS)]
        active: dict[int, list[Followed]] = defaultdict(list)
        now_ns = 0
        for at_ns, _, fault, link, begins in sorted(events, key=lambda event: event[:2]):
            if at_ns > now_ns:
                asked_ns = -(-(at_ns - now_ns) // _SLEEPS_IN_NS) * _SLEEPS_IN_NS
                program.append(Pause(asked_ns))
                now_ns += asked_ns + _WAKES_LATE_NS
            (active[link.index].append if begins else active[link.index].remove)(fault)
            program.append(Do(Impaired(len(self._rows))))
            self._rows.append(_state(link, active[link.index]))
        return program

    @property
    def are_any(self) -> bool:
        """Whether there are any."""
        return bool(self._rows)

    def columns(self) -> dict[str, Column]:
        """Row by row: the link, its rate, its delay, and the chances of loss and corruption."""
        return {"fault.rows": np.array(self._rows, dtype=np.int64).reshape(-1)}


def _state(link: Link, active: Sequence[Followed]) -> tuple[int, ...]:
    """All faults that are active on a link, together: the last rate and the last delay count."""
    rate_bps, delay_ns, loss, corruption = link.rate_bps, link.delay_ns, 0.0, 0.0
    for fault in active:
        match fault:
            case Loss():
                loss = 1 - (1 - loss) * (1 - fault.value)
            case Corruption():
                corruption = 1 - (1 - corruption) * (1 - fault.value)
            case RateChange():
                rate_bps = fault.value
            case DelayChange():
                delay_ns = fault.value
    return link.index, rate_bps, delay_ns, q32(loss), q32(corruption)
