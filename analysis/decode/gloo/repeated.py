"""The collectives behind messages of one slot, which a library uses again for each: torch counts
collectives in slots, XLA and others do not.

A rank is in one of these at a time, and has received all that is its own before it sends data of
the next. Each is as long as the schedule of its kind says (`collectives.schedule.gloo`), so the
messages between every two ranks are cut into the schedules of collectives of some sizes, such that
nobody sends anything before it has received what the schedule has it wait for. Where several sizes
fit, the smallest is taken.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from analysis.decode.gloo.expected_messages import Pair, messages_of_call
from analysis.decode.gloo.wire_messages import WireMessage
from collectives.call import CollectiveCall
from collectives.kinds import Kind
from collectives.schedule.gloo_steps import Wait, all_reduce_segments, gloo_steps

Cut = tuple[CollectiveCall, list[WireMessage]]
"""A collective and its messages."""

ELEMENT_BYTES: Final = (8, 4, 2, 1)
_MOST_STEPS: Final = 100_000
"""Beyond so many tries it is unclear what the messages are."""


def cut_by_shape(
    kind: Kind, ranks: tuple[int, ...], messages: Sequence[WireMessage]
) -> list[Cut] | None:
    """The collectives of a kind that all these messages are; None where they are not. Each message
    has a size and times."""
    lists: dict[Pair, list[WireMessage]] = {}
    for each in sorted(messages, key=lambda one: (one.sent_ns or 0, one.number)):
        lists.setdefault((each.source, each.destination), []).append(each)
    if kind is Kind.ALL_TO_ALL:
        return _all_to_alls(ranks, lists)
    return _Cutting(kind, ranks, lists).cut()


def _all_to_alls(
    ranks: tuple[int, ...], lists: Mapping[Pair, list[WireMessage]]
) -> list[Cut] | None:
    """One message between every two ranks for each, whatever its size."""
    counts = {len(many) for many in lists.values()}
    if len(lists) != len(ranks) * (len(ranks) - 1) or len(counts) != 1:
        return None
    found = []
    for block in zip(*lists.values(), strict=True):
        total = sum(each.size_bytes or 0 for each in block)
        size = round(total / (len(ranks) - 1))
        found.append((CollectiveCall(Kind.ALL_TO_ALL, size, ranks), list(block)))
    return found


class _Cutting:
    """Messages by pair of ranks, in order, and how far they have been cut."""

    def __init__(
        self, kind: Kind, ranks: tuple[int, ...], lists: Mapping[Pair, list[WireMessage]]
    ) -> None:
        self._kind = kind
        self._ranks = ranks
        self._lists = lists
        self._sizes = {pair: [one.size_bytes or 0 for one in many] for pair, many in lists.items()}
        self._at = dict.fromkeys(lists, 0)
        self._shapes: dict[CollectiveCall, dict[Pair, list[int]]] = {}

    def cut(self) -> list[Cut] | None:
        """All of them, by trying what comes next, and another where that leads nowhere."""
        made: list[CollectiveCall] = []
        tries = [self._next()]
        for _ in range(_MOST_STEPS):
            if self._is_done():
                return self._made(made)
            call = next(tries[-1], None)
            if call is not None:
                self._move(call, 1)
                made.append(call)
                tries.append(self._next())
                continue
            tries.pop()
            if not tries:
                return None
            self._move(made.pop(), -1)
        return None

    def _made(self, calls: Sequence[CollectiveCall]) -> list[Cut]:
        at = dict.fromkeys(self._lists, 0)
        found = []
        for call in calls:
            block = []
            for pair, sizes in self._shapes[call].items():
                block += self._lists[pair][at[pair] : at[pair] + len(sizes)]
                at[pair] += len(sizes)
            found.append((call, block))
        return found

    def _is_done(self) -> bool:
        return all(at == len(self._lists[pair]) for pair, at in self._at.items())

    def _move(self, call: CollectiveCall, times: int) -> None:
        for pair, sizes in self._shapes[call].items():
            self._at[pair] += times * len(sizes)

    def _next(self) -> Iterator[CollectiveCall]:
        """Calls that the messages that are left can begin with, the smallest first."""
        fitting = []
        for call in self._candidates():
            if call not in self._shapes:
                self._shapes[call] = messages_of_call(call)
            shape = self._shapes[call]
            if shape and all(self._begins(pair, sizes) for pair, sizes in shape.items()):
                fitting.append(call)
        fitting.sort(key=lambda call: call.size_bytes)
        return (call for call in fitting if self._waits_as(call))

    def _begins(self, pair: Pair, sizes: Sequence[int]) -> bool:
        at = self._at.get(pair)
        return at is not None and self._sizes[pair][at : at + len(sizes)] == sizes

    def _waits_as(self, call: CollectiveCall) -> bool:
        """Whether ranks sent nothing before they had received what they wait for first, by the
        schedule, and nothing of what follows before all of it. That data leaves is certain; when it
        was announced is not, where that was captured in the middle of a segment."""
        at = dict(self._at)
        come_ns: dict[int, int] = defaultdict(int)
        posts: list[list[WireMessage]] = []
        for step in gloo_steps(call.shape):
            if isinstance(step, Wait):
                for each in posts[step.post] if step.receives else ():
                    assert each.come_ns is not None
                    come_ns[each.destination] = max(come_ns[each.destination], each.come_ns)
                continue
            posts.append([])
            for source, destination in zip(step.source, step.destination, strict=True):
                pair = self._ranks[source], self._ranks[destination]
                each = self._lists[pair][at[pair]]
                at[pair] += 1
                if _is_early(each, come_ns):
                    return False
                posts[-1].append(each)
        return not any(
            _is_early(many[at[pair]], come_ns)
            for pair, many in self._lists.items()
            if at[pair] < len(many)
        )

    def _head(self, source: int, destination: int, many: int = 1) -> list[int] | None:
        """Sizes of the next messages between two positions; None where there are fewer."""
        pair = self._ranks[source], self._ranks[destination]
        at = self._at.get(pair, 0)
        found = self._sizes.get(pair, [])[at : at + many]
        return found if len(found) == many else None

    def _candidates(self) -> Iterator[CollectiveCall]:
        match self._kind:
            case Kind.ALL_REDUCE:
                yield from self._all_reduces()
            case Kind.ALL_GATHER:
                halves = self._head(0, 1, 2)
                if halves is not None:
                    yield self._call(sum(halves) * len(self._ranks), 1)
            case Kind.BARRIER:
                yield self._call(0, 1)
            case Kind.BROADCAST | Kind.GATHER | Kind.SCATTER:
                yield from self._rooted()
            case Kind.REDUCE:
                yield from self._reduces()

    def _call(self, size_bytes: int, element_bytes: int, root: int = 0) -> CollectiveCall:
        return CollectiveCall(self._kind, size_bytes, self._ranks, element_bytes, root)

    def _all_reduces(self) -> Iterator[CollectiveCall]:
        """By the first segment, which the last rank sends first: all but one are as long as it, and
        one may be shorter."""
        world = len(self._ranks)
        last = world - 1
        head = self._head(last, (last - 1) % world)
        if head is None:
            return
        (segment,) = head
        pair = self._ranks[last], self._ranks[(last - 1) % world]
        left = len(self._lists[pair]) - self._at[pair]
        seen = set()
        count = 2 * world
        while count == 2 * world or 2 * (count - count // world) <= left:
            window = 2 * (count - count // world)
            shorter = {
                size
                for other, at in self._at.items()
                for size in islice(self._sizes[other], at, at + window)
                if size <= segment
            }
            for element in ELEMENT_BYTES:
                if segment % element:
                    continue
                least = max(1, count * (segment - element) // segment)
                for size in shorter:
                    for full in range(least - 1, count):
                        total = full * segment + size
                        if total in seen or size % element:
                            continue
                        cut = all_reduce_segments(total, world, element)
                        if (cut.count, cut.size_bytes) == (count, segment):
                            seen.add(total)
                            yield self._call(total, element)
            count += world

    def _rooted(self) -> Iterator[CollectiveCall]:
        """By the earliest message: its sender, or who it is sent to, is the root."""
        heads = [
            many[self._at[pair]] for pair, many in self._lists.items() if self._at[pair] < len(many)
        ]
        if not heads:
            return
        first = min(heads, key=lambda one: one.sent_ns or 0)
        size = first.size_bytes or 0
        parts = 1 if self._kind is Kind.BROADCAST else len(self._ranks)
        to_root = self._kind is Kind.GATHER
        root = self._ranks.index(first.destination if to_root else first.source)
        yield self._call(size * parts, element_bytes_of([size]), root)

    def _reduces(self) -> Iterator[CollectiveCall]:
        """One alone: it is found by the sum of its messages."""
        world = len(self._ranks)
        total = sum(sum(sizes[self._at[pair] :]) for pair, sizes in self._sizes.items())
        size, rest = divmod(total * world, (world - 1) * (world + 1))
        if not rest:
            for root in range(world):
                yield self._call(size, element_bytes_of([size]), root)


def _is_early(message: WireMessage, come_ns: Mapping[int, int]) -> bool:
    """Whether a message left before its sender had received what has come since."""
    assert message.sent_ns is not None
    return not message.inferred and message.sent_ns < come_ns.get(message.source, 0)


def element_bytes_of(sizes: Sequence[int]) -> int:
    """The largest element that all messages can be made of."""
    return next(n for n in ELEMENT_BYTES if all(size % n == 0 for size in sizes))
