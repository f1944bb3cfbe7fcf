"""In which order ranks begin the collectives of a group.

Gloo, like NCCL, matches the collectives of a group by their order, so all members need the same
one. A trace has none but its dependencies: ranks begin what has become ready. So each rank is
followed by itself, with a communication taking the time that the trace has for it, and none where
it has none. Collectives that are ready at one time begin by id.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence

from analysis.chakra.graph import CollectiveNode, ComputeNode, Graph
from collectives.call import CollectiveCall

Order = dict[int, int]
"""Id of a collective -> its place among those of its group at the rank."""


def collective_orders(graphs: Sequence[Graph]) -> list[Order]:
    """By rank. Where members of a group become ready for unlike collectives, and the ids of all
    have them in one order, the order is that of ids."""
    calls = [{n.id: n.call for n in graph if isinstance(n, CollectiveNode)} for graph in graphs]
    # Nodes that wait in a circle never become ready; they come last.
    ready = [
        _by_group(own, dict.fromkeys([*ready_order(graph), *sorted(own)]))
        for graph, own in zip(graphs, calls, strict=True)
    ]
    by_id = [_by_group(own, sorted(own)) for own in calls]
    found: list[Order] = [{} for _ in graphs]
    for group in {group for orders in ready for group in orders}:
        agree = _agree(calls, ready, group) or not _agree(calls, by_id, group)
        for order, own in zip(found, ready if agree else by_id, strict=True):
            order.update({id: place for place, id in enumerate(own.get(group, ()))})
    return found


def ready_order(graph: Graph) -> list[int]:
    """The ids of a rank's nodes as they begin when the rank waits for no other. A rank computes
    one thing at a time, on the device and on the host; what waits in a circle is left out."""
    nodes = {node.id: node for node in graph}
    waits = {node.id: len(set(node.after)) for node in graph}
    followers: dict[int, list[int]] = defaultdict(list)
    for node in graph:
        for before in set(node.after):
            followers[before].append(node.id)
    order: list[int] = []
    ends: list[tuple[int, int]] = []
    idle = {False: True, True: True}  # by whether it is the host's
    queued: dict[bool, list[int]] = {False: [], True: []}
    now = 0
    fresh = [id for id, count in waits.items() if not count]
    while fresh or ends:
        for id in sorted(fresh):
            node = nodes[id]
            if isinstance(node, ComputeNode):
                heapq.heappush(queued[node.on_host], id)
            else:
                order.append(id)
                heapq.heappush(ends, (now + node.duration_ns, id))
        for on_host, ready in queued.items():
            if idle[on_host] and ready:
                id = heapq.heappop(ready)
                idle[on_host] = False
                order.append(id)
                heapq.heappush(ends, (now + nodes[id].duration_ns, id))
        fresh = []
        if not ends:
            break
        now = ends[0][0]
        while ends and ends[0][0] == now:
            _, id = heapq.heappop(ends)
            node = nodes[id]
            if isinstance(node, ComputeNode):
                idle[node.on_host] = True
            for follower in followers[id]:
                waits[follower] -= 1
                if not waits[follower]:
                    fresh.append(follower)
    return order


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
