"""The waits of MPI's ranks on each other in a run that hangs: by the call in which each is, which
its stack tells, and by what has gone over the wire.

A rank in a collective waits for those of its communicator that are not in it; one that sends waits
for who has been told of a long message and has not asked for its data. For whom a rank receives,
the wire does not tell: what was never sent is not there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from analysis.runs.mpi_messages import MpiMessage
from collectives.waiting_ranks import named_ranks, waiting_ring

_COLLECTIVES: Final = {
    "MPI_Allgather": "all_gather",
    "MPI_Allgatherv": "all_gatherv",
    "MPI_Allreduce": "all_reduce",
    "MPI_Alltoall": "all_to_all",
    "MPI_Alltoallv": "all_to_allv",
    "MPI_Alltoallw": "all_to_allw",
    "MPI_Barrier": "barrier",
    "MPI_Bcast": "broadcast",
    "MPI_Exscan": "exscan",
    "MPI_Gather": "gather",
    "MPI_Gatherv": "gatherv",
    "MPI_Reduce": "reduce",
    "MPI_Reduce_scatter": "reduce_scatter",
    "MPI_Reduce_scatter_block": "reduce_scatter_block",
    "MPI_Scan": "scan",
    "MPI_Scatter": "scatter",
    "MPI_Scatterv": "scatterv",
}
"""MPI's functions, by the kind of their messages (`messages.kind_of_tag`)."""
_EVERYBODY: Final = ("MPI_Finalize", "MPI_Init", "MPI_Init_thread")
_SHOWN = 16


