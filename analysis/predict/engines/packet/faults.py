"""Faults of links during a run, as programs of the engine that change ports and routes."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from analysis.predict.engines.joint_programs import JointPrograms
from analysis.predict.interface import PredictorError
from collectives.schedule.operations import Await, Do, Operation, Pause, Runner
from simulation.columns import Column
from topologies.fabrics.fabric import Fabric, Link
from topologies.spec.run_sections import (
    Corruption,
    DelayChange,
    FaultSpec,
    Flap,
    LinkDown,
    LinkUp,
    Loss,
    Partition,
    RateChange,
    links_of_fault,
)
from topologies.units import q32

_Downs = LinkDown | Flap | Partition
_Moves = _Downs | LinkUp
Followed = Loss | Corruption | RateChange | DelayChange | _Moves

_FOLLOWED = "loss, corrupt, rate, delay, link-down, link-up, flap and partition"

_WAKES_LATE_NS = 1
"""A sleeping process goes on in the nanosecond after the one that it asked for."""

_SLEEPS_IN_NS = 1000
"""Python's timed waits are whole microseconds."""

_MOST_CHANGES = 100_000
"""Beyond this many changes of links, such as of a flap that goes on for long, none is followed."""


@dataclass(frozen=True, slots=True)
class Impaired:
    """A link becomes what this row of the faults says, both its directions."""

    row: int

    def __call__(self, _: Runner, now: float) -> None:
        """Only the engine does so."""
        raise TypeError("faults are followed packet by packet")


@dataclass(frozen=True, slots=True)
class Rerouted:
    """Routes do without the links of this state."""

    state: int

    def __call__(self, _: Runner, now: float) -> None:
        """Only the engine does so."""
        raise TypeError("faults are followed packet by packet")


@dataclass(slots=True)
class LinkFaults:
    """The faults of a scenario: the states that links and routes get into, and the programs that
    bring them there, as the thread that injects faults does."""

    fabric: Fabric
    withdrawn: list[frozenset[int]] = field(default_factory=lambda: [frozenset()])
    """The links that routes do without, by state."""
    rows: list[tuple[int, ...]] = field(default_factory=list)
    """The states of links, as `columns` has them."""

    def add(self, joint: JointPrograms, faults: Sequence[FaultSpec]) -> None:
        """Add the programs. Raises PredictorError for faults that are not followed."""
        by_start: dict[int, list[Followed]] = defaultdict(list)
        begun: dict[int, int] = {}
        moving: set[int] = set()
        for fault in faults:
            if not isinstance(fault, Followed):
                raise PredictorError(
                    f"faults of kind {fault.kind} are not followed, but those of kinds {_FOLLOWED}"
                )
            start = fault.iteration or 0
            for link in links_of_fault(self.fabric, fault):
                if begun.setdefault(link.index, start) != start:
                    name = f"{link.a.node}-{link.b.node}"
                    raise PredictorError(f"faults of {name} in several iterations are not followed")
            if isinstance(fault, _Moves):
                moving.add(start)
                _check_moves(joint, fault)
            by_start[start].append(fault)
        if len(moving) > 1:
            raise PredictorError("links that go down in several iterations are not followed")
        for iteration, begins in by_start.items():
            program: list[Operation] = [
                Await([], [], [joint.begun(iteration)]),
                Pause(-_WAKES_LATE_NS),
            ]
            _Thread(self, program).inject(begins)
            joint.compiled.program(-1, program)

    @property
    def are_any(self) -> bool:
        """Whether there are any."""
        return bool(self.rows)

    def state_of(self, withdrawn: set[int]) -> int:
        """The number of a state of routes."""
        links = frozenset(withdrawn)
        if links not in self.withdrawn:
            self.withdrawn.append(links)
        return self.withdrawn.index(links)

    def columns(self) -> dict[str, Column]:
        """Row by row: the link, its rate, its delay, the chances of loss and corruption, and
        whether it is down."""
        return {"fault.rows": np.array(self.rows, dtype=np.int64).reshape(-1)}


def _check_moves(joint: JointPrograms, fault: _Moves) -> None:
    if joint.compiled.has_nodes:
        raise PredictorError(
            f"faults of kind {fault.kind} are not followed beside switches that aggregate"
        )
    if isinstance(fault, Flap) and fault.duration_ns is None:
        raise PredictorError("a flap without a `duration` is not followed")


