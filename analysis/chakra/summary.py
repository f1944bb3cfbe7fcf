"""The contents of a set of traces, and its mistakes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from analysis.chakra.collective_order import collective_orders
from analysis.chakra.deadlock import deadlock_of
from analysis.chakra.graph import (
    CollectiveNode,
    ComputeNode,
    Graph,
    GraphNode,
    Groups,
    ReceiveNode,
    SendNode,
)
from analysis.chakra.limits import LONGEST_NS
from topologies.spec.workload_types import MAX_SIZE_BYTES

_MOST_TAG = 2**31 - 1

_KIND_OF = {
    ComputeNode: "compute",
    CollectiveNode: "collective",
    SendNode: "send",
    ReceiveNode: "receive",
}


@dataclass(frozen=True, slots=True)
class Summary:
    """Counts over all ranks. `nodes` is by kind of node; `collectives` counts each once, by (kind,
    size, ranks); `groups` are those besides the world, by number."""

    ranks: int
    nodes: dict[str, int]
    compute_ns: int
    collectives: dict[tuple[str, int, int], int]
    groups: dict[int, tuple[int, ...]]
    problems: tuple[str, ...]


def summarize(graphs: Sequence[Graph]) -> Summary:
    """Count, and check across ranks. `compute_ns` is the busiest rank's."""
    nodes: Counter[str] = Counter()
    # Every member has its part of a collective; not all members' graphs need be there.
    counts: Counter[tuple[str, int, tuple[int, ...]]] = Counter()
    for graph in graphs:
        own: Counter[tuple[str, int, tuple[int, ...]]] = Counter()
        for node in graph:
            nodes[_KIND_OF[type(node)]] += 1
            if isinstance(node, CollectiveNode):
                own[node.call.kind, node.call.size_bytes, node.call.ranks] += 1
        counts |= own
    collectives: Counter[tuple[str, int, int]] = Counter()
    for (kind, size_bytes, ranks), count in counts.items():
        collectives[kind, size_bytes, len(ranks)] += count
    busy = [sum(n.duration_ns for n in graph if isinstance(n, ComputeNode)) for graph in graphs]
    return Summary(
        len(graphs),
        dict(sorted(nodes.items())),
        max(busy, default=0),
        dict(sorted(collectives.items())),
        _groups(graphs),
        tuple(problems(graphs)),
    )


def _groups(graphs: Sequence[Graph]) -> dict[int, tuple[int, ...]]:
    """A single rank's trace may name ranks whose traces are not there: the world holds them all."""
    calls = [n.call for graph in graphs for n in graph if isinstance(n, CollectiveNode)]
    world = max([len(graphs), *(max(call.ranks) + 1 for call in calls)])
    groups = Groups(world)
    for call in calls:
        groups.number(call.ranks)
    return groups.subgroups()


def problems(graphs: Sequence[Graph]) -> list[str]:
    """Obstacles to running these graphs together: collectives of a group that differ
    between its ranks (as they begin), members and peers that are not there, messages without
    their other end, and ranks that wait for each other."""
    found: list[str] = []
    world = len(graphs)
    sequences: dict[tuple[int, ...], dict[int, list[tuple[str, int, int]]]] = defaultdict(dict)
    sent: Counter[tuple[int, int, int, int]] = Counter()
    orders = collective_orders(graphs)
    for rank, graph in enumerate(graphs):
        order = orders[rank]
        for node in sorted(graph, key=lambda node: (order.get(node.id, 0), node.id)):
            found += [f"rank {rank}: node {node.id} ({node.name}): {f}" for f in faults(node, rank)]
            if isinstance(node, CollectiveNode):
                call = node.call
                if rank not in call.ranks or max(call.ranks) >= world:
                    found.append(
                        f"rank {rank}: node {node.id} ({node.name}) is a collective of ranks "
                        f"{list(call.ranks)}, of {world}"
                    )
                    continue
                sequences[call.ranks].setdefault(rank, []).append(
                    (call.kind, call.size_bytes, call.root)
                )
            elif isinstance(node, SendNode | ReceiveNode):
                if node.peer >= world:
                    found.append(f"rank {rank}: node {node.id} has peer {node.peer}, of {world}")
                    continue
                sends = isinstance(node, SendNode)
                ends = (rank, node.peer) if sends else (node.peer, rank)
                sent[*ends, node.tag, node.size_bytes] += 1 if sends else -1
    for ranks, by_rank in sequences.items():
        first = by_rank.get(ranks[0], [])
        for rank in ranks[1:]:
            mine = by_rank.get(rank, [])
            if mine != first:
                at = next(
                    (i for i, (a, b) in enumerate(zip(first, mine, strict=False)) if a != b),
                    min(len(first), len(mine)),
                )
                found.append(
                    f"ranks {ranks[0]} and {rank} disagree on collective {at} of the group "
                    f"{list(ranks)}: {_shown(first, at)} and {_shown(mine, at)}"
                )
    for (source, destination, tag, size_bytes), balance in sent.items():
        if balance:
            found.append(
                f"{abs(balance)} message(s) of {size_bytes} bytes with tag {tag} from rank "
                f"{source} to rank {destination} are {'sent' if balance > 0 else 'received'} only"
            )
    stuck = None if found else deadlock_of(graphs, orders)
    return found if stuck is None else [stuck]


def faults(node: GraphNode, rank: int) -> Iterator[str]:
    """The part of a node that no rank can do, by the field at fault."""
    if isinstance(node, ComputeNode) and node.duration_ns > LONGEST_NS:
        yield f"duration is {node.duration_ns:,} ns, allowed {LONGEST_NS:,}"
    if isinstance(node, CollectiveNode):
        yield from _too_large(node.call.size_bytes)
    if isinstance(node, SendNode | ReceiveNode):
        side = "comm_dst" if isinstance(node, SendNode) else "comm_src"
        if node.peer == rank:
            yield f"{side} is {node.peer}, its own rank"
        if not node.size_bytes:
            yield "comm_size is 0, expected at least 1"
        yield from _too_large(node.size_bytes)
        if not 0 <= node.tag <= _MOST_TAG:
            yield f"comm_tag is {node.tag}, allowed 0 to {_MOST_TAG} (torch's tags have 32 bits)"


def _too_large(size_bytes: int) -> Iterator[str]:
    if size_bytes > MAX_SIZE_BYTES:
        yield f"comm_size is {size_bytes:,} bytes, allowed {MAX_SIZE_BYTES:,}"


def _shown(sequence: Sequence[tuple[str, int, int]], at: int) -> str:
    if at >= len(sequence):
        return "none"
    kind, size_bytes, root = sequence[at]
    return f"{kind} of {size_bytes} bytes, root {root}"
