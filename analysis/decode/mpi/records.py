"""Lines of ranks' logs for rows of OpenMPI's messages: collectives, exchanges, single messages."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from analysis.decode.mpi.algorithms import come_ns, sent_ns
from analysis.decode.mpi.collectives import MpiCollective, group_of
from analysis.decode.mpi.exchanges import acts_of
from collectives.kinds import Kind

_ELEMENT_BYTES = (8, 4, 2, 1)


def lines_of(
    rows: Iterable[MpiCollective], ranks: int, unpredicted: Mapping[str, str], prefix: str = ""
) -> dict[int, list[dict[str, Any]]]:
    """By rank, in order of time: its part of each row. `unpredicted` has, by a row's id, why it has
    no prediction. The names of groups begin with `prefix`.

    A rank that begins by sending is there when its first message leaves. No message tells when a
    rank came that begins by receiving, as MPI sends what nobody has asked for: it is taken to be
    there from the first message of all on, or from its last act of another row.
    """
    ordered = sorted(rows, key=lambda each: sent_ns(each.messages[0]))
    acts: dict[int, list[tuple[int, str]]] = defaultdict(list)
    for one in ordered:
        for rank, times in acts_of(one).items():
            acts[rank] += ((time_ns, one.id) for time_ns in times)
    for own in acts.values():
        own.sort()
    found: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for one in ordered:
        first_ns = sent_ns(one.messages[0])
        for rank in one.ranks:
            sent = [sent_ns(each) for each in one.messages if each.source == rank]
            left = [each.left_ns for each in one.messages if each.source == rank]
            come = [come_ns(each) for each in one.messages if each.destination == rank]
            if sent and (not come or min(sent) < min(come)):
                start_ns = min(sent)
            else:
                start_ns = max(first_ns, _before(acts[rank], min(come, default=0), one.id))
            # A rank's message has left it before, if not its host.
            together = come and one.kind.traits.ends_together
            ends = come if together else [*come, *(each for each in left if each is not None)]
            line = _line(one, ranks, f"{prefix}{group_of(one.context)}") | {
                "start_ns": start_ns,
                "end_ns": max(ends),
            }
            if one.id in unpredicted:
                line["unpredicted"] = unpredicted[one.id]
            found[rank].append(line)
    return found


def _before(acts: Sequence[tuple[int, str]], time_ns: int, but: str) -> int:
    """When a rank last did something before a time that is of another row; 0: never."""
    place = bisect_left(acts, (time_ns, ""))
    while place and acts[place - 1][1] == but:
        place -= 1
    return acts[place - 1][0] if place else 0


def _line(one: MpiCollective, ranks: int, group: str) -> dict[str, Any]:
    sizes = [one.size_bytes, *(each.size_bytes for each in one.messages)]
    element = next(n for n in _ELEMENT_BYTES if all(size % n == 0 for size in sizes))
    line: dict[str, Any] = {
        "event": "collective",
        "id": one.id,
        "kind": str(one.kind),
        "phase": str(one.kind),
        "group": group,
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
    if one.kind in (Kind.SEND_RECV, Kind.EXCHANGE):
        parts = sorted({each.kind for each in one.messages if each.tag < 0})
        if parts:
            what = "message" if len(one.messages) == 1 else "messages"
            line["phase"] = f"{what} of {' and '.join(parts)}"
    if one.uneven:
        line["uneven"] = True
    return line
