"""The question to a simulator and its answer: a Scenario becomes a Timeline.

A scenario has collectives, and what each rank's main thread does, act by act: it computes, posts
collectives and waits for them. It says where all of that happens, and nothing of how it goes on.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from analysis.predict.interface import PredictorError, Setting
from collectives.call import CollectiveCall
from collectives.kinds import Kind
from topologies.spec.run_sections import FaultSpec


@dataclass(frozen=True, slots=True)
class Compute:
    """The main thread is busy, or sleeps."""

    duration_ns: float


@dataclass(frozen=True, slots=True)
class Due:
    """The main thread was here at this time in a run: what it is late by now, it stays late by."""

    at_ns: float


@dataclass(frozen=True, slots=True)
class Until:
    """The main thread does nothing before this time, and what it is late by (`Due`)."""

    at_ns: float


@dataclass(frozen=True, slots=True)
class PostCall:
    """The main thread posts a collective, by its place among the calls."""

    call: int


@dataclass(frozen=True, slots=True)
class WaitForCall:
    """The main thread waits until a collective is complete at its rank."""

    call: int


@dataclass(frozen=True, slots=True)
class Pass:
    """The main thread comes by here; when is kept under this number."""

    number: int


@dataclass(frozen=True, slots=True)
class Propose:
    """The main thread proposes a time that is at least `margin_ns` ahead, on a grid."""

    meeting: int
    margin_ns: int
    grid_ns: int


@dataclass(frozen=True, slots=True)
class Meet:
    """The main thread sleeps until the latest time that was proposed."""

    meeting: int


@dataclass(frozen=True, slots=True)
class Begin:
    """The main thread begins an iteration, by which faults are timed."""

    iteration: int


Act = Compute | Due | Until | PostCall | WaitForCall | Pass | Propose | Meet | Begin


@dataclass(frozen=True, slots=True)
class GroupedCall:
    """A collective and the group that it belongs to: each group has slots of its own."""

    call: CollectiveCall
    group: str


@dataclass(frozen=True, eq=False, slots=True)
class Scenario:
    """Collectives on a fabric, and the acts of each rank. Ranks are those of the setting. Faults
    begin with an iteration, or so long after the first one's `Begin`. `begin_ns` is what the hosts'
    clocks show at its begin, from when ranks set out; all other times count from the begin."""

    setting: Setting
    calls: Sequence[GroupedCall]
    acts: Mapping[int, Sequence[Act]]
    faults: Sequence[FaultSpec] = ()
    begin_ns: int = 0

    def __post_init__(self) -> None:
        """Raises PredictorError for a transport that no predictor knows."""
        if self.setting.transport.unknown is not None:
            raise PredictorError(self.setting.transport.unknown)

    @classmethod
    def of_one(cls, setting: Setting, call: CollectiveCall) -> Scenario:
        """A collective that all its ranks post at once, on an idle fabric."""
        acts = (PostCall(0),)
        return cls(setting, [GroupedCall(call, "")], dict.fromkeys(call.ranks, acts))

    @property
    def only(self) -> CollectiveCall | None:
        """The collective of a scenario that is made by `of_one`, and of those like it."""
        if len(self.calls) != 1 or any(acts != (PostCall(0),) for acts in self.acts.values()):
            return None
        return self.calls[0].call

    @property
    def silent(self) -> bool:
        """Whether no message leaves a rank."""
        return all(each.call.schedule.sends_nothing(each.call.shape) for each in self.calls)

    def expect_announced(self) -> None:
        """Raises PredictorError for messages that were read off a wire, which nothing announces as
        Gloo does."""
        if any(each.call.schedule.observed for each in self.calls):
            raise PredictorError(
                "its messages are not announced as Gloo's are, and this predictor knows no others"
            )

    def expect_hosts_apart(self) -> None:
        """Raises PredictorError for ranks of a collective that share a host: no link carries what
        these exchange."""
        for each in self.calls:
            hosts = [self.setting.hosts[rank] for rank in each.call.ranks]
            if len(set(hosts)) < len(hosts):
                raise PredictorError(
                    "ranks of it share a host; the messages between these are not predicted"
                )


def at_most(messages: int, calls: Iterable[GroupedCall], seed: int) -> bool:
    """Whether some calls have no more messages than this, told without keeping them."""
    left = messages
    for grouped in calls:
        left -= grouped.call.schedule.count(grouped.call.shape, seed, most=left)
        if left < 0:
            return False
    return True


_DEVIATIONS = 3
"""The limits of control charts (Shewhart 1931): 99.7% of a normal distribution."""


@dataclass(frozen=True, eq=False, slots=True)
class Timeline:
    """When what happened, in nanoseconds from the scenario's begin.

    `posted_ns`, `completed_ns` and `awaited_ns` have, by call and rank, when it was posted, when it
    was complete, and when a wait for it was over, where the rank waited. By rank: `ended_ns`, when
    the main thread ended, and `waited_ns`, how long it had waited. `passed_ns` has (rank, number of
    a `Pass`) -> when the thread came by, and how long it had waited until then. `errors_ns` has, by
    simulators that leap, how far off each call may be for its leaps, and `swings_ns` by how much
    those like it swing for what others do at the time, as a standard deviation; swings of the calls
    in `add_up` make that of an iteration. Else they are empty.
    """

    calls: Sequence[GroupedCall]
    posted_ns: Sequence[Mapping[int, float]]
    completed_ns: Sequence[Mapping[int, float]]
    awaited_ns: Sequence[Mapping[int, float]] = ()
    ended_ns: Mapping[int, float] = field(default_factory=dict)
    waited_ns: Mapping[int, float] = field(default_factory=dict)
    passed_ns: Mapping[tuple[int, int], tuple[float, float]] = field(default_factory=dict)
    errors_ns: Sequence[float] = ()
    swings_ns: Sequence[float] = ()
    add_up: Set[int] = frozenset()

    @classmethod
    def of_one(cls, call: CollectiveCall, duration_ns: float) -> Timeline:
        """The answer to `Scenario.of_one`."""
        posted, completed = (dict.fromkeys(call.ranks, at) for at in (0.0, duration_ns))
        return cls([GroupedCall(call, "")], [posted], [completed])

    def __post_init__(self) -> None:
        """Raises PredictorError where ranks wait for each other."""
        for grouped, completed in zip(self.calls, self.completed_ns, strict=True):
            if len(completed) < len(grouped.call.ranks):
                missing = min(set(grouped.call.ranks) - set(completed))
                raise PredictorError(f"{grouped.call.kind}: rank {missing} waits for ever")

    def durations_ns(self) -> list[float]:
        """The duration of each call, from its last rank's posting it to its last rank's
        completion."""
        return [
            max(completed.values()) - max(posted.values())
            for posted, completed in zip(self.posted_ns, self.completed_ns, strict=True)
        ]

    def error_ns(self, number: int) -> float | None:
        """How far off a call may be: for its leaps, and three deviations of those like it. None by
        simulators that follow everything."""
        if not self.errors_ns:
            return None
        return self.errors_ns[number] + _DEVIATIONS * self.swings_ns[number]

    def error_together_ns(self, numbers: Iterable[int]) -> float:
        """How far off the end of calls may be that come one after the other. Leaps add up; swings
        come by chance, so that their squares do."""
        known = list(numbers)
        chance = math.hypot(*(self.swings_ns[each] for each in known if each in self.add_up))
        return sum(self.errors_ns[each] for each in known) + _DEVIATIONS * chance

    def measured_ns(self) -> list[float]:
        """The duration of each call as a run measures it: as `durations_ns`, but what ends where a
        rank waits for it ends there."""
        found = []
        for number, duration in enumerate(self.durations_ns()):
            call = self.calls[number].call
            if call.schedule.ends_when_awaited(call.shape.kind):
                ends = {**self.completed_ns[number], **self.awaited_ns[number]}
                if call.kind == Kind.SEND_RECV and call.peer is not None:
                    receiver = call.ranks[call.peer]  # its sender asks when it gets to it
                    ends = {receiver: ends[receiver]}
                duration = max(ends.values()) - max(self.posted_ns[number].values())
            found.append(duration)
        return found