@dataclass(slots=True)
class _Thread:
    """The thread that injects faults, what it does and when (emulator/network/faults.py), written
    down as a program. Times count from the iteration's begin."""

    faults: LinkFaults
    program: list[Operation]
    _now_ns: int = 0
    _timetable: list[tuple[int, int, Callable[[], None]]] = field(default_factory=list)
    _planned: int = 0
    _active: dict[int, list[Followed]] = field(default_factory=lambda: defaultdict(list))
    _down: set[int] = field(default_factory=set)
    _withdrawn: set[int] = field(default_factory=set)
    _state: int = 0

    def inject(self, faults: Sequence[Followed]) -> None:
        """Do all that faults which this iteration begins do. Raises PredictorError for too many
        changes."""
        for fault in faults:
            self._begin(fault)
        while self._timetable:
            at_ns, number, act = heapq.heappop(self._timetable)
            if number > _MOST_CHANGES:
                raise PredictorError(f"more than {_MOST_CHANGES:,} changes of links")
            if at_ns > self._now_ns:
                self._route()
                asked_ns = -(-(at_ns - self._now_ns) // _SLEEPS_IN_NS) * _SLEEPS_IN_NS
                self.program.append(Pause(asked_ns))
                self._now_ns += asked_ns + _WAKES_LATE_NS
            act()
        self._route()

    def _plan(self, at_ns: int, act: Callable[[], None]) -> None:
        self._planned += 1
        heapq.heappush(self._timetable, (at_ns, self._planned, act))

    def _begin(self, fault: Followed) -> None:
        start_ns = fault.at_ns or 0
        links = links_of_fault(self.faults.fabric, fault)
        if isinstance(fault, Flap):
            assert fault.duration_ns is not None, "checked before"
            self._flap(fault, links, start_ns, start_ns + fault.duration_ns)
            return
        for link in links:
            self._plan(start_ns, partial(self._apply, fault, link, True))
            if fault.duration_ns is not None:
                ends_ns = start_ns + fault.duration_ns
                self._plan(ends_ns, partial(self._apply, fault, link, False))

    def _flap(self, fault: Flap, links: Sequence[Link], at_ns: int, ends_ns: int) -> None:
        if at_ns >= ends_ns:
            return
        for link in links:
            self._plan(at_ns, partial(self._apply, fault, link, True))
            self._plan(at_ns + fault.down_ns, partial(self._apply, fault, link, False))
        again = partial(self._flap, fault, links, at_ns + fault.every_ns, ends_ns)
        self._plan(at_ns + fault.down_ns, again)

    def _apply(self, fault: Followed, link: Link, begins: bool) -> None:
        active = self._active[link.index]
        (active.append if begins else active.remove)(fault)
        down = _is_down(active)
        moved = down != (link.index in self._down)
        (self._down.add if down else self._down.discard)(link.index)
        self.program.append(Do(Impaired(len(self.faults.rows))))
        self.faults.rows.append(_state(link, active, down))
        reroute_ns = fault.reroute_ns if isinstance(fault, LinkDown | Flap) else 0
        if moved and reroute_ns:
            self._plan(self._now_ns + reroute_ns, partial(self._learn, link.index))
        elif moved:
            self._learn(link.index)

    def _learn(self, link: int) -> None:
        (self._withdrawn.add if link in self._down else self._withdrawn.discard)(link)

    def _route(self) -> None:
        """Routes are what has been learnt by now."""
        state = self.faults.state_of(self._withdrawn)
        if state != self._state:
            self.program.append(Do(Rerouted(state)))
            self._state = state


def _is_down(active: Sequence[Followed]) -> bool:
    """The last of a link's faults that takes it down or up decides."""
    moves = [fault for fault in active if isinstance(fault, _Moves)]
    return bool(moves) and not isinstance(moves[-1], LinkUp)


def _state(link: Link, active: Sequence[Followed], down: bool) -> tuple[int, ...]:
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
            case LinkDown() | LinkUp() | Flap() | Partition():
                pass
    return link.index, rate_bps, delay_ns, q32(loss), q32(corruption), int(down)
