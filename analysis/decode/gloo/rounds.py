"""Messages of no collective that is known, told apart by when ranks posted them.

A rank posts a round of messages before any of these has come. Messages in the same round of both
their ends' are at one level, and those of a level that were under way at one time are one exchange.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from analysis.decode.gloo.wire_messages import WireMessage, by_time


def exchanges_of(messages: Sequence[WireMessage]) -> list[list[WireMessage]]:
    """The exchanges that messages are parts of, each in the order in which they left. Each message
    has a size and times."""
    rounds: dict[int, list[list[WireMessage]]] = defaultdict(list)
    for rank in {rank for each in messages for rank in (each.source, each.destination)}:
        rounds[rank] = _rounds_of(rank, messages)
    before: dict[tuple[int, int], list[WireMessage]] = {}
    for rank, many in rounds.items():
        for number, one in enumerate(many):
            earlier = many[number - 1] if number else []
            before |= {(id(each), rank): earlier for each in one}
    level: dict[int, int] = {}
    for each in by_time(messages):
        ends = before[id(each), each.source], before[id(each), each.destination]
        level[id(each)] = 1 + max((level.get(id(m), 0) for many in ends for m in many), default=0)
    levels: dict[tuple[int, int, int | None], list[WireMessage]] = defaultdict(list)
    for each in by_time(messages):
        levels[level[id(each)], each.slot >> 24, each.size_bytes].append(each)
    found = [one for many in levels.values() for one in _at_one_time(many)]
    return sorted(found, key=lambda one: (one[0].sent_ns or 0, one[0].source))


def _rounds_of(rank: int, messages: Sequence[WireMessage]) -> list[list[WireMessage]]:
    """A rank's messages, in parts that begin when all that was to come had come, or when it posted
    a second message for one rank."""
    own = [each for each in messages if rank in (each.source, each.destination)]
    own.sort(key=lambda each: (_posted_ns(each, rank), each.number))
    rounds: list[list[WireMessage]] = []
    for each in own:
        if not rounds or _is_next(rounds[-1], each, rank):
            rounds.append([])
        rounds[-1].append(each)
    return rounds


def _is_next(one: Sequence[WireMessage], each: WireMessage, rank: int) -> bool:
    """Whether a rank posts a message after a round. XLA posts what a rank sends, then what it
    receives, and waits for both."""
    if any((m.source, m.destination) == (each.source, each.destination) for m in one):
        return True
    at_ns = _posted_ns(each, rank)
    come = [m.come_ns or 0 for m in one if m.destination == rank]
    if come:
        return at_ns >= max(come)
    return each.source == rank and at_ns > max(m.left_ns or 0 for m in one)


def _posted_ns(message: WireMessage, rank: int) -> int:
    known = message.posted_ns(rank)
    if known is not None:
        return known
    # The receiver of a bound buffer, or an announcement that was not captured.
    return (message.come_ns if rank == message.destination else message.sent_ns) or 0


def _at_one_time(messages: Sequence[WireMessage]) -> list[list[WireMessage]]:
    """Parts of these, in order of time, that have no rank in common, and between which none was
    under way."""
    parts: list[list[WireMessage]] = []
    for each in messages:
        ends = {each.source, each.destination}
        joined = [one for one in parts if any({m.source, m.destination} & ends for m in one)]
        parts = [one for one in parts if one not in joined]
        parts.append([*(m for one in joined for m in one), each])
    found: list[list[WireMessage]] = []
    until_ns = -1
    for begun_ns, one in sorted(((_begun_ns(one), one) for one in parts), key=lambda p: p[0]):
        if not found or begun_ns > until_ns:
            found.append([])
        found[-1] += one
        until_ns = max(until_ns, *(each.come_ns or 0 for each in one))
    return [list(by_time(one)) for one in found]


def _begun_ns(messages: Sequence[WireMessage]) -> int:
    return min(
        _posted_ns(each, rank) for each in messages for rank in (each.source, each.destination)
    )
