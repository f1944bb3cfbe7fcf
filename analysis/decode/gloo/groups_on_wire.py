"""Process groups and their connections, from captures alone.

The one of two ranks with the higher address connects (gloo/transport/tcp/device.cc). So the lowest
address of a group hears of all the others, and who listens at a higher one hears of the part of the
group above it. A port numbers what may connect to it: a group of n ranks takes n numbers, in order
of its members, and the caller writes the number that is meant for it (gloo/transport/tcp/pair.cc,
`Pair::connect`). torch has a port for each group, so that the number is the caller's position; XLA
has one port for all groups.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from analysis.decode.gloo.stream import MessageStream
from analysis.decode.tcp.stream import Endpoint, TcpConnection

Streams = tuple[MessageStream, MessageStream]
Heard = tuple[TcpConnection, Streams]


@dataclass
class WireGroup:
    """A group: its ranks in order of position, and (initiator, responder, streams) of its
    connections."""

    ranks: tuple[int, ...]
    opened_ns: int
    name: str = ""
    connections: list[tuple[int, int, TcpConnection, Streams]] = field(default_factory=list)
    listeners: set[int] = field(default_factory=set)
    """The ranks whose listening port has been found."""
    axes: str | None = None
    """The axes of a mesh that it is along, where that is known."""


def groups_on_wire(
    found: Sequence[Heard], rank_at: Mapping[int, int], ranks: int
) -> list[WireGroup]:
    """The groups that these connections are of, in the order in which they were made.

    `rank_at` has the rank of each address, which is one rank's alone; `ranks` are those of the run.
    The first group of all ranks is `default`, as in a log, the others `group.1` and so on.
    """
    at: dict[Endpoint, list[Heard]] = defaultdict(list)
    met: dict[frozenset[int], int] = defaultdict(int)
    for connection, streams in found:
        ends = connection.forward.source.address, connection.forward.destination.address
        if all(address in rank_at for address in ends):
            at[connection.forward.destination].append((connection, streams))
            met[frozenset(rank_at[address] for address in ends)] += 1
    groups: list[WireGroup] = []
    by_owner = sorted(at.items(), key=lambda one: (one[0].address, one[1][0][0].opened_ns))
    for listener, heard in by_owner:
        _Port(rank_at[listener.address], heard, rank_at, met).divide(groups)
    groups.sort(key=lambda group: (group.opened_ns, group.ranks))
    world = next((g for g in groups if len(g.ranks) == ranks), None)
    others = [group for group in groups if group is not world]
    for number, group in enumerate(others, start=1):
        group.name = f"group.{number}"
    if world is not None:
        world.name = "default"
    return groups


class _Port:
    """A rank's listening port, and who connected to it."""

    def __init__(
        self,
        owner: int,
        heard: Sequence[Heard],
        rank_at: Mapping[int, int],
        met: Mapping[frozenset[int], int],
    ) -> None:
        self._owner = owner
        self._heard = heard
        self._rank_at = rank_at
        self._met = met
        address = {rank: number for number, rank in rank_at.items()}
        self._above = {rank for rank in address if address[rank] > address[owner]}

    def divide(self, groups: list[WireGroup]) -> None:
        """Give what was heard to the groups of lower addresses that lack this port, and to new
        ones."""
        waiting = sorted(
            (g for g in groups if self._owner in g.ranks and self._owner not in g.listeners),
            key=lambda group: group.opened_ns,
        )
        numbered = {hello: one for one in self._heard if (hello := one[1][0].hello) is not None}
        if len(numbered) < len(self._heard):
            self._of_one_group(waiting, groups)
            return
        base = 0
        while numbered:
            lowest = min(numbered)
            # A rank makes its groups one after another. Nobody connects to it in a group in which
            # it has the highest address.
            silent = next((group for group in waiting if not self._members(group)), None)
            if silent is not None and silent.opened_ns < numbered[lowest][0].opened_ns:
                waiting.remove(silent)
                silent.listeners.add(self._owner)
                base += len(silent.ranks)
                continue
            known = self._next_known(waiting, numbered, base)
            if known is not None:
                waiting.remove(known)
                callers = [numbered.pop(base + known.ranks.index(r)) for r in self._members(known)]
                self._add(known, callers)
                base += len(known.ranks)
                continue
            size = self._size_of_new(numbered, base)
            if size is None:
                # Numbers that no group explains: some of the port's connections were not captured.
                callers = [numbered.pop(lowest)]
                self._add(self._new(callers, groups), callers)
                base = lowest + 1
                continue
            block = [n for n in range(base, base + size) if n in numbered]
            own = next(n for n in range(base, base + size) if n not in numbered) - base
            callers = [numbered.pop(number) for number in block]
            ranks = [self._caller(one) for one in callers]
            ranks.insert(own, self._owner)
            self._add(self._new(callers, groups, tuple(ranks)), callers)
            base += size

    def _caller(self, one: Heard) -> int:
        return self._rank_at[one[0].forward.source.address]

    def _members(self, group: WireGroup) -> list[int]:
        """Those of a group that connect to this rank."""
        return [rank for rank in group.ranks if rank in self._above]

    def _next_known(
        self, waiting: Sequence[WireGroup], numbered: Mapping[int, Heard], base: int
    ) -> WireGroup | None:
        """The first group whose members hold its numbers from `base` on."""
        for group in waiting:
            members = self._members(group)
            if members and all(
                (one := numbered.get(base + group.ranks.index(rank))) is not None
                and self._caller(one) == rank
                for rank in members
            ):
                return group
        return None

    def _size_of_new(self, numbered: Mapping[int, Heard], base: int) -> int | None:
        """The size of a group whose lowest address is this port's, and whose numbers begin at
        `base`: all but one of them are in use, by ranks of which each two are connected too."""
        sizes = []
        missing = 0
        callers: list[int] = []
        for size in range(1, max(numbered) - base + 3):
            one = numbered.get(base + size - 1)
            if one is None:
                missing += 1
            else:
                callers.append(self._caller(one))
            if missing > 1:
                break
            distinct = len(set(callers)) == len(callers)
            if missing == 1 and callers and distinct and self._is_mesh(callers):
                sizes.append(size)
        return max(sizes, default=None)

    def _is_mesh(self, ranks: Sequence[int]) -> bool:
        last = ranks[-1]
        return all(self._met.get(frozenset((rank, last)), 0) for rank in ranks[:-1])

    def _new(
        self, callers: Sequence[Heard], groups: list[WireGroup], ranks: tuple[int, ...] = ()
    ) -> WireGroup:
        members = ranks or tuple(sorted({self._owner, *map(self._caller, callers)}))
        group = WireGroup(members, callers[0][0].opened_ns)
        groups.append(group)
        return group

    def _of_one_group(self, waiting: Sequence[WireGroup], groups: list[WireGroup]) -> None:
        """Take all of a port's connections as one group's, as their numbers were not captured."""
        callers = {self._caller(one) for one in self._heard}
        group = next((g for g in waiting if set(self._members(g)) == callers), None)
        self._add(group or self._new(self._heard, groups), self._heard)

    def _add(self, group: WireGroup, callers: Sequence[Heard]) -> None:
        group.listeners.add(self._owner)
        group.opened_ns = min([group.opened_ns, *(one[0].opened_ns for one in callers)])
        group.connections += [(self._caller(one), self._owner, *one) for one in callers]
