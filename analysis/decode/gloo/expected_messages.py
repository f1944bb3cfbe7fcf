"""Messages that a run's log puts on a connection: Gloo's schedule of every logged collective."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from analysis.decode.gloo.connection_groups import LoggedCollective, Membership, slot_prefixes
from analysis.decode.gloo.exchanges import Expected
from analysis.decode.gloo.gap_tiling import Key
from analysis.decode.gloo.wire_format import Slot
from collectives.call import CollectiveCall, CollectiveError
from collectives.schedule.gloo import GLOO
from collectives.schedule.schedule import Schedule
from topologies.spec.transports.connections import Connections

Pair = tuple[int, int]
Sized = tuple[int, int]
"""The slot of a message, and its size in bytes."""


class ExpectedMessages:
    """The data messages of collectives, by pair of ranks."""

    def __init__(
        self, collectives: Sequence[LoggedCollective], clock_offset_ns: int | None = None
    ) -> None:
        self._by_group: dict[str, list[tuple[int, LoggedCollective, dict[Pair, list[int]]]]] = {}
        self._offset_ns = clock_offset_ns
        self._programs: dict[str, list[tuple[LoggedCollective, dict[Pair, list[Sized]]]]] = {}
        for collective in collectives:
            if collective.slots is not None:
                first, trees = collective.slots[0], collective.schedule.trees
                sized = [
                    _numbered(collective, collective.schedule.part(tree, trees), first)
                    for tree in range(trees)
                ]
                for edge in collective.edges:
                    one = collective, sized[edge.tree]
                    self._programs.setdefault(edge.name, []).append(one)
                if not collective.edges or collective.joins_ranks:
                    for number, mesh in enumerate(collective.meshes):
                        of_mesh = collective, _of_mesh(collective.between, number, sized[0])
                        self._programs.setdefault(mesh, []).append(of_mesh)
                continue
            prefixes = slot_prefixes(collective.kind)
            if collective.tag is None or len(prefixes) != 1:
                continue  # send and recv carry the caller's tag, which the log does not tell
            try:
                sizes = messages_of_call(_call(collective))
            except CollectiveError:
                continue  # the log has something that the schedule does not know: no help here
            slot = Slot(next(iter(prefixes)), collective.tag, 0).encode()
            self._by_group.setdefault(collective.group, []).append((slot, collective, sizes))

    def on(self, member: Membership) -> Mapping[Key, Expected]:
        """The messages that both ends of a connection send under each slot, (0, slot) from the
        initiator."""
        found: dict[Key, Expected] = {}
        ends = member.initiator, member.responder
        if ends[0] is None or ends[1] is None:
            return found
        for slot, collective, sizes in self._by_group.get(member.group, []):
            for side, pair in enumerate(((ends[0], ends[1]), (ends[1], ends[0]))):
                if pair in sizes:
                    found[(side, slot)] = Expected(
                        tuple(sizes[pair]), *self._times_ns(collective, pair)
                    )
        for collective, sized in self._programs.get(member.group, []):
            for side, pair in enumerate(((ends[0], ends[1]), (ends[1], ends[0]))):
                for slot, size_bytes in sized.get(pair, ()):
                    found[(side, slot)] = Expected((size_bytes,), *self._times_ns(collective, pair))
        return found

    def _times_ns(self, collective: LoggedCollective, pair: Pair) -> tuple[int, int, int]:
        """When the slot can be in use between two ranks, and when the second of them had received
        everything, in the captures' time; 0 if unknown."""
        known = [collective.intervals_ns[rank] for rank in pair if rank in collective.intervals_ns]
        if collective.edges:
            # A switch keeps no log: it is busy with a collective while some rank is.
            known = list(collective.intervals_ns.values())
        if self._offset_ns is None or not known:
            return 0, 0, 0
        received = collective.intervals_ns.get(pair[1])
        return (
            min(start for start, _ in known) + self._offset_ns,
            max(end for _, end in known) + self._offset_ns,
            received[1] + self._offset_ns if received else 0,
        )


def _numbered(
    collective: LoggedCollective, schedule: Schedule, first_slot: int
) -> dict[Pair, list[Sized]]:
    """The messages of a collective that ran as a program, by (source, destination)."""
    found: dict[Pair, list[Sized]] = {}
    numbers = collective.participants
    for message in schedule.numbered_messages():
        pair = numbers[message.source], numbers[message.destination]
        found.setdefault(pair, []).append((first_slot + message.slot, message.size_bytes))
    return found


def _of_mesh(
    between: Connections, number: int, sized: dict[Pair, list[Sized]]
) -> dict[Pair, list[Sized]]:
    """The parts of messages that go by one of the connections of two ranks."""
    if between.count == 1:
        return sized
    return {
        pair: [
            (slot, part)
            for slot, size_bytes in messages
            for by, part in between.parts(size_bytes, slot)
            if by == number
        ]
        for pair, messages in sized.items()
    }


def _call(collective: LoggedCollective) -> CollectiveCall:
    return CollectiveCall(
        collective.kind,
        collective.size_bytes,
        collective.ranks,
        collective.element_bytes,
        collective.root,
        schedule=collective.schedule if collective.schedule.uneven else GLOO,
    )


def messages_of_call(call: CollectiveCall) -> dict[Pair, list[int]]:
    """Bytes of every message of Gloo's schedule by (source, destination), ranks of the run, in
    order. Raises CollectiveError where there is no schedule."""
    posts = list(call.posts())
    if not posts:
        return {}
    ranks = np.array(call.ranks, dtype=np.int64)
    source = ranks[np.concatenate([post.source for post in posts])]
    destination = ranks[np.concatenate([post.destination for post in posts])]
    size = np.concatenate([post.size_bytes for post in posts])
    found: dict[Pair, list[int]] = {}
    for a, b, n in zip(source.tolist(), destination.tolist(), size.tolist(), strict=True):
        found.setdefault((a, b), []).append(n)
    return found
