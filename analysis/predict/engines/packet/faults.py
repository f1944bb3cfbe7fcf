"""Faults of links during a run, as programs of the engine that change ports and routes."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from analysis.predict.engines.joint_programs import JointPrograms
from analysis.predict.interface import PredictorError
from collectives.schedule.operations import Await, Do, Operation, Pause, Runner
from simulation.columns import Column
from topologies.fabrics.fabric import Fabric, Link
from topologies.routing.buckets import Buckets, UnknownBuckets
from topologies.routing.routes import Routes, compute_routes
from topologies.spec.run_sections import (
    Corruption,
    DelayChange,
    FaultSpec,
    Flap,
    Kill,
    LinkDown,
    LinkUp,
    Loss,
    Partition,
    RateChange,
    links_of_fault,
)
from topologies.units import q32

_Downs = LinkDown | Flap | Partition | Kill
_Moves = _Downs | LinkUp
Followed = Loss | Corruption | RateChange | DelayChange | _Moves

_FOLLOWED = "loss, corrupt, rate, delay, link-down, link-up, flap, partition and kill of a switch"

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


@dataclass(frozen=True, slots=True)
class Repeated:
    """The program goes on from this place of its operations again, without end."""

    place: int

    def __call__(self, _: Runner, now: float) -> None:
        """Only the engine does so."""
        raise TypeError("faults are followed packet by packet")


@dataclass(slots=True)
class LinkFaults:
    """The faults of a scenario: the states that links and routes get into, and the programs that
    bring them there, as the thread that injects faults does. `at_rest` are the routes of a fabric
    that nothing has happened to."""

    at_rest: Routes
    routes: list[Routes] = field(init=False)
    """By state; at rest in the first."""
    _learnt: dict[tuple[Routes | None, frozenset[int]], Routes] = field(default_factory=dict)
    _alike: dict[tuple[Buckets | None, ...], Routes] = field(default_factory=dict)
    _rows: dict[tuple[int, ...], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.routes = [self.at_rest]

    @property
    def fabric(self) -> Fabric:
        return self.at_rest.fabric

    def add(self, joint: JointPrograms, faults: Sequence[FaultSpec]) -> None:
        """Add the programs. Raises PredictorError for faults that are not followed."""
        by_start: dict[int, list[Followed]] = defaultdict(list)
        begun: dict[int, int] = {}
        moving: set[int] = set()
        for fault in faults:
            if isinstance(fault, Kill) and fault.switch is None:
                raise PredictorError("a run whose ranks are killed fails: it has no end to predict")
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
                if joint.compiled.has_nodes:
                    raise PredictorError(
                        f"faults of kind {fault.kind} are not followed beside switches that "
                        "aggregate"
                    )
            by_start[start].append(fault)
        if len(moving) > 1:
            raise PredictorError("links that go down in several iterations are not followed")
        for iteration, begins in by_start.items():
            program: list[Operation] = [
                Await([], [], [joint.begun(iteration)]),
                Pause(-_WAKES_LATE_NS),
            ]
            _Thread(self, program, begins).inject()
            joint.compiled.program(-1, program)

    @property
    def are_any(self) -> bool:
        """Whether there are any."""
        return bool(self._rows)

    def row_of(self, state: tuple[int, ...]) -> int:
        """The number of a state of a link, as `columns` has them."""
        return self._rows.setdefault(state, len(self._rows))

    def learnt(self, before: Routes, withdrawn: set[int]) -> Routes:
        """The routes that do without these links, after others: the same ones where nothing tells
        them apart. Raises PredictorError for what is not followed."""
        links = frozenset(withdrawn)
        has_groups = self.at_rest.groups is not None
        key = before if has_groups else None, links
        if key not in self._learnt:
            found = self.at_rest
            if links or has_groups:
                found = compute_routes(self.fabric, self.at_rest.down | links, before)
            self._learnt[key] = self._first_alike(found)
        return self._learnt[key]

    def _first_alike(self, routes: Routes) -> Routes:
        """Links that are down and the buckets of groups are all that tells routes apart."""
        if routes.groups is None:
            return routes
        try:
            for each in (self.at_rest, routes):
                assert each.groups is not None, "these have some"
                buckets = tuple(sorted(each.down)), *each.groups.all_buckets()
                first = self._alike.setdefault(buckets, each)
        except UnknownBuckets as problem:
            raise PredictorError(
                "packet does not follow resilient groups whose idle_timer is not 0 where a next "
                f"hop comes back or gets more weight: {problem}"
            ) from problem
        return first

    def state_of(self, routes: Routes) -> int:
        """The number of a state of routes."""
        if routes not in self.routes:
            self.routes.append(routes)
        return self.routes.index(routes)

    def columns(self) -> dict[str, Column]:
        """`fault.rows`, row by row: the link, its rate, its delay, the chances of loss and
        corruption, and whether it is down."""
        return {"fault.rows": np.array([*self._rows], dtype=np.int64).reshape(-1)}


@dataclass(frozen=True, slots=True)
class _Change:
    """A fault, by its number, begins on a link or ends."""

    fault: int
    link: Link
    begins: bool


@dataclass(frozen=True, slots=True)
class _Again:
    """A flap, by its number, goes on for another time so long after this."""

    fault: int
    after_ns: int


@dataclass(frozen=True, slots=True)
class _Learn:
    """Routes learn whether a link is down."""

    link: int


@dataclass(slots=True)
class _Thread:
    """The thread that injects faults, what it does and when (emulator/network/faults.py), written
    down as a program. Times count from the iteration's begin."""

    faults: LinkFaults
    program: list[Operation]
    begins: Sequence[Followed]
    _now_ns: int = 0
    _timetable: list[tuple[int, int, _Change | _Again | _Learn]] = field(default_factory=list)
    _planned: int = 0
    _active: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    _down: set[int] = field(default_factory=set)
    _withdrawn: set[int] = field(default_factory=set)
    _routes: Routes = field(init=False)
    _state: int = 0

    def __post_init__(self) -> None:
        self._routes = self.faults.at_rest

    def inject(self) -> None:
        """Do all that the faults do. Raises PredictorError for too many changes."""
        known: dict[object, int] = {}
        for number, fault in enumerate(self.begins):
            self._begin(number, fault)
        while self._timetable:
            at_ns, number, act = self._timetable[0]
            if number > _MOST_CHANGES:
                raise PredictorError(f"more than {_MOST_CHANGES:,} changes of links")
            if at_ns > self._now_ns:
                self._route()
                place = known.setdefault(self._ahead(), len(self.program))
                if place < len(self.program):  # flaps without an end go on as they did from there
                    self.program.append(Do(Repeated(place)))
                    return
                asked_ns = -(-(at_ns - self._now_ns) // _SLEEPS_IN_NS) * _SLEEPS_IN_NS
                self.program.append(Pause(asked_ns))
                self._now_ns += asked_ns + _WAKES_LATE_NS
            heapq.heappop(self._timetable)
            match act:
                case _Change():
                    self._change(act)
                case _Again():
                    self._flap(act.fault, at_ns + act.after_ns)
                case _Learn():
                    self._learn(act.link)
        self._route()

    def _ahead(self) -> object:
        """All that what is to come hangs on, from now on."""
        ordered = sorted(self._timetable, key=lambda each: each[1])
        active = sorted((link, tuple(numbers)) for link, numbers in self._active.items())
        known = frozenset(self._down), frozenset(self._withdrawn), self._routes
        return tuple((at - self._now_ns, act) for at, _, act in ordered), tuple(active), *known

    def _plan(self, at_ns: int, act: _Change | _Again | _Learn) -> None:
        self._planned += 1
        heapq.heappush(self._timetable, (at_ns, self._planned, act))

    def _begin(self, number: int, fault: Followed) -> None:
        start_ns = fault.at_ns or 0
        if isinstance(fault, Flap):
            self._flap(number, start_ns)
            return
        lasts_ns = fault.restart_ns if isinstance(fault, Kill) else fault.duration_ns
        for link in links_of_fault(self.faults.fabric, fault):
            self._plan(start_ns, _Change(number, link, True))
            if lasts_ns is not None:
                self._plan(start_ns + lasts_ns, _Change(number, link, False))

    def _flap(self, number: int, at_ns: int) -> None:
        fault = self.begins[number]
        assert isinstance(fault, Flap), "it is one"
        if fault.duration_ns is not None and at_ns >= (fault.at_ns or 0) + fault.duration_ns:
            return
        for link in links_of_fault(self.faults.fabric, fault):
            self._plan(at_ns, _Change(number, link, True))
            self._plan(at_ns + fault.down_ns, _Change(number, link, False))
        self._plan(at_ns + fault.down_ns, _Again(number, fault.every_ns - fault.down_ns))

    def _change(self, change: _Change) -> None:
        fault, link = self.begins[change.fault], change.link
        numbers = self._active[link.index]
        (numbers.append if change.begins else numbers.remove)(change.fault)
        active = [self.begins[number] for number in numbers]
        down = _is_down(active)
        moved = down != (link.index in self._down)
        (self._down.add if down else self._down.discard)(link.index)
        self.program.append(Do(Impaired(self.faults.row_of(_state(link, active, down)))))
        reroute_ns = fault.reroute_ns if isinstance(fault, LinkDown | Flap) else 0
        if moved and reroute_ns:
            self._plan(self._now_ns + reroute_ns, _Learn(link.index))
        elif moved:
            self._learn(link.index)

    def _learn(self, link: int) -> None:
        (self._withdrawn.add if link in self._down else self._withdrawn.discard)(link)
        self._routes = self.faults.learnt(self._routes, self._withdrawn)

    def _route(self) -> None:
        """Routes are what has been learnt by now."""
        state = self.faults.state_of(self._routes)
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
            case LinkDown() | LinkUp() | Flap() | Partition() | Kill():
                pass
    return link.index, rate_bps, delay_ns, q32(loss), q32(corruption), int(down)
