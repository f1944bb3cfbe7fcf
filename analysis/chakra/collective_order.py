"""In which order ranks begin the collectives of a group.

Gloo, like NCCL, matches the collectives of a group by their order, so all members need the same
one. A trace has none but its dependencies: ranks begin what has become ready. So ranks are followed
with a communication taking the time that the trace has for it, and none where it has none. A
message is over when both its ends have begun, a collective by itself. Collectives that are ready at
one time begin by id.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict, deque
from collections.abc import Hashable, Iterable, Mapping, Sequence

from analysis.chakra.graph import CollectiveNode, ComputeNode, Graph, ReceiveNode, SendNode
from collectives.call import CollectiveCall

_Place = tuple[int, int]
"""A rank and the id of a node."""

Order = dict[int, int]
"""Id of a collective -> its place among those of its group at the rank."""


def collective_orders(graphs: Sequence[Graph]) -> list[Order]:
    """By rank. Where members of a group become ready for unlike collectives, and the ids of all
    have them in one order, the order is that of ids."""
    calls = [{n.id: n.call for n in graph if isinstance(n, CollectiveNode)} for graph in graphs]
    # Nodes that wait in a circle never become ready; they come last.
    ready = [
        _by_group(own, dict.fromkeys([*order, *sorted(own)]))
        for order, own in zip(ready_orders(graphs), calls, strict=True)
    ]
    by_id = [_by_group(own, sorted(own)) for own in calls]
    found: list[Order] = [{} for _ in graphs]
    for group in {group for orders in ready for group in orders}:
        agree = _agree(calls, ready, group) or not _agree(calls, by_id, group)
        for order, own in zip(found, ready if agree else by_id, strict=True):
            order.update({id: place for place, id in enumerate(own.get(group, ()))})
    return found


def ready_orders(graphs: Sequence[Graph]) -> list[list[int]]:
    """By rank, the ids of nodes as they begin when ranks wait for each other's messages alone. A
    message whose other end is in none of the graphs ends by itself. A rank computes one thing at a
    time, on the device and on the host; what waits in a circle is left out."""
    return _Following(graphs).orders()


class _Following:
    """Graphs that are followed together, by the times that they have."""

    def __init__(self, graphs: Sequence[Graph]) -> None:
        self._nodes = {(rank, node.id): node for rank, g in enumerate(graphs) for node in g}
        self._waits = {place: len(set(node.after)) for place, node in self._nodes.items()}
        self._followers: dict[_Place, list[_Place]] = defaultdict(list)
        for (rank, id), node in self._nodes.items():
            for before in set(node.after):
                self._followers[rank, before].append((rank, id))
        self._orders: list[list[int]] = [[] for _ in graphs]
        self._ends: list[tuple[int, _Place]] = []
        # By rank, and the line in which they follow each other.
        self._queued: dict[tuple[int, int], list[int]] = defaultdict(list)
        self._computing: set[tuple[int, int]] = set()
        # Ends of messages that wait for the other one, by what both have in common.
        self._waiting: dict[Hashable, deque[_Place]] = defaultdict(deque)
        self._expected = Counter(
            _meeting(rank, node)
            for (rank, _), node in self._nodes.items()
            if isinstance(node, SendNode | ReceiveNode)
        )

    def orders(self) -> list[list[int]]:
        fresh = sorted(place for place, count in self._waits.items() if not count)
        now = 0
        while fresh:
            for place in fresh:
                self._begin(place, now)
            self._compute(now)
            fresh = []
            while self._ends and not fresh:
                now = self._ends[0][0]
                while self._ends and self._ends[0][0] == now:
                    fresh += self._end(heapq.heappop(self._ends)[1])
                fresh.sort()
                if not fresh:
                    self._compute(now)
        return self._orders

    def _begin(self, place: _Place, now: int) -> None:
        rank, id = place
        node = self._nodes[place]
        if isinstance(node, ComputeNode):
            heapq.heappush(self._queued[rank, node.line], id)
            return
        self._orders[rank].append(id)
        if isinstance(node, SendNode | ReceiveNode):
            sends = isinstance(node, SendNode)
            message, other = (_meeting(rank, node)[0], not sends)
            if self._expected[message, other]:
                if not self._waiting[message, other]:
                    self._waiting[message, sends].append(place)
                    return
                peer = self._waiting[message, other].popleft()
                heapq.heappush(self._ends, (now + self._nodes[peer].duration_ns, peer))
        heapq.heappush(self._ends, (now + node.duration_ns, place))

    def _compute(self, now: int) -> None:
        for (rank, line), ready in self._queued.items():
            if ready and (rank, line) not in self._computing:
                id = heapq.heappop(ready)
                self._computing.add((rank, line))
                self._orders[rank].append(id)
                heapq.heappush(self._ends, (now + self._nodes[rank, id].duration_ns, (rank, id)))

    def _end(self, place: _Place) -> list[_Place]:
        """The nodes that wait for nothing any more."""
        node = self._nodes[place]
        if isinstance(node, ComputeNode):
            self._computing.discard((place[0], node.line))
        for follower in self._followers[place]:
            self._waits[follower] -= 1
        return [each for each in self._followers[place] if not self._waits[each]]


def _meeting(rank: int, node: SendNode | ReceiveNode) -> tuple[Hashable, bool]:
    """The key of a message, which both its ends have, and whether this one sends."""
    sends = isinstance(node, SendNode)
    ends = (rank, node.peer) if sends else (node.peer, rank)
    return (*ends, node.tag, node.size_bytes), sends


def _by_group(
    calls: Mapping[int, CollectiveCall], order: Iterable[int]
) -> dict[tuple[int, ...], list[int]]:
    found: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for id in order:
        if id in calls:
            found[tuple(sorted(calls[id].ranks))].append(id)
    return found


def _agree(
    calls: Sequence[Mapping[int, CollectiveCall]],
    orders: Sequence[dict[tuple[int, ...], list[int]]],
    group: tuple[int, ...],
) -> bool:
    sequences: set[tuple[Hashable, ...]] = set()
    for rank in group:
        if rank < len(calls):
            own = (calls[rank][id] for id in orders[rank].get(group, ()))
            sequences.add(tuple((call.kind, call.size_bytes, call.root) for call in own))
    return len(sequences) <= 1
