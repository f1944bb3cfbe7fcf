"""Lines of ranks' logs for what OpenMPI's messages are: collectives, and messages by themselves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from analysis.decode.mpi.collectives import MpiCollective, group_of
from analysis.runs.mpi_messages import MpiMessage
from collectives.kinds import Kind

MOST_MESSAGES: Final = 10_000
"""Beyond so many messages that are of no collective, none has a row."""

_ELEMENT_BYTES = (8, 4, 2, 1)


def named(messages: Iterable[MpiMessage]) -> list[MpiMessage]:
    """Messages that are of no known collective, in order of time, each with an id where it has
    times and there are not too many."""
    found = sorted(messages, key=lambda one: one.sent_ns or 0)
    if len(found) > MOST_MESSAGES:
        return found
    count: dict[str, int] = defaultdict(int)
    ids = []
    for each in found:
        what = each.tag if each.tag >= 0 else each.kind
        head = f"{group_of(each.context)}.{each.source}to{each.destination}.{what}"
        ids.append(f"{head}.{count[head]}")
        count[head] += 1
    return [
        each if each.come_ns is None or each.sent_ns is None else replace(each, collective=id)
        for each, id in zip(found, ids, strict=True)
    ]


def lines_of(
    collectives: Sequence[MpiCollective], messages: Iterable[MpiMessage], ranks: int
) -> dict[int, list[dict[str, Any]]]:
    """By rank, in order of time: its part of each collective, and of each message that has an id.

    A rank that begins by sending is there when its first message leaves. Of one that begins by
    receiving it is not known, as MPI sends what nobody has asked for: it is taken to be there from
    the collective's first message on.
    """
    found: dict[int, list[dict[str, Any]]] = defaultdict(list)
    singles = [_of_message(each) for each in messages if each.collective is not None]
    for one in sorted([*collectives, *singles], key=lambda each: each.messages[0].sent_ns or 0):
        first_ns = min(each.sent_ns or 0 for each in one.messages)
        for rank in one.ranks:
            own = [each for each in one.messages if each.source == rank]
            coming = [each for each in one.messages if each.destination == rank]
            sent = [each.sent_ns for each in own if each.sent_ns is not None]
            left = [each.left_ns for each in own if each.left_ns is not None]
            come = [each.come_ns for each in coming if each.come_ns is not None]
            sends_first = bool(sent) and (not come or min(sent) < min(come))
            # A rank's message has left it before, if not its host.
            end_ns = max(come if come and one.kind.traits.ends_together else [*come, *left])
            times = {"start_ns": min(sent) if sends_first else first_ns, "end_ns": end_ns}
            found[rank].append(_line(one, ranks) | times)
    return found


def _of_message(each: MpiMessage) -> MpiCollective:
    assert each.collective is not None
    return MpiCollective(
        each.collective,
        Kind.SEND_RECV,
        each.context,
        each.size_bytes,
        (each.source, each.destination),
        0,
        False,
        (each,),
    )


def _line(one: MpiCollective, ranks: int) -> dict[str, Any]:
    sizes = [one.size_bytes, *(each.size_bytes for each in one.messages)]
    element = next(n for n in _ELEMENT_BYTES if all(size % n == 0 for size in sizes))
    line: dict[str, Any] = {
        "event": "collective",
        "id": one.id,
        "kind": str(one.kind),
        "phase": str(one.kind),
        "group": group_of(one.context),
        "tag": None,
        "size_bytes": one.size_bytes,
        "element_bytes": element,
        "root": one.root,
        "iteration": 0,
        "ranks": None if one.ranks == tuple(range(ranks)) else list(one.ranks),
        "waited_ns": 0,
        "known": 0,
    }
    if one.kind is Kind.SEND_RECV:
        line |= {"peer": 1, "ranks": list(one.ranks)}
        if one.messages[0].tag < 0:
            line["phase"] = f"message of {one.messages[0].kind}"
    if one.uneven:
        line["uneven"] = True
    return line
