"""The facts of a workload that a reader can still tell from its traces."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from analysis.chakra.graph import CollectiveNode, ComputeNode, Graph, ReceiveNode, SendNode
from collectives.kinds import Kind
from topologies.spec.compute_section import DEVICES
from topologies.units import format_size, format_time

_REDUCING = (Kind.ALL_REDUCE, Kind.REDUCE_SCATTER)
_LEAST_REPEATS = 3


def inferred(graphs: Sequence[Graph]) -> tuple[str, ...]:
    """Sentences on what traces tell, each with its figures; of the first rank where ranks are to be
    alike."""
    return tuple(_told(graphs))


def _told(graphs: Sequence[Graph]) -> Iterator[str]:
    ranks = len(graphs)
    yield f"It runs on {ranks} ranks."
    groups: dict[tuple[int, int], set[tuple[int, ...]]] = defaultdict(set)
    for graph in graphs:
        for node in graph:
            if isinstance(node, CollectiveNode) and 1 < len(node.call.ranks) < ranks:
                members = tuple(sorted(node.call.ranks))
                groups[len(members), members[1] - members[0]].add(members)
    for (size, step), found in sorted(groups.items()):
        how = "neighbours" if step == 1 else f"every {step} ranks"
        yield f"{len(found)} groups of {size} ranks ({how}): a degree of parallelism is {size}."
    graph = graphs[0]
    calls = [node.call for node in graph if isinstance(node, CollectiveNode)]
    for size in sorted({len(call.ranks) for call in calls}):
        reduced = sum(c.size_bytes for c in calls if c.kind in _REDUCING and len(c.ranks) == size)
        if reduced:
            yield (
                f"{format_size(reduced)} are reduced among {size} ranks: where these are "
                f"gradients, {reduced // 4:,} parameters at 32 bits, {reduced // 2:,} at 16."
            )
    sizes = Counter((str(call.kind), call.size_bytes) for call in calls)
    repeated = [(what, n) for what, n in sizes.items() if n >= _LEAST_REPEATS]
    for (kind, size_bytes), count in sorted(repeated, key=lambda each: -each[1])[:4]:
        yield (
            f"{kind} of {format_size(size_bytes)} comes {count} times: layers, or microbatches, "
            f"may be {count} or a part of it."
        )
    peers = {node.peer for node in graph if isinstance(node, SendNode | ReceiveNode)}
    if peers:
        yield f"Rank 0 has messages with ranks {sorted(peers)[:8]}: a pipeline, or experts."
    busy_ns = sum(node.duration_ns for node in graph if isinstance(node, ComputeNode))
    stretches = sum(isinstance(node, ComputeNode) for node in graph)
    if busy_ns:
        most = ", ".join(
            f"{busy_ns * device.flops_16bit / 1e21:.3g} on {name}"
            for name, device in DEVICES.items()
        )
        yield (
            f"It computes for {format_time(busy_ns)} in {stretches} stretches: at 16 bits up to so "
            f"many TFLOP, if it is known on what: {most}."
        )