@dataclass(frozen=True, slots=True)
class MpiRank:
    """A rank of a run that hangs. `call` is the function of MPI in which it is; empty: none, or it
    is not known. `sent` and `come` are the last messages of either way that the wire has, and
    `untaken` those that it has announced, and whose data nobody has asked for. `own` is the last
    message of a program that has come, which is of no collective. `tells` is False where it waits
    for somebody whom the wire does not tell."""

    rank: int
    call: str
    waits_for: tuple[int, ...]
    sent: MpiMessage | None
    come: MpiMessage | None
    own: MpiMessage | None
    untaken: tuple[MpiMessage, ...]

    @property
    def tells(self) -> bool:
        return bool(self.waits_for) or self.call in _COLLECTIVES or self.call in _EVERYBODY

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for hang.json."""
        return {
            "call": self.call or None,
            "sent": None if self.sent is None else asdict(self.sent),
            "come": None if self.come is None else asdict(self.come),
            "own": None if self.own is None else asdict(self.own),
            "untaken": [asdict(each) for each in self.untaken],
        }


@dataclass(frozen=True, slots=True)
class MpiHang:
    """The ranks of a job that hangs, at `at_ns` of their clock. `absent` are those that others wait
    for and that are in no call of MPI; `cycle` is a ring of ranks that wait for each other."""

    at_ns: int
    ranks: tuple[MpiRank, ...]
    absent: tuple[int, ...]
    cycle: tuple[int, ...]

    def lines(self) -> Iterator[str]:
        """In words."""
        together: dict[tuple[str, tuple[int, ...], str, bool], list[int]] = defaultdict(list)
        for each in self.ranks:
            if each.call:
                together[each.call, each.waits_for, _what(each), each.tells].append(each.rank)
        for (call, waits_for, what, tells), ranks in together.items():
            verb = "waits" if len(ranks) == 1 else "wait"
            whom = f" for {named_ranks(waits_for)}"
            if not waits_for:
                whom = ", which all have called" if tells else "; the wire does not tell for whom"
            yield f"{named_ranks(ranks)} {verb} in {call}{what}{whom}"
        for rank in self.absent:
            yield f"rank {rank} did not come: it is in no call of MPI"
        if self.cycle:
            yield "cycle: " + " -> ".join(f"rank {r}" for r in (*self.cycle, self.cycle[0]))
        for each in self.ranks[:_SHOWN]:
            yield f"rank {each.rank} on the wire: {self._last(each)}"
        if len(self.ranks) > _SHOWN:
            yield f"the others' messages are in hang.json ({len(self.ranks) - _SHOWN} ranks)"

    def _last(self, one: MpiRank) -> str:
        sent = come = ""
        if one.sent is not None and one.sent.sent_ns is not None:
            sent = f"last sent {_message(one.sent)} to rank {one.sent.destination}"
            sent += f", {(self.at_ns - one.sent.sent_ns) / 1e9:,.6f} s ago"
        if one.come is not None and one.come.come_ns is not None:
            come = f"last got {_message(one.come)} from rank {one.come.source}"
            come += f", {(self.at_ns - one.come.come_ns) / 1e9:,.6f} s ago"
        own = ""
        if one.own is not None and one.own is not one.come:
            own = f"last got of no collective {_message(one.own)} from rank {one.own.source}"
        untaken = [
            f"rank {each.destination} has not asked for {_message(each)}" for each in one.untaken
        ]
        return "; ".join(filter(None, [sent, come, own, *untaken])) or "nothing"


def mpi_hang(
    calls: Mapping[int, str], messages: Sequence[MpiMessage], ranks: int, at_ns: int
) -> MpiHang:
    """The waits of so many ranks. `calls` are the functions of MPI in which they are, where that is
    known, and `messages` all that the wire has of them."""
    found = []
    for rank in range(ranks):
        own = [each for each in messages if each.source == rank and each.sent_ns is not None]
        got = [each for each in messages if each.destination == rank and each.come_ns is not None]
        untaken = tuple(each for each in own if each.left_ns is None and each.come_ns is None)
        found.append(
            MpiRank(
                rank,
                calls.get(rank, ""),
                tuple(_waits_for(rank, calls, messages, untaken, ranks)),
                max(own, key=lambda each: (each.sent_ns or 0, each.number), default=None),
                _last_come(got),
                _last_come([each for each in got if each.tag >= 0]),
                untaken,
            )
        )
    waits_for = {each.rank: each.waits_for for each in found}
    wanted = {each for whom in waits_for.values() for each in whom}
    absent = tuple(sorted(rank for rank in wanted if not calls.get(rank)))
    return MpiHang(at_ns, tuple(found), absent, waiting_ring(waits_for))


def _last_come(messages: Sequence[MpiMessage]) -> MpiMessage | None:
    return max(messages, key=lambda each: (each.come_ns or 0, each.number), default=None)


def _waits_for(
    rank: int,
    calls: Mapping[int, str],
    messages: Sequence[MpiMessage],
    untaken: Sequence[MpiMessage],
    ranks: int,
) -> Iterator[int]:
    call = calls.get(rank, "")
    if call in _COLLECTIVES:
        members = _members(rank, _COLLECTIVES[call], messages, ranks)
    elif call in _EVERYBODY:
        members = range(ranks)
    else:
        if call:
            yield from dict.fromkeys(each.destination for each in untaken if each.tag >= 0)
        return
    yield from (each for each in members if each != rank and calls.get(each) != call)


def _members(rank: int, kind: str, messages: Sequence[MpiMessage], ranks: int) -> Sequence[int]:
    """The ranks of the communicator in which a rank is in a collective: that of the last message of
    the kind that it has sent or got; all ranks, where there is none."""
    own = [m for m in messages if m.kind == kind and rank in (m.source, m.destination)]
    last = max(own, key=lambda m: m.sent_ns or 0, default=None)
    if last is None:
        return range(ranks)
    together = {r for m in messages if m.context == last.context for r in (m.source, m.destination)}
    return sorted(together)


def _what(one: MpiRank) -> str:
    """The messages that a rank sends and nobody has asked for, where it waits for that."""
    if one.call in _COLLECTIVES or not one.waits_for:
        return ""
    many = [_message(each) for each in one.untaken if each.tag >= 0]
    return f" of {many[0]}" if len(many) == 1 else f" of {len(many):,} messages"


def _message(one: MpiMessage) -> str:
    what = f"with tag {one.tag}" if one.tag >= 0 else f"of {one.kind}"
    return f"{one.size_bytes:,} B {what}"
