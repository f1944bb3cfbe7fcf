"""The process group and the ranks of a connection, and the collective of a slot.

Every process group has its own full mesh of connections, and its own count of collectives
in their slots. A connection is given to the group that holds both ends, whose rank numbering
agrees with the hello, and whose log has a collective of the right kind for every slot seen.
Groups are tried in the order in which they were made, as are connections.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from ipaddress import IPv4Address
from typing import Final

from analysis.decode.gloo.stream import MessageStream, StreamMessage
from analysis.decode.gloo.wire_format import Opcode, Prefix, Slot
from analysis.decode.tcp.stream import TcpConnection
from collectives.kinds import Kind
from collectives.schedule.gloo import GLOO
from collectives.schedule.program import ProgramSchedule
from collectives.schedule.schedule import Schedule
from topologies.spec.transports.connections import ONE, Connections, connection_name

UNLOGGED: Final = -1

# The slot prefixes that torch's ProcessGroupGloo uses for each operation: reduce-scatter is
# an all-reduce of a copy (torch/csrc/distributed/c10d/ProcessGroupGloo.cpp).
_PREFIXES: Final[dict[str, set[Prefix]]] = {
    Kind.ALL_REDUCE: {Prefix.ALLREDUCE},
    Kind.REDUCE_SCATTER: {Prefix.ALLREDUCE},
    Kind.ALL_GATHER: {Prefix.ALLGATHER},
    Kind.ALL_TO_ALL: {Prefix.ALLTOALL},
    Kind.BROADCAST: {Prefix.BROADCAST},
    Kind.REDUCE: {Prefix.REDUCE},
    Kind.GATHER: {Prefix.GATHER},
    Kind.SCATTER: {Prefix.SCATTER},
    Kind.BARRIER: {Prefix.BARRIER},
}


Share = tuple[int, int, int, int, int]
"""Source, destination, slot, and the number of the first of these messages that is the
collective's, and how many are."""


