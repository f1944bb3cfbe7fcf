"""The waits of ranks on each other, where a run does not go on: by what each has called last.

A rank waits in a call. For a collective it waits for those of its group that have not called it,
for a message for its other end. These waits lead to ranks that wait for no other, which are those
that did not come, or round in a ring.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from collectives.waiting_ranks import named_ranks, waiting_ring
from emulator.ranks.failures.calls import Call, Calls

_STACK_LINES = 6
_STACKS_SHOWN = 4


@dataclass(frozen=True, slots=True)
class Frame:
    """A call of a Python that is under way."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"


@dataclass(frozen=True, slots=True)
class Doing:
    """The doings of a rank's process. `python` is the stack of its main thread, innermost first,
    and `native` what it waits in below that: a system call, and functions of libraries. Both are
    empty where they cannot be had; `gone` says that the process has ended."""

    python: tuple[Frame, ...] = ()
    native: tuple[str, ...] = ()
    gone: bool = False

    @property
    def is_known(self) -> bool:
        """Whether it has a stack: Python's, or functions behind a system call."""
        return bool(self.python) or len(self.native) > 1


@dataclass(frozen=True, slots=True)
class RankState:
    """A rank of a run that hangs: what it waits for, and whom; else what it called last, if that is
    known."""

    rank: int
    waits_in: Call | None
    waits_for: tuple[int, ...]
    last: Call | None
    doing: Doing

    def as_dict(self) -> dict[str, object]:
        """Plain data, for hang.json."""
        return {
            "rank": self.rank,
            "waits_in": None if self.waits_in is None else _plain(self.waits_in),
            "waits_for": list(self.waits_for),
            "last": None if self.last is None else _plain(self.last),
            "python": [[f.file, f.line, f.function] for f in self.doing.python],
            "native": list(self.doing.native),
            "gone": self.doing.gone,
        }


@dataclass(frozen=True, slots=True)
class Hang:
    """A job that hangs, at `at_ns` of the monotonic clock. `absent` are the ranks that others wait
    for and that wait for none; `cycle` is a ring of ranks, each of which waits for the next one and
    the last for the first."""

    job: str
    at_ns: int
    ranks: tuple[RankState, ...]
    absent: tuple[int, ...] = field(default=())
    cycle: tuple[int, ...] = field(default=())

    def as_dict(self) -> dict[str, object]:
        """Plain data, for hang.json."""
        return {
            "job": self.job,
            "at_ns": self.at_ns,
            "absent": list(self.absent),
            "cycle": list(self.cycle),
            "ranks": [rank.as_dict() for rank in self.ranks],
        }

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def who_waits(self) -> Iterator[str]:
        """A line for each operation that ranks wait in, with whom they wait for."""
        prefix = f"job {self.job}: " if self.job else ""
        for (what, waits_for), states in self._together().items():
            verb = "waits" if len(states) == 1 else "wait"
            since_ns = max(self.at_ns - s.waits_in.at_ns for s in states if s.waits_in is not None)
            whom = f" for {named_ranks(waits_for)}" if waits_for else ", which all have called"
            ranks = named_ranks([state.rank for state in states])
            yield f"{prefix}{ranks} {verb} in {what}{whom}, for {since_ns / 1e9:,.3f} s by now"

    def who_did_not_come(self) -> Iterator[str]:
        """A line for each rank that others wait for, and that waits for none."""
        prefix = f"job {self.job}: " if self.job else ""
        yield from (f"{prefix}{_absent(each)}" for each in self.ranks if each.rank in self.absent)

    def _together(self) -> Mapping[tuple[str, tuple[int, ...]], Sequence[RankState]]:
        """The ranks that wait, by the call in which they wait and the ranks that they wait for."""
        together: dict[tuple[str, tuple[int, ...]], list[RankState]] = defaultdict(list)
        for state in self.ranks:
            if state.waits_in is not None:
                together[str(state.waits_in), state.waits_for].append(state)
        return together

    def _lines(self) -> Iterator[str]:
        prefix = f"job {self.job}: " if self.job else ""
        yield from self.who_waits()
        yield from self.who_did_not_come()
        by_rank = {state.rank: state for state in self.ranks}
        if self.cycle:
            ring = " -> ".join(f"rank {rank}" for rank in (*self.cycle, self.cycle[0]))
            yield f"{prefix}cycle: {ring}"
        waiting = [states[0].rank for states in self._together().values()]
        told = dict.fromkeys((*self.absent, *self.cycle, *waiting, *by_rank))
        shown = [by_rank[rank] for rank in told if by_rank[rank].doing.is_known]
        for state in shown[:_STACKS_SHOWN]:
            yield f"{prefix}stack of rank {state.rank}:"
            yield from (f"  {frame}" for frame in state.doing.python[:_STACK_LINES])
            below = "below it: " if state.doing.python else ""
            yield from (f"  {below}{each}" for each in state.doing.native[:_STACK_LINES])


