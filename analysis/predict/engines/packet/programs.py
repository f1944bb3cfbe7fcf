"""Joint programs as columns for the packet engine, and what it answers put back into them."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from analysis.predict.engines.joint_events import (
    Agreed,
    Ended,
    MeetingTime,
    Noted,
    PassedOn,
    Posted,
    Proposed,
    SetLate,
    WithLateness,
)
from analysis.predict.engines.joint_programs import JointPrograms
from analysis.predict.engines.packet.faults import Impaired, Repeated, Rerouted
from analysis.predict.engines.rank_slots import RankSlots
from collectives.schedule.operations import (
    Await,
    CommonSteps,
    Do,
    Exchange,
    Follow,
    Mark,
    Occupy,
    Operation,
    Pause,
    Sleep,
    Start,
)
from collectives.start_order import CollectiveOrder
from simulation.columns import Column

(
    _START,
    _AWAIT,
    _MARK,
    _PAUSE,
    _SLEEP_LATE,
    _SLEEP_MEETING,
    _OCCUPY,
    _STAMP,
    _SET_LATE,
    _PROPOSE,
    _POST,
    _ENDED,
    _AGREED,
    _PASSED_ON,
    _FOLLOW,
    _IMPAIR,
    _REROUTE,
    _REPEAT,
) = range(18)
"""`Operation` of simulation/engine/programs.hpp. The first two are `EXCHANGE_WORDS`."""

_ORDERS = (CollectiveOrder.FIFO, CollectiveOrder.LIFO, CollectiveOrder.PRIORITY)
_NONE = -1


class _Numbers:
    """Things by number, in the order in which they were met."""

    def __init__(self) -> None:
        self._known: dict[object, int] = {}

    def __len__(self) -> int:
        return len(self._known)

    def of(self, what: object) -> int:
        """The number of a thing."""
        return self._known.setdefault(what, len(self._known))


@dataclass(slots=True)
class EncodedPrograms:
    """Joint programs in the words of the engine."""

    joint: JointPrograms
    _code: array[int] = field(default_factory=lambda: array("i"))
    _first: list[int] = field(default_factory=lambda: [0])
    _numbers: array[float] = field(default_factory=lambda: array("d"))
    _stamps: list[Callable[[float], None]] = field(default_factory=list)
    _starts: list[int] = field(default_factory=list)
    _marks: int = 0
    _meetings: int = 0
    _latches: array[int] = field(default_factory=lambda: array("i"))
    _latch_numbers: _Numbers = field(default_factory=_Numbers)
    _lates: _Numbers = field(default_factory=_Numbers)
    _units: _Numbers = field(default_factory=_Numbers)
    _places: _Numbers = field(default_factory=_Numbers)
    _slots: _Numbers = field(default_factory=_Numbers)
    _slots_by_number: list[RankSlots] = field(default_factory=list)
    _streams: _Numbers = field(default_factory=_Numbers)
    _stream_keys: list[tuple[int, int]] = field(default_factory=list)
    _locks: _Numbers = field(default_factory=_Numbers)

    def __post_init__(self) -> None:
        for program in self.joint.compiled.programs:
            self._starts = []
            for operation in program:
                self._starts.append(len(self._code))
                self._add(operation)
            self._first.append(len(self._code))

    def columns(self) -> dict[str, Column]:
        """The columns of programs and of what they refer to, without messages."""
        locks: list[int] = []
        first_lock = [0]
        for key in self._stream_keys:
            locks += map(self._locks.of, self.joint.locks_of(key))
            first_lock.append(len(locks))
        granted = [self.joint.granted(key) for key in self._stream_keys]
        orders = [slots.order for slots in self._slots_by_number]
        marks = max([self._marks, *(mark + 1 for mark in granted)])
        return {
            "has_nodes": _longs([self.joint.compiled.has_nodes]),
            "program.code": np.frombuffer(self._code, np.int32),
            "program.first": _longs(self._first),
            "program.numbers": np.frombuffer(self._numbers, np.float64),
            "marks": _longs([marks]),
            "stamps": _longs([len(self._stamps)]),
            "latches": np.frombuffer(self._latches, np.int32),
            "lates": _longs([len(self._lates)]),
            "units": _longs([len(self._units)]),
            "pools": _longs([self.joint.pools]),
            "meetings": _longs([self._meetings]),
            "proposals": _longs([len(self.joint.posted_ns)]),
            "places": _longs([len(self._places)]),
            "slots.order": _longs([_ORDERS.index(order.order) for order in orders]),
            "slots.in_flight": _longs([order.in_flight for order in orders]),
            **_steps(self.joint.compiled.steps),
            "stream.granted": _ints(granted),
            "stream.first_lock": _longs(first_lock),
            "stream.locks": _ints(locks),
        }

    def take_back(self, stamps: Column) -> None:
        """Tell the joint programs when what happened."""
        for keep, at in zip(self._stamps, stamps.tolist(), strict=True):
            if at >= 0:
                keep(at)

    def _add(self, operation: Operation) -> None:
        # Those first that most programs are made of.
        if isinstance(operation, Do):
            self._do(operation.call)
        elif isinstance(operation, Await):
            sends, receives, marks = operation.sends, operation.receives, operation.marks
            self._say(_AWAIT, len(sends), len(receives), len(marks), *sends, *receives)
            self._code.extend(map(self._mark, marks))
        elif isinstance(operation, Follow):
            self._say(_FOLLOW, operation.steps)
        elif isinstance(operation, Start):
            sends, receives = operation.sends, operation.receives
            self._say(_START, operation.sends_first, len(sends), len(receives), *sends, *receives)
        elif isinstance(operation, Exchange):
            self._code.frombytes(operation.words.tobytes())
        elif isinstance(operation, Pause):
            self._say(_PAUSE, self._number(operation.duration_ns))
        elif isinstance(operation, Mark):
            self._say(_MARK, self._mark(operation.number))
        elif isinstance(operation, Sleep):
            self._sleep(operation.until_ns)
        else:
            self._occupy(operation)

    def _occupy(self, operation: Occupy) -> None:
        unit = self._units.of(operation.unit)
        duration, latency = operation.duration_ns, operation.latency_ns
        self._say(_OCCUPY, unit, self._number(duration), self._number(latency))

    def _sleep(self, until: object) -> None:
        if isinstance(until, WithLateness):
            late = self._lates.of(until.rank)
            self._say(_SLEEP_LATE, self._number(until.at_ns), late)
        elif isinstance(until, MeetingTime):
            self._meetings = max(self._meetings, until.meeting + 1)
            self._say(_SLEEP_MEETING, until.meeting)
        else:
            raise TypeError(f"no data: {until!r}")

    def _do(self, what: object) -> None:
        joint = self.joint
        match what:
            case Noted():
                self._say(_STAMP, self._stamp(lambda now: what(None, now)))
            case SetLate():
                self._say(_SET_LATE, self._lates.of(what.rank), self._number(what.at_ns))
            case Proposed():
                self._meetings = max(self._meetings, what.meeting + 1)
                margin, grid = self._number(what.margin_ns), self._number(what.grid_ns)
                self._say(_PROPOSE, what.meeting, margin, grid)
            case Posted():
                self._post(what)
            case Ended(call=call, chunk=chunk, rank=rank):
                chunk_latch = self._latch(("chunk", call, chunk, rank), what.count)
                call_latch = self._latch(("call", call, rank), what.chunks)
                completed = joint.completed_ns[call]
                stamp = self._stamp(lambda now: completed.__setitem__(rank, now))
                slots, mark = self._slots_number(what.slots), self._mark(what.mark)
                pool = _NONE if what.pool is None else what.pool
                self._say(_ENDED, chunk_latch, call_latch, stamp, slots, mark, pool)
            case Agreed(call=call, rank=rank):
                latch = self._latch(("agree", call, rank), what.count)
                place = self._places.of((call, rank))
                self._say(_AGREED, latch, self._slots_number(what.slots), place, call)
            case PassedOn(call=call, chunk=chunk):
                latch = self._latch(("passed on", call, chunk, what.switch), what.count)
                stream = self._stream((call, chunk)) if what.holds else _NONE
                following = self._asked(call, what.following)
                mark = self._mark(what.mark)
                self._say(_PASSED_ON, latch, mark, stream, len(following), *following)
            case Impaired(row):
                self._say(_IMPAIR, row)
            case Rerouted(state):
                self._say(_REROUTE, state)
            case Repeated(place):
                self._say(_REPEAT, len(self._code) - self._starts[place])
            case _:
                raise TypeError(f"no data: {what!r}")

    def _post(self, what: Posted) -> None:
        posted, rank = self.joint.posted_ns[what.call], what.rank
        stamp = self._stamp(lambda now: posted.__setitem__(rank, now))
        agree = asked = place = _NONE
        if what.agree is not None:
            agree, place = self._mark(what.agree), self._places.of((what.call, what.rank))
        if what.asked is not None:
            asked = self._mark(what.asked)
        streams = self._asked(what.call, what.asks)
        self._say(_POST, stamp, self._slots_number(what.slots), what.priority, what.call, place)
        self._say(agree, asked, len(streams), *streams, len(what.marks))
        self._code.extend(map(self._mark, what.marks))
        self._say(_NONE if what.pool is None else what.pool)
        self._code.extend(map(self._mark, what.woken))

    def _asked(self, call: int, chunks: Iterable[int]) -> list[int]:
        """The streams of those chunks that have one."""
        return [
            self._stream((call, chunk)) for chunk in chunks if self.joint.locks_of((call, chunk))
        ]

    def _say(self, *words: int) -> None:
        self._code.extend(words)

    def _mark(self, number: int) -> int:
        self._marks = max(self._marks, number + 1)
        return number

    def _number(self, value: float) -> int:
        self._numbers.append(value)
        return len(self._numbers) - 1

    def _stamp(self, keep: Callable[[float], None]) -> int:
        self._stamps.append(keep)
        return len(self._stamps) - 1

    def _latch(self, what: tuple[object, ...], count: int) -> int:
        number = self._latch_numbers.of(what)
        if number == len(self._latches):
            self._latches.append(count)
        return number

    def _slots_number(self, slots: RankSlots | None) -> int:
        if slots is None:
            return _NONE
        number = self._slots.of(id(slots))
        if number == len(self._slots_by_number):
            self._slots_by_number.append(slots)
        return number

    def _stream(self, key: tuple[int, int]) -> int:
        number = self._streams.of(key)
        if number == len(self._stream_keys):
            self._stream_keys.append(key)
        return number


def _steps(lists: Sequence[CommonSteps]) -> dict[str, Column]:
    kind, first, end = array("i"), array("q"), array("q")
    for each in lists:
        kind += each.kind
        first += each.first
        end += each.end
    counts = [len(each.kind) for each in lists]
    return {
        "steps.program": _ints(each.first_program for each in lists),
        "steps.programs": _ints(each.programs for each in lists),
        "steps.first": np.cumsum([0, *counts], dtype=np.int64),
        "step.kind": np.frombuffer(kind, np.int32),
        "step.first": np.frombuffer(first, np.int64),
        "step.end": np.frombuffer(end, np.int64),
    }


def _longs(values: Iterable[int]) -> npt.NDArray[np.int64]:
    return np.array(list(values), dtype=np.int64)


def _ints(values: Iterable[int]) -> npt.NDArray[np.int32]:
    return np.array(list(values), dtype=np.int32)
