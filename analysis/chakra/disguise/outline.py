"""A rank's graph without what tells its origin: the order of its nodes, their sizes and times."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from analysis.chakra.collective_order import collective_orders
from analysis.chakra.graph import (
    CollectiveNode,
    ComputeNode,
    Graph,
    GraphNode,
    ReceiveNode,
    SendNode,
)
from analysis.chakra.sources.graph_builder import direct

_MOST_NODES = 20_000
"""The most nodes of a rank; ancestors are kept as bits, a square of this many."""


def outlines(graphs: Sequence[Graph]) -> tuple[Graph, ...]:
    """The graphs with neutral names and new ids, starts, operations and bytes of memory gone, no
    dependency that others imply, and computation that is one after another as one.

    Nodes are in an order that comes of dependencies alone, so that like ranks have like lists.
    Computation is joined where all of a rank's is in one line, and nothing can come in between: a
    replay takes the same time. Raises ValueError for a rank of too many nodes.
    """
    orders = collective_orders(graphs)
    tags: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
    found = []
    for rank, graph in enumerate(graphs):
        if len(graph) > _MOST_NODES:
            raise ValueError(
                f"rank {rank} has {len(graph):,} nodes; up to {_MOST_NODES:,} are disguised"
            )
        sequence = _sequence(graph, orders[rank])
        found.append(_joined(_renumbered(sequence, rank, tags)))
    return tuple(found)


def _sequence(graph: Graph, order: dict[int, int]) -> list[GraphNode]:
    """The nodes, each behind what it waits for, by how much is computed before each."""
    by_id = {node.id: node for node in graph}
    computed: dict[int, int] = {}
    depth: dict[int, int] = {}
    ancestors = _ancestors(graph)
    places = {node.id: place for place, node in enumerate(graph)}
    computing = sum(1 << places[node.id] for node in graph if _on_device(node))
    for node in graph:
        known = ancestors[node.id]
        computed[node.id] = (known & computing).bit_count()
        depth[node.id] = known.bit_count()

    def key(id: int) -> tuple[int, bool, int, int, int]:
        node = by_id[id]
        return computed[id], _on_device(node), depth[id], order.get(id, 0), id

    # An ancestor has computed no more, and fewer before it, so that it comes first.
    return [by_id[id] for id in sorted(by_id, key=key)]


def _on_device(node: GraphNode) -> bool:
    return isinstance(node, ComputeNode) and not node.on_host


def _ancestors(graph: Graph) -> dict[int, int]:
    """All that is over before each node, as bits of places in the graph. Raises ValueError for
    nodes that wait in a circle."""
    places = {node.id: place for place, node in enumerate(graph)}
    waits = {node.id: len(set(node.after)) for node in graph}
    followers: dict[int, list[int]] = defaultdict(list)
    for node in graph:
        for parent in set(node.after):
            followers[parent].append(node.id)
    found = {node.id: 0 for node in graph}
    ready = [id for id, count in waits.items() if not count]
    done = 0
    while ready:
        id = ready.pop()
        done += 1
        own = found[id] | 1 << places[id]
        for follower in followers[id]:
            found[follower] |= own
            waits[follower] -= 1
            if not waits[follower]:
                ready.append(follower)
    if done < len(graph):
        raise ValueError("nodes wait for each other in a circle")
    return found


def _renumbered(
    sequence: Sequence[GraphNode], rank: int, tags: dict[tuple[int, int], dict[int, int]]
) -> list[GraphNode]:
    """Nodes by their places, without names, and with the dependencies that no others imply."""
    places = {node.id: place for place, node in enumerate(sequence)}
    over: list[int] = []
    for node in sequence:
        known = 0
        for parent in node.after:
            place = places[parent]
            known |= over[place] | 1 << place
        over.append(known)
    found = []
    for place, (node, after) in enumerate(zip(sequence, direct(over), strict=True)):
        neutral = replace(node, id=place, after=after, start_ns=0, name=_name(node))
        if isinstance(neutral, ComputeNode):
            neutral = replace(neutral, flops=0, memory_bytes=0)
        elif isinstance(neutral, SendNode | ReceiveNode):
            ends = (rank, neutral.peer) if isinstance(neutral, SendNode) else (neutral.peer, rank)
            numbers = tags[ends]
            neutral = replace(neutral, tag=numbers.setdefault(neutral.tag, len(numbers)))
        found.append(neutral)
    return found


def _name(node: GraphNode) -> str:
    match node:
        case CollectiveNode():
            return str(node.call.kind)
        case SendNode():
            return "send"
        case ReceiveNode():
            return "receive"
    return "compute"


def _joined(nodes: Sequence[GraphNode]) -> Graph:
    """Computation that nothing comes between as one, where all of it is in one line."""
    line = [node for node in nodes if _on_device(node)]
    over: list[int] = []
    for node in nodes:
        over.append(sum(1 << parent for parent in node.after))
        for parent in node.after:
            over[-1] |= over[parent]
    if any(not over[b.id] >> a.id & 1 for a, b in pairwise(line)):
        return tuple(nodes)
    followers: dict[int, int] = defaultdict(int)
    for node in nodes:
        for parent in node.after:
            followers[parent] += 1
    into: dict[int, int] = {}
    kept: dict[int, GraphNode] = {}
    for node in nodes:
        after = tuple(dict.fromkeys(into.get(parent, parent) for parent in node.after))
        before = kept.get(after[0]) if len(after) == 1 else None
        alone = before is not None and followers[node.after[0]] == 1
        if alone and before is not None and _on_device(node) and _on_device(before):
            kept[before.id] = replace(before, duration_ns=before.duration_ns + node.duration_ns)
            into[node.id] = before.id
        else:
            kept[node.id] = replace(node, after=after)
    places = {id: place for place, id in enumerate(kept)}
    return tuple(
        replace(node, id=places[node.id], after=tuple(places[parent] for parent in node.after))
        for node in kept.values()
    )
