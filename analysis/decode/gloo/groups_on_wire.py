"""Process groups and their connections, from captures alone.

Every rank listens on one port per group, and of two ranks the one with the higher address connects
(gloo/transport/tcp/device.cc). So the lowest address of a group hears of all the others, and who
listens at a higher one hears of the part of the group above it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from analysis.decode.gloo.stream import MessageStream
from analysis.decode.tcp.stream import Endpoint, TcpConnection

Streams = tuple[MessageStream, MessageStream]


@dataclass
class WireGroup:
    """A group: its ranks, ascending, and (initiator, responder, streams) of its connections."""

    ranks: tuple[int, ...]
    opened_ns: int
    name: str = ""
    connections: list[tuple[int, int, TcpConnection, Streams]] = field(default_factory=list)
    listeners: set[int] = field(default_factory=set)
    """The ranks whose listening port has been found."""


def groups_on_wire(
    found: Sequence[tuple[TcpConnection, Streams]], rank_at: Mapping[int, int], ranks: int
) -> list[WireGroup]:
    """The groups that these connections are of, in the order in which they were made.

    `rank_at` has the rank of each address, which is one rank's alone; `ranks` are those of the run.
    The first group of all ranks is `default`, as in a log, the others `group.1` and so on.
    """
    at: dict[Endpoint, list[tuple[TcpConnection, Streams]]] = defaultdict(list)
    for connection, streams in found:
        ends = connection.forward.source.address, connection.forward.destination.address
        if all(address in rank_at for address in ends):
            at[connection.forward.destination].append((connection, streams))
    groups: list[WireGroup] = []
    by_owner = sorted(at.items(), key=lambda one: (one[0].address, one[1][0][0].opened_ns))
    for listener, heard in by_owner:
        owner = rank_at[listener.address]
        callers = {rank_at[connection.forward.source.address] for connection, _ in heard}
        group = _group_of(groups, owner, callers, heard, rank_at)
        if group is None:
            group = WireGroup(tuple(sorted({owner, *callers})), heard[0][0].opened_ns)
            groups.append(group)
        group.listeners.add(owner)
        group.opened_ns = min(group.opened_ns, heard[0][0].opened_ns)
        group.connections += [
            (rank_at[connection.forward.source.address], owner, connection, streams)
            for connection, streams in heard
        ]
    groups.sort(key=lambda group: (group.opened_ns, group.ranks))
    world = next((g for g in groups if len(g.ranks) == ranks), None)
    others = [group for group in groups if group is not world]
    for number, group in enumerate(others, start=1):
        group.name = f"group.{number}"
    if world is not None:
        world.name = "default"
    return groups


def _group_of(
    groups: Sequence[WireGroup],
    owner: int,
    callers: set[int],
    heard: Sequence[tuple[TcpConnection, Streams]],
    rank_at: Mapping[int, int],
) -> WireGroup | None:
    """The earliest group that has the owner of a listening port, lacks this port, whose members of
    higher addresses are the callers, and in which these are numbered as they say themselves."""
    address = {rank: number for number, rank in rank_at.items()}
    for group in sorted(groups, key=lambda group: group.opened_ns):
        above = {rank for rank in group.ranks if address[rank] > address[owner]}
        if owner not in group.ranks or owner in group.listeners or above != callers:
            continue
        said = {rank_at[c.forward.source.address]: streams[0].hello for c, streams in heard}
        if all(hello in (None, group.ranks.index(rank)) for rank, hello in said.items()):
            return group
    return None