@dataclass(frozen=True)
class LoggedConnection:
    """The group and the two ranks that the log names for a connection; `ends` are their (address,
    port)."""

    group: str
    ranks: tuple[int, int]
    ends: tuple[tuple[int, int], tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Edge:
    """Two participants of a program with a connection of their own, the lower number first, in one
    of its trees; `name` is the connection's here."""

    name: str
    ends: tuple[int, int]
    tree: int


@dataclass(frozen=True)
class LoggedCollective:
    """One collective as the ranks logged it.

    `tag` is its number within the group, as in Gloo's slots; None for send/recv, which is
    told apart by size and time. `root` and `peer` are positions in `ranks`: of the sender and
    the receiver of a send_recv, of the receiver of an incast. One that ran as a program has its
    `schedule`, and in `slots` the first of its messages' tags and how many there are.
    `intervals_ns` has each rank's own start and end, on the clock of the log. One that was found in
    captures has its `shares` of what ranks sent each other. Messages of a program go by so many
    connections of two ranks (`between`), where no switch takes part.
    """

    id: str
    kind: str
    group: str
    tag: int | None
    size_bytes: int
    iteration: int
    phase: str
    ranks: tuple[int, ...]
    element_bytes: int = 4
    root: int = 0
    peer: int | None = None
    intervals_ns: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    schedule: Schedule = GLOO
    slots: tuple[int, int] | None = None
    shares: tuple[Share, ...] = ()
    between: Connections = ONE

    @property
    def meshes(self) -> tuple[str, ...]:
        """The names of its group's connections, those of each two ranks in order."""
        return tuple(connection_name(self.group, n) for n in range(self.between.count))

    @property
    def participants(self) -> tuple[int, ...]:
        """The ranks, and after them the switches of its program."""
        return self.schedule.participants(self.ranks)

    @cached_property
    def edges(self) -> tuple[Edge, ...]:
        """The pairs of participants with a connection of their own, in each tree: those with a
        switch. Empty where no switch takes part."""
        if not self.schedule.aggregators:
            return ()
        numbers, ranks = self.participants, len(self.ranks)
        found = []
        for tree, pairs in enumerate(self._pairs):
            name = f"{self.group}.{tree}" if tree else self.group
            ends = sorted((numbers[a], numbers[b]) for a, b in pairs if b >= ranks)
            found += [Edge(f"{name}/{a}-{b}", (a, b), tree) for a, b in ends]
        return tuple(found)

    @cached_property
    def joins_ranks(self) -> bool:
        """Whether two ranks send each other something, by the connections of their group."""
        ranks = len(self.ranks)
        return any(b < ranks for pairs in self._pairs for _, b in pairs)

    @cached_property
    def _pairs(self) -> tuple[frozenset[tuple[int, int]], ...]:
        """The participants of a program that send each other something, by tree, the lower one
        first."""
        found = []
        for tree in range(self.schedule.trees):
            chunks = self.schedule.chunks[tree :: self.schedule.trees]
            programs = {id(chunk.program): chunk.program for chunk in chunks}.values()
            messages = (message for program in programs for message in program.messages())
            ends = ((message.source, message.destination) for message in messages)
            found.append(frozenset((min(pair), max(pair)) for pair in ends))
        return tuple(found)

    def is_message_of(self, slot: int, tree: int) -> bool:
        """Whether a message with this slot, counted from its first, is one of a tree's chunks."""
        if not isinstance(self.schedule, ProgramSchedule) or self.schedule.trees == 1:
            return True
        return slot // self.schedule.slots_per_chunk % self.schedule.trees == tree

    @property
    def start_ns(self) -> int:
        return min((start for start, _ in self.intervals_ns.values()), default=0)


def slot_prefixes(kind: str) -> set[Prefix]:
    """Prefixes that slots of an operation can have; any for an operation that is not known."""
    return _PREFIXES.get(kind, set(Prefix))


@dataclass(frozen=True)
class Membership:
    """A connection's place: its group and the ranks (of the run) of its two ends."""

    group: str
    initiator: int | None
    responder: int | None


class GroupDirectory:
    """The process groups of a run, and where their connections and slots belong."""

    def __init__(
        self,
        collectives: Sequence[LoggedCollective],
        addresses: Mapping[int, str],
        clock_offset_ns: int | None = None,
        connections: Sequence[LoggedConnection] = (),
    ) -> None:
        """Index the log of a run.

        Args:
            collectives: every collective of the run, barriers and alignments included.
            addresses: IPv4 address of each rank, and of switches that take part in programs.
            clock_offset_ns: time stamp of a packet minus the log's time at the same moment;
                None when not known, then send/recv are told apart by order alone.
            connections: those of which the log has the ports; others are placed by what they carry.
        """
        self.collectives = tuple(collectives)
        self._offset_ns = clock_offset_ns
        self._at: dict[int, list[int]] = defaultdict(list)
        for rank, address in addresses.items():
            self._at[int(IPv4Address(address))].append(rank)
        self._logged: dict[tuple[tuple[int, int], ...], tuple[str, tuple[int, int]]] = {}
        for one in connections:
            self._logged[one.ends] = one.group, one.ranks
            self._logged[one.ends[::-1]] = one.group, one.ranks[::-1]
        self._shares: defaultdict[tuple[str, int, int, int], list[tuple[int, int, int]]]
        self._shares = defaultdict(list)
        self._by_tag: dict[tuple[str, int], int] = {}
        self._messages: dict[str, list[int]] = defaultdict(list)
        self._programs: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self._tree: dict[str, int] = {}
        self._ranks: dict[str, tuple[int, ...]] = {}
        edges: dict[str, tuple[int, int]] = {}
        further: dict[str, str] = {}
        for index, collective in sorted(
            enumerate(self.collectives), key=lambda c: (c[1].start_ns, c[0])
        ):
            self._ranks.setdefault(collective.group, ())
            if collective.slots is not None:
                for edge in collective.edges:
                    self._programs[edge.name].append((collective.slots[0], index))
                    self._tree[edge.name] = edge.tree
                    edges[edge.name] = edge.ends
                if not collective.edges or collective.joins_ranks:
                    for mesh in collective.meshes:
                        self._programs[mesh].append((collective.slots[0], index))
                        further.setdefault(mesh, collective.group)
                continue
            for source, destination, slot, first, count in collective.shares:
                key = collective.group, source, destination, slot
                self._shares[key].append((first, count, index))
            if collective.tag is None:
                if collective.shares:
                    if len(collective.ranks) > len(self._ranks[collective.group]):
                        self._ranks[collective.group] = collective.ranks
                else:
                    self._messages[collective.group].append(index)
                continue
            self._by_tag[(collective.group, collective.tag)] = index
            if len(collective.ranks) > len(self._ranks[collective.group]):
                self._ranks[collective.group] = collective.ranks
        for programs in self._programs.values():
            programs.sort()
        for shares in self._shares.values():
            shares.sort()
        for group, ranks in self._ranks.items():
            if not ranks:
                self._ranks[group] = tuple(
                    sorted({r for i in self._uncounted(group) for r in self.collectives[i].ranks})
                )
        self._ranks |= {mesh: self._ranks[group] for mesh, group in further.items()}
        self._ranks |= edges
        # The default group, which has all ranks, is made before any other.
        self._order = sorted(self._ranks, key=lambda group: -len(self._ranks[group]))
        self._taken: set[tuple[str, int, int]] = set()
        self._sent: set[tuple[int, int, int]] = set()

    def place(
        self, connection: TcpConnection, streams: tuple[MessageStream, MessageStream], number: int
    ) -> Membership:
        """The group and ranks of a connection; call in the order of opening.

        `number` counts the connections between the same two addresses: it names the group
        where no log does.
        """
        ends = connection.forward.source, connection.forward.destination
        logged = self._logged.get(tuple((end.address, end.port) for end in ends))
        if logged is not None:
            group, (initiator, responder) = logged
            self._taken.add((group, initiator, responder))
            return Membership(group, initiator, responder)
        hello = streams[0].hello
        slots = {m.slot for s in streams for m in s.messages if m.slot is not None}
        best: tuple[int, Membership] | None = None
        for initiator in self._at.get(connection.forward.source.address, []):
            for responder in self._at.get(connection.forward.destination.address, []):
                for order, group in enumerate(self._order):
                    ranks = self._ranks[group]
                    if initiator == responder or not {initiator, responder} <= set(ranks):
                        continue
                    if (group, initiator, responder) in self._taken:
                        continue
                    if hello is not None and ranks.index(initiator) != hello:
                        continue
                    if all(self._fits(group, slot) for slot in slots) and (
                        best is None or order < best[0]
                    ):
                        best = order, Membership(group, initiator, responder)
        if best is None:
            return Membership(f"connection {number}", None, None)
        found = best[1]
        assert found.initiator is not None and found.responder is not None
        if slots:
            self._taken.add((found.group, found.initiator, found.responder))
        return found

    def _uncounted(self, group: str) -> list[int]:
        """Those whose slots do not count collectives."""
        return [*self._messages[group], *(index for _, index in self._programs[group])]

    def _program_of(self, group: str, tag: int) -> int | None:
        """The collective that ran as a program with a message of this tag."""
        programs = self._programs[group]
        place = bisect_right(programs, (tag, len(self.collectives))) - 1
        if place < 0:
            return None
        first, index = programs[place]
        collective = self.collectives[index]
        assert collective.slots is not None
        known = tag < first + collective.slots[1]
        tree = self._tree.get(group, 0)
        return index if known and collective.is_message_of(tag - first, tree) else None

    def owner_of(self, group: str, tag: int) -> int:
        """The collective of `collectives` that a program's message of this tag belongs to, or
        `UNLOGGED`."""
        found = self._program_of(group, tag)
        return UNLOGGED if found is None else found

    def _fits(self, group: str, number: int) -> bool:
        slot = Slot.decode(number)
        if slot.prefix == Prefix.USER:
            return bool(self._messages[group]) or self._program_of(group, number) is not None
        index = self._by_tag.get((group, slot.tag))
        return index is not None and slot.prefix in slot_prefixes(self.collectives[index].kind)

    def collectives_of(
        self, member: Membership, streams: tuple[MessageStream, MessageStream]
    ) -> dict[int, int]:
        """Collective of every message (by id(message)), as an index into `collectives`."""
        found: dict[int, int] = {}
        sent: dict[tuple[int, int, int], int] = {}
        for side, stream in enumerate(streams):
            for message in stream.messages:
                if message.slot is None:
                    continue
                slot = Slot.decode(message.slot)
                share = self._share_of(member, side, message)
                if share is not None:
                    found[id(message)] = share
                    continue
                if slot.prefix != Prefix.USER:
                    index = self._by_tag.get((member.group, slot.tag), UNLOGGED)
                    found[id(message)] = index
                    continue
                program = self._program_of(member.group, message.slot)
                if program is not None:
                    found[id(message)] = program
                elif message.opcode is Opcode.NOTIFY_SEND_READY:
                    sender = member.responder if side else member.initiator
                    receiver = member.initiator if side else member.responder
                    if sender is not None and receiver is not None:
                        index = self._point_to_point(stream, message, member, sender, receiver)
                        sent[(side, message.slot, message.step)] = index
        for side, stream in enumerate(streams):
            for message in _user(stream.messages):
                assert message.slot is not None
                if id(message) in found:
                    continue
                back = message.opcode is Opcode.NOTIFY_RECV_READY
                data_side = 1 - side if back else side
                key = (data_side, message.slot, message.step)
                found[id(message)] = sent.get(key, UNLOGGED)
        return found

    def _share_of(self, member: Membership, side: int, message: StreamMessage) -> int | None:
        """The collective that was found in captures to have a message; None where there is none."""
        ends = member.initiator, member.responder
        back = message.opcode is Opcode.NOTIFY_RECV_READY
        source, destination = ends if (side == 0) is not back else ends[::-1]
        if source is None or destination is None or message.slot is None:
            return None
        shares = self._shares.get((member.group, source, destination, message.slot), [])
        place = bisect_right(shares, message.step, key=lambda share: share[0]) - 1
        if place < 0:
            return None
        first, count, index = shares[place]
        return index if message.step < first + count else None

    def _point_to_point(
        self,
        stream: MessageStream,
        message: StreamMessage,
        member: Membership,
        sender: int,
        receiver: int,
    ) -> int:
        """The logged send that was under way on the sender when it announced this message."""
        candidates = [
            index
            for index in self._messages[member.group]
            if _may_send(self.collectives[index], sender, receiver)
            and sender in self.collectives[index].intervals_ns
            and message.length in (None, self.collectives[index].size_bytes)
        ]
        if self._offset_ns is not None:
            time_ns = stream.direction.time_ns(message.position) - self._offset_ns
            candidates = [
                index
                for index in candidates
                if self.collectives[index].intervals_ns[sender][0]
                <= time_ns
                <= _over_ns(self.collectives[index], sender, receiver)
            ]
        # One operation sends at most one message from a rank to another, in order of posting.
        unused = [i for i in candidates if (i, sender, receiver) not in self._sent]
        if not unused:
            return UNLOGGED
        self._sent.add((unused[0], sender, receiver))
        return unused[0]


def _over_ns(collective: LoggedCollective, sender: int, receiver: int) -> int:
    """When the later of the two was done. A send is over once the socket has its data, which may be
    before the announcement has left the port; the receiver cannot be."""
    known = collective.intervals_ns
    return max(known[rank][1] for rank in (sender, receiver) if rank in known)


def _may_send(collective: LoggedCollective, sender: int, receiver: int) -> bool:
    """Whether a point-to-point operation has a message from one rank to the other."""
    ranks = collective.ranks
    if not {sender, receiver} <= set(ranks):
        return False
    if collective.kind == Kind.SEND_RECV:
        to = receiver if collective.peer is None else ranks[collective.peer]
        return sender == ranks[collective.root] and receiver == to
    return collective.kind != Kind.INCAST or receiver == ranks[collective.root]


def _user(messages: Iterable[StreamMessage]) -> Iterable[StreamMessage]:
    return (m for m in messages if m.slot is not None and m.slot >> 56 == Prefix.USER)
