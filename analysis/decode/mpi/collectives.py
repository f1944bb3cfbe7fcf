"""The collectives that OpenMPI's messages are parts of, where the messages tell.

A tag names the kind, and a blocking collective's messages lie between those of what a rank does
before and after it. How many collectives of one kind follow each other there, and of what size,
`algorithms` tells. Messages that do not fit are left as messages.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from analysis.decode.mpi.algorithms import RULES, Lists, One, Pair, Unclear, come_ns, sent_ns
from analysis.runs.mpi_messages import MpiMessage, unseen
from collectives.kinds import Kind


@dataclass(frozen=True, slots=True)
class MpiCollective:
    """`ranks` are those of the job, `root` is a position in them. `messages` are in the order in
    which they left."""

    id: str
    kind: Kind
    context: int
    size_bytes: int
    ranks: tuple[int, ...]
    root: int
    uneven: bool
    messages: tuple[MpiMessage, ...]

    def called(self, id: str) -> MpiCollective:
        """The same by another name, which its messages know."""
        return replace(
            self, id=id, messages=tuple(replace(each, collective=id) for each in self.messages)
        )


class _Ends(Enum):
    """The next act of a rank after a run of one kind: it sends a message of another collective, or
    one of a program; other collectives' messages come to it; or it sends something else to the same
    rank, as messages that wait in a connection leave late. Any of these can come too early to be
    told from what is before the run, so one is tried after the other."""

    COLLECTIVE_SENT = auto()
    ANYTHING_SENT = auto()
    COLLECTIVE_COME = auto()
    PAIR_SENT = auto()


def mpi_collectives(
    messages: Sequence[MpiMessage],
) -> tuple[list[MpiCollective], list[MpiMessage]]:
    """The collectives, and the messages that are of none that is known: those of programs, and of
    what is unclear. All messages of a communicator are left over where some are missing."""
    by_context: dict[int, list[MpiMessage]] = defaultdict(list)
    for each in messages:
        by_context[each.context].append(each)
    found: list[MpiCollective] = []
    left: list[MpiMessage] = []
    for context, own in by_context.items():
        if unseen(own) or any(each.sent_ns is None or each.come_ns is None for each in own):
            left += own
            continue
        of_context = _Context(context, own)
        found += of_context.collectives()
        left += of_context.left
    return found, left


class _Context:
    """The messages of a communicator."""

    def __init__(self, context: int, messages: Sequence[MpiMessage]) -> None:
        self.left: list[MpiMessage] = []
        self._context = context
        self._members = tuple(sorted({r for m in messages for r in (m.source, m.destination)}))
        self._all = sorted(messages, key=sent_ns)
        self._taken: set[int] = set()
        self._count = 0

    def collectives(self) -> Iterator[MpiCollective]:
        """The collectives in order. Messages of none go to `left`."""
        self.left += [each for each in self._all if each.tag >= 0]
        while (first := self._first()) is not None:
            yield from self._next(first)

    def _first(self) -> MpiMessage | None:
        """The earliest of a collective that is left."""
        return next((m for m in self._all if m.tag < 0 and id(m) not in self._taken), None)

    def _next(self, first: MpiMessage) -> Iterator[MpiCollective]:
        """The collective that begins with a message: the earliest of all that are left is of the
        next collective, as a rank is in a later one only when it has sent or received something of
        this one."""
        rule = RULES.get(first.kind)
        for ends in _Ends:
            run = self._run(first.tag, ends)
            try:
                if rule is None:
                    break
                kind, split = rule
                ones = list(split(self._members, run))
            except Unclear:
                continue
            self._take(run)
            for one in ones:
                yield self._made(kind, one)
            return
        self._take(run)
        self.left += [each for many in run.values() for each in many]

    def _take(self, run: Lists) -> None:
        self._taken |= {id(each) for many in run.values() for each in many}
        if len(self._taken) > len(self._all) // 4:
            self._all = [each for each in self._all if id(each) not in self._taken]
            self._taken.clear()

    def _run(self, tag: int, ends: _Ends) -> Lists:
        """The messages of this tag that ranks have sent before anything else that `ends` names."""
        begun: dict[int, int] = {}
        until: dict[int, int] = {}
        seen = []
        for each in self._all:
            if len(until) == len(self._members) and sent_ns(each) > max(until.values()):
                break
            if id(each) in self._taken:
                continue
            seen.append(each)
            if each.tag == tag:
                begun[each.source] = min(begun.get(each.source, sent_ns(each)), sent_ns(each))
                begun[each.destination] = min(
                    begun.get(each.destination, come_ns(each)), come_ns(each)
                )
            elif sent_ns(each) > begun.get(each.source, sent_ns(each)) and (
                each.tag < 0 or ends is not _Ends.COLLECTIVE_SENT
            ):
                until.setdefault(each.source, sent_ns(each))
        if ends is _Ends.COLLECTIVE_COME:
            for each in seen:
                rank = each.destination
                if (
                    each.tag < 0
                    and each.tag != tag
                    and rank in begun
                    and come_ns(each) > begun[rank]
                ):
                    until[rank] = min(until.get(rank, come_ns(each)), come_ns(each))
        run: dict[Pair, list[MpiMessage]] = defaultdict(list)
        closed: set[Pair] = set()
        for each in seen:
            pair = each.source, each.destination
            ends_ns = until.get(each.source)
            before = ends_ns is None or sent_ns(each) < ends_ns
            if each.tag != tag:
                closed.add(pair)
            elif before or (ends is _Ends.PAIR_SENT and pair in run and pair not in closed):
                run[pair].append(each)
        return run

    def _made(self, kind: Kind, one: One) -> MpiCollective:
        name = f"{group_of(self._context)}.{self._count}.{kind}"
        self._count += 1
        root = self._members.index(one.root) if one.root in self._members else 0
        messages = sorted((each for many in one.messages.values() for each in many), key=sent_ns)
        return MpiCollective(
            name,
            kind,
            self._context,
            one.size_bytes,
            self._members,
            root,
            one.uneven,
            tuple(replace(each, collective=name) for each in messages),
        )


def group_of(context: int) -> str:
    """A communicator's name in the log."""
    return "default" if context == 0 else f"group.{context}"
