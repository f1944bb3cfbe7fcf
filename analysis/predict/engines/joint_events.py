"""Events of collectives in flight together (`Do`, `Sleep`), as
data: an engine that is another process is told the same."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from analysis.predict.engines.rank_slots import RankSlots
from collectives.schedule.operations import Runner

if TYPE_CHECKING:
    from analysis.predict.engines.joint_programs import JointPrograms


@dataclass(frozen=True, slots=True)
class Noted:
    """A time that is kept, and that nothing depends on: nobody has to be asked at once."""

    joint: JointPrograms
    rank: int

    def __call__(self, _: Runner | None, now: float) -> None:
        """Keep it: a rank's main thread has ended."""
        self.joint.ended_ns[self.rank] = now


@dataclass(frozen=True, slots=True)
class CameBy(Noted):
    """The main thread came by (`scenario.Pass`)."""

    number: int

    def __call__(self, _: Runner | None, now: float) -> None:
        """Keep it, with how long the thread has waited until then."""
        self.joint.passed_ns[self.rank, self.number] = now, self.joint.waited_ns[self.rank]


@dataclass(frozen=True, slots=True)
class WaitBegins(Noted):
    """The main thread comes to wait for a collective."""

    def __call__(self, _: Runner | None, now: float) -> None:
        """Count from here."""
        self.joint.waited_ns[self.rank] -= now


@dataclass(frozen=True, slots=True)
class WaitIsOver(Noted):
    """It goes on."""

    call: int

    def __call__(self, _: Runner | None, now: float) -> None:
        """Count up to here."""
        self.joint.waited_ns[self.rank] += now
        self.joint.awaited_ns[self.call][self.rank] = now


@dataclass(frozen=True, slots=True)
class SetLate:
    """The lateness of a rank is known (`scenario.Due`)."""

    joint: JointPrograms
    rank: int
    at_ns: float

    def __call__(self, _: Runner, now: float) -> None:
        """Keep it."""
        self.joint.late_ns[self.rank] = max(0.0, now - self.at_ns)


@dataclass(frozen=True, slots=True)
class WithLateness:
    """A time, and what the rank is late by (`scenario.Until`)."""

    joint: JointPrograms
    rank: int
    at_ns: float

    def __call__(self) -> float:
        """Their sum."""
        return self.at_ns + self.joint.late_ns[self.rank]


@dataclass(frozen=True, slots=True)
class Proposed:
    """A rank proposes a time to start at (`scenario.Propose`)."""

    joint: JointPrograms
    meeting: int
    margin_ns: int
    grid_ns: int

    def __call__(self, _: Runner, now: float) -> None:
        """The latest one counts."""
        proposed = math.ceil((now + self.margin_ns) / self.grid_ns) * self.grid_ns
        meetings = self.joint.meetings
        meetings[self.meeting] = max(meetings.get(self.meeting, 0.0), proposed)


@dataclass(frozen=True, slots=True)
class MeetingTime:
    """The time that ranks have agreed on (`scenario.Meet`)."""

    joint: JointPrograms
    meeting: int

    def __call__(self) -> float:
        """That time."""
        return self.joint.meetings[self.meeting]


@dataclass(frozen=True, slots=True)
class Posted:
    """A rank posts a call. Its chunks start with these marks, as its slots let them, or all at
    once; where the call has streams of switches, the first ones ask for what they need (`asks`),
    and `asked` tells the switches. Each chunk of a program takes a thread of the rank's `pool`.
    Where that has none left, a new thread and its helpers come up together, which the marks of
    `woken` tell."""

    joint: JointPrograms
    call: int
    rank: int
    marks: tuple[int, ...]
    slots: RankSlots | None
    priority: int
    agree: int | None
    asked: int | None
    asks: tuple[int, ...]
    pool: int | None
    woken: tuple[int, ...]

    def __call__(self, programs: Runner, now: float) -> None:
        """Post it."""
        joint = self.joint
        joint.posted_ns[self.call][self.rank] = now
        if self.asked is not None:
            programs.mark(self.asked, now)
            for chunk in self.asks:
                joint.ask((self.call, chunk), programs, now)
        if self.slots is None:
            for mark in self.marks:
                programs.mark(mark, now)
            return
        place, proposal = self.slots.post(self.priority, list(self.marks))
        if self.agree is not None:
            proposals = joint.proposals
            proposals[self.call] = max(proposals.get(self.call, 0), proposal)
            joint.left["place", self.call, self.rank] = place
            programs.mark(self.agree, now)
        self.slots.start(programs, now)


@dataclass(frozen=True, slots=True)
class Agreed:
    """One of `count` sequences of a rank's part in agreeing on a call is over."""

    joint: JointPrograms
    call: int
    rank: int
    slots: RankSlots
    count: int

    def __call__(self, programs: Runner, now: float) -> None:
        """With the last one the rank knows the highest proposal."""
        joint = self.joint
        if joint.is_last(("agree", self.call, self.rank), self.count):
            place = joint.left["place", self.call, self.rank]
            self.slots.agree(place, joint.proposals[self.call], programs, now)


@dataclass(frozen=True, slots=True)
class PassedOn:
    """One of `count` sequences of a switch's part in a chunk is over. With the last one the switch
    is free, which `mark` tells, and the chunk's stream gives back what it `held`; then the chunks
    of `following` ask for theirs."""

    joint: JointPrograms
    call: int
    chunk: int
    switch: int
    count: int
    mark: int
    holds: bool
    following: tuple[int, ...]

    def __call__(self, programs: Runner, now: float) -> None:
        """Count it."""
        joint = self.joint
        if joint.is_last(("passed on", self.call, self.chunk, self.switch), self.count):
            programs.mark(self.mark, now)
            if self.holds:
                joint.streams.give_back((self.call, self.chunk), now)
                for chunk in self.following:
                    joint.ask((self.call, chunk), programs, now)


@dataclass(frozen=True, slots=True)
class Ended:
    """One of `count` sequences of a chunk is over at a rank; the call has so many `chunks`. `mark`
    tells that the call is complete there. The chunk's thread goes back to its `pool`."""

    joint: JointPrograms
    call: int
    chunk: int
    rank: int
    count: int
    chunks: int
    slots: RankSlots | None
    mark: int
    pool: int | None

    def __call__(self, programs: Runner, now: float) -> None:
        """Count it."""
        joint = self.joint
        if not joint.is_last(("chunk", self.call, self.chunk, self.rank), self.count):
            return
        over = joint.is_last(("call", self.call, self.rank), self.chunks)
        if over:
            joint.completed_ns[self.call][self.rank] = now
        if self.slots is not None:
            self.slots.complete(programs, now)
        if over:
            programs.mark(self.mark, now)