def _absent(state: RankState) -> str:
    """The words for a rank that others wait for."""
    did = ""
    if state.doing.gone:
        did = ": it has ended"
    elif state.doing.python:
        did = f": it is at {state.doing.python[0]}"
    last = (
        "; it has called nothing that is known" if state.last is None else f", after {state.last}"
    )
    return f"rank {state.rank} did not come{did}{last}"


def _plain(call: Call) -> dict[str, object]:
    return {
        "kind": call.kind,
        "group": call.group,
        "number": call.number,
        "size_bytes": None if call.size_bytes < 0 else call.size_bytes,
        "root": call.root,
        "tag": call.tag,
        "state": call.state,
        "since_ns": call.at_ns,
    }


def find_hang(
    calls: Calls, everybody: Sequence[int], doing: Mapping[int, Doing], at_ns: int, job: str = ""
) -> Hang:
    """The waits among the ranks `everybody`, as far as their calls tell. A rank that has ended
    waits for nobody, and what it was waiting for it has not done."""
    gone = {rank for rank, each in doing.items() if each.gone}
    calls = replace(calls, by_rank=dict(_done_by(calls, gone)))
    waiting = {rank: _awaited(calls, rank, everybody) for rank in everybody}
    waits_for = {
        rank: () if call is None else tuple(_missing(calls, rank, call, everybody))
        for rank, call in waiting.items()
    }
    states = tuple(
        RankState(
            rank,
            waiting[rank],
            waits_for[rank],
            next(iter(reversed(calls.by_rank.get(rank, ()))), None),
            doing.get(rank, Doing()),
        )
        for rank in everybody
    )
    wanted = {each for whom in waits_for.values() for each in whom}
    absent = tuple(sorted(rank for rank in wanted if waiting.get(rank) is None))
    return Hang(job, at_ns, states, absent, waiting_ring(waits_for))


def _done_by(calls: Calls, gone: Collection[int]) -> Iterator[tuple[int, Sequence[Call]]]:
    """The calls of each rank, of those that have ended only what was over."""
    for rank, own in calls.by_rank.items():
        yield rank, [call for call in own if rank not in gone or call.state == "over"]


def _awaited(calls: Calls, rank: int, everybody: Sequence[int]) -> Call | None:
    """The call that a rank waits in: of several, that which it has waited for longest. A call that
    has failed, or that the rank has left by an error, counts as waited for, as its rank has not got
    what it needs, unless the rank has gone on since. So does one that waits on a stream, where its
    host waits for nothing else that is known."""
    own = calls.by_rank.get(rank, ())
    went_on = max(
        (_posted(call) for call in own if call.state in ("waits", "over")), default=(0, 0)
    )
    found = [
        call
        for call in own
        if call.state == "waits" or (call.state in ("failed", "left") and _posted(call) > went_on)
    ]
    if not found:
        queued = (call for call in own if call.state == "queued")
        found = [call for call in queued if [*_missing(calls, rank, call, everybody)]]
    return min(found, key=lambda call: call.at_ns, default=None)


def _posted(call: Call) -> tuple[int, int]:
    """The order in which a rank posts the calls of a group."""
    return call.posted_ns, call.number


def _missing(calls: Calls, rank: int, call: Call, everybody: Sequence[int]) -> Iterator[int]:
    """The ranks that a rank's call lacks."""
    if call.is_message:
        if call.root < 0 or _has_other_end(calls, rank, call):
            return
        yield call.root
        return
    for member in calls.members_of(call, everybody):
        same = (
            (other.group, other.number) == (call.group, call.number)
            for other in calls.by_rank.get(member, ())
            if not other.is_message
        )
        if member != rank and not any(same) and not _is_past(calls, member, call):
            yield member


def _is_past(calls: Calls, rank: int, call: Call) -> bool:
    """Whether a rank's own later call of the same group is known: its notes go back so far only."""
    return any(
        other.group == call.group and other.number > call.number and not other.is_message
        for other in calls.by_rank.get(rank, ())
    )


def _has_other_end(calls: Calls, rank: int, call: Call) -> bool:
    kind = "recv" if call.kind == "send" else "send"
    return any(
        other.kind == kind
        and (other.group, other.tag) == (call.group, call.tag)
        and other.root in (rank, -1)
        and other.number >= call.number
        for other in calls.by_rank.get(call.root, ())
    )
