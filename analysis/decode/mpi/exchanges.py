"""OpenMPI's messages outside of known collectives, as rows: a message that was under way by itself,
or an exchange of messages at one time.

Messages that are posted at one time share ports, connections and the answers to announcements, so
that none of them has a time of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from analysis.decode.mpi.algorithms import come_ns, sent_ns
from analysis.decode.mpi.collectives import MpiCollective, group_of
from analysis.runs.mpi_messages import MpiMessage
from collectives.kinds import Kind

MOST_ROWS: Final = 10_000
"""Beyond so many rows of messages that are of no collective, none has one."""

PAUSED: Final = (
    "a rank did something else while its messages were under way, which the wire does not tell"
)
INTERLEAVED: Final = (
    "its ranks did it while other messages of theirs were under way, and the wire does not tell "
    "which of both they waited for"
)


def exchanges_of_messages(
    messages: Sequence[MpiMessage],
) -> tuple[list[MpiCollective], list[MpiMessage]]:
    """A row for each message that was under way alone, and for those that were at one time; and the
    messages without rows: those without times, and all where there are too many."""
    timed = [each for each in messages if each.sent_ns is not None and each.come_ns is not None]
    many = list(_together(sorted(timed, key=sent_ns)))
    if len(many) > MOST_ROWS:
        return [], [*messages]
    count: dict[str, int] = defaultdict(int)
    found = []
    for own in many:
        contexts = {each.context for each in own}
        group = group_of(contexts.pop() if len(contexts) == 1 else 0)
        first = own[0]
        what = first.tag if first.tag >= 0 else first.kind
        head = f"{group}.{first.source}to{first.destination}.{what}"
        if len(own) > 1:
            head = f"{group}.exchange"
        name = f"{head}.{count[head]}"
        count[head] += 1
        found.append(_row(name, [replace(each, collective=name) for each in own]))
    return found, [each for each in messages if each.sent_ns is None or each.come_ns is None]


def _together(messages: Sequence[MpiMessage]) -> Iterator[list[MpiMessage]]:
    """Messages in order of their leaving, by which were under way at one time at a rank: from the
    first byte's leaving on, to the last one's leaving at the sender and coming at the receiver."""
    part = list(range(len(messages)))

    def root(number: int) -> int:
        while part[number] != number:
            part[number] = part[part[number]]
            number = part[number]
        return number

    busy: dict[int, tuple[int, int]] = {}
    """By rank: until when, and a message that has it so."""
    for number, each in enumerate(messages):
        left_ns = come_ns(each) if each.left_ns is None else each.left_ns
        for rank, end_ns in ((each.source, left_ns), (each.destination, come_ns(each))):
            until_ns, other = busy.get(rank, (-1, number))
            if sent_ns(each) < until_ns:
                part[root(number)] = root(other)
            if end_ns >= until_ns:
                busy[rank] = end_ns, number
    found: dict[int, list[MpiMessage]] = defaultdict(list)
    for number, each in enumerate(messages):
        found[root(number)].append(each)
    yield from found.values()


def _row(name: str, own: Sequence[MpiMessage]) -> MpiCollective:
    if len(own) == 1:
        (one,) = own
        ends = one.source, one.destination
        return MpiCollective(
            name, Kind.SEND_RECV, one.context, one.size_bytes, ends, 0, False, (one,)
        )
    ranks = sorted({rank for each in own for rank in (each.source, each.destination)})
    largest = max(each.size_bytes for each in own)
    return MpiCollective(
        name, Kind.EXCHANGE, own[0].context, largest, tuple(ranks), 0, False, tuple(own)
    )


def unpredicted(rows: Sequence[MpiCollective], port_ns: Mapping[int, int]) -> dict[str, str]:
    """The rows that no predictor can follow, by id, and why. `port_ns` is the time of two full
    frames at each rank's port."""
    found = {}
    acts: dict[int, list[tuple[int, int, str]]] = defaultdict(list)
    """By rank: its first and last act of each row."""
    for row in rows:
        for rank, own in _acts(row).items():
            times, paused = _posted(own, port_ns[rank])
            acts[rank].append((min(times), max(times), row.id))
            if paused:
                found[row.id] = PAUSED
    for spans in acts.values():
        until_ns, last = -1, ""
        for first_ns, end_ns, name in sorted(spans):
            if first_ns < until_ns:
                found[name] = found[last] = INTERLEAVED
            if end_ns >= until_ns:
                until_ns, last = end_ns, name
    return found


def acts_of(row: MpiCollective) -> dict[int, list[int]]:
    """By rank, in order: when a message of a row left it or had come."""
    return {rank: [time_ns for time_ns, _, _ in own] for rank, own in _acts(row).items()}


def _acts(row: MpiCollective) -> dict[int, list[tuple[int, int, bool]]]:
    """By rank, in order: when a message of a row left it or had come, until when its port had that,
    and whether it left."""
    found: dict[int, list[tuple[int, int, bool]]] = defaultdict(list)
    for each in row.messages:
        left_ns = sent_ns(each) if each.left_ns is None else each.left_ns
        found[each.source].append((sent_ns(each), left_ns, True))
        found[each.destination].append((come_ns(each), come_ns(each), False))
    return {rank: sorted(own) for rank, own in found.items()}


def _posted(own: Sequence[tuple[int, int, bool]], port_ns: int) -> tuple[list[int], bool]:
    """When a rank did each of its acts: what left it right behind another message of its own was
    posted with that. And whether it paused: a message left long after all that the rank may have
    waited for."""
    times, paused = [], False
    free_ns, posted_ns, behind_ns = own[0][0], own[0][0], -1
    for time_ns, until_ns, sends in own:
        if not sends:
            times.append(time_ns)
        else:
            paused |= time_ns > free_ns + port_ns
            if time_ns > behind_ns:
                posted_ns = time_ns
            behind_ns = until_ns + port_ns
            times.append(posted_ns)
        free_ns = max(free_ns, until_ns)
    return times, paused
