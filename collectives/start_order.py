"""Which chunk a rank starts next: the order of collectives, the same on all ranks.

A rank has `in_flight` slots. A free one takes the next chunk of the order; what has started is not
pre-empted. First in, first out needs nothing else, as all ranks post their collectives in one
order. The others depend on which collectives are there when a slot gets free, and that is not the
same at all ranks. So ranks agree, for every collective, on the number of the start from which on it
is looked at: each proposes its own count of starts when it posts, and some more (`ahead`), and the
highest proposal is it. Starts go on meanwhile, up to a rank's own proposal. A collective that
nothing waiting stands before is looked at at once.

Why the order is the same: it is a function of the numbers that were agreed on. Numbers rise from
one collective to the next, as proposals do. A rank makes start n only when no collective can have a
number up to n that it does not know: one that it has not posted yet will have a higher one, as its
own proposal will be higher; for one that is being agreed on the rank stops at its own proposal. And
where nothing known waits, the next collective in order of posting comes, whatever its number.

Why no rank waits for ever: take the first chunk in the order that is not complete everywhere. All
before it are, so every rank has a slot for it. A rank that has not posted its collective is blocked
by an earlier one, W. Ranks that have posted it had completed W before, so all of W's chunks come
earlier in the order, hence are complete. A rank that waits for an agreement waits for ranks to
post, and the same holds for these.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class CollectiveOrder(StrEnum):
    """The collective whose chunks go first: the first posted, the last posted, or that of the
    highest priority. Among equal ones LIFO looks at priorities before it looks at posting;
    `priority` takes the first posted."""

    FIFO = "fifo"
    LIFO = "lifo"
    PRIORITY = "priority"


@dataclass(frozen=True, slots=True)
class Start:
    """A chunk that is to start: the number of its collective in order of posting, and its own."""

    collective: int
    chunk: int


@dataclass(slots=True)
class _Posted:
    """A collective: until `agreed` is known, it is that much at `least`. `following` is its next
    chunk."""

    number: int
    priority: int
    chunks: int
    least: int
    agreed: int | None = None
    following: int = 0


@dataclass(slots=True)
class StartOrder:
    """One rank's view of the order. Numbers of collectives count from 0 in order of posting."""

    order: CollectiveOrder
    in_flight: int
    ahead: int = field(init=False)
    running: int = field(init=False, default=0)
    started: int = field(init=False, default=0)
    _count: int = field(init=False, default=0)
    _pending: list[_Posted] = field(init=False, default_factory=list)
    _waiting: list[_Posted] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        if self.in_flight < 1:
            raise ValueError(f"found {self.in_flight} chunks in flight, allowed 1 and more")
        # Agreeing takes about as long as some chunks do: so long, slots need not stay empty.
        self.ahead = self.in_flight // 2

    @property
    def agrees(self) -> bool:
        """Whether ranks have to agree on each collective."""
        return self.order is not CollectiveOrder.FIFO

    def post(self, priority: int, chunks: int) -> int:
        """Post a collective. Returns this rank's proposal: the start from which on it counts."""
        posted = _Posted(self._count, priority, chunks, self.started + self.ahead)
        self._count += 1
        if self.agrees:
            self._pending.append(posted)
        else:
            self._waiting.append(posted)
        return posted.least

    def agree(self, collective: int, start: int) -> None:
        """The highest of all ranks' proposals for a collective."""
        for posted in self._pending:
            if posted.number == collective:
                posted.agreed = start

    def next(self) -> Start | None:
        """The chunk to start now, which counts as running then; None where there is none yet."""
        if self.running >= self.in_flight or not self._look():
            return None
        chosen = max(self._waiting, key=self._rank)
        start = Start(chosen.number, chosen.following)
        chosen.following += 1
        if chosen.following == chosen.chunks:
            self._waiting.remove(chosen)
        self.running += 1
        self.started += 1
        return start

    def complete(self) -> None:
        """A chunk that was started is complete."""
        self.running -= 1

    def _rank(self, posted: _Posted) -> tuple[int, int]:
        match self.order:
            case CollectiveOrder.FIFO:
                return 0, -posted.number
            case CollectiveOrder.LIFO:
                return posted.priority, posted.number
            case CollectiveOrder.PRIORITY:
                return posted.priority, -posted.number

    def _look(self) -> bool:
        """Take in what counts from the next start on. Whether a start can be made."""
        while self._pending:
            first = self._pending[0]
            if self._waiting:
                if first.agreed is None and self.started >= first.least:
                    return False
                if first.agreed is None or first.agreed > self.started:
                    break
            self._waiting.append(self._pending.pop(0))
        return bool(self._waiting)
