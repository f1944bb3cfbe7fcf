"""Graphs as replay programs: the plain JSON lines that ranks read.

`workloads/models/replay.py` reads them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from analysis.chakra.collective_order import Order, collective_orders
from analysis.chakra.errors import ChakraError
from analysis.chakra.graph import (
    CollectiveNode,
    ComputeNode,
    Graph,
    GraphNode,
    ReceiveNode,
    SendNode,
)
from analysis.chakra.sources.replayed import traces_of
from analysis.chakra.summary import problems
from collectives.kinds import Kind, rounded_elements
from topologies.spec.spec import Spec
from topologies.spec.workload_section import ChakraWorkload
from workloads.models.replay import DIRECTORY, NOTES, replayed_element_bytes, whole_elements


def replay_files(graphs: Sequence[Graph], notes: Sequence[str] = ()) -> dict[str, str]:
    """File name -> content, for every rank, for the groups that they form among them, and for
    notes on what is replayed otherwise than the traces say.

    Raises ValueError for a node that cannot be replayed.
    """
    world = tuple(range(len(graphs)))
    groups = {
        tuple(sorted(node.call.ranks))
        for graph in graphs
        for node in graph
        if isinstance(node, CollectiveNode)
    }
    files = {
        "groups.json": json.dumps(sorted(groups - {world})) + "\n",
        NOTES: json.dumps([*notes, *rounding_notes(graphs)], indent=1) + "\n",
    }
    for rank, (graph, order) in enumerate(zip(graphs, collective_orders(graphs), strict=True)):
        lines = (json.dumps(_line(node, order)) + "\n" for node in graph)
        files[f"{rank:03d}.jsonl"] = "".join(lines)
    return files


def rounding_notes(graphs: Sequence[Graph]) -> tuple[str, ...]:
    """The sizes that a replay rounds, as it sends whole elements, as many from each rank."""
    rounded: dict[tuple[str, int], int] = {}
    for graph in graphs:
        for node in graph:
            if isinstance(node, CollectiveNode):
                call = node.call
                element_bytes = replayed_element_bytes(call.element_bytes)
                kind = Kind(call.kind)
                elements = rounded_elements(kind, call.size_bytes, call.world, element_bytes)
                rounded[call.kind, call.size_bytes] = elements * element_bytes
            elif isinstance(node, SendNode | ReceiveNode):
                rounded["message", node.size_bytes] = whole_elements(node.size_bytes)
    changed = [(kind, size, sent) for (kind, size), sent in rounded.items() if size != sent]
    if not changed:
        return ()
    what, size, sent = max(changed, key=lambda each: abs(each[1] - each[2]) / max(each[1], 1))
    return (
        f"{len(changed)} of {len(rounded)} sizes are no whole elements for each rank, and are "
        f"rounded: most {what} of {size:,} bytes, to {sent:,}",
    )


def _line(node: GraphNode, order: Order) -> dict[str, Any]:
    line: dict[str, Any] = {"id": node.id, "name": node.name, "after": list(node.after)}
    match node:
        case ComputeNode():
            return line | {
                "kind": "compute",
                "duration_ns": node.duration_ns,
                "flops": node.flops,
                "memory_bytes": node.memory_bytes,
                "on_host": node.on_host,
                "stream": node.stream or 0,
            }
        case CollectiveNode():
            call = node.call
            # One without elements is replayed with one (`rounding_notes`).
            size_bytes = call.size_bytes if call.kind == Kind.BARRIER else max(call.size_bytes, 1)
            # Gloo numbers a group's ranks in their order in the world (torch sorts them).
            ranks = sorted(call.ranks)
            return line | {
                "kind": "collective",
                "collective": call.kind,
                "size_bytes": size_bytes,
                "element_bytes": call.element_bytes,
                "ranks": ranks,
                "root": ranks.index(call.ranks[call.root]),
                "place": order[node.id],
            }
        case SendNode() | ReceiveNode():
            return line | {
                "kind": "send" if isinstance(node, SendNode) else "receive",
                "peer": node.peer,
                "size_bytes": node.size_bytes,
                "tag": node.tag,
            }
    raise ValueError(f"node {node.id} ({node.name}): a {type(node).__name__} cannot be replayed")


def inputs(spec: Spec) -> dict[str, str]:
    """The programs of a spec's traces, below its run directory, read and checked. Raises
    ChakraError for traces that do not fit, OSError."""
    read = traces_of(spec)
    workload = spec.workload
    assert isinstance(workload, ChakraWorkload)
    if len(read.graphs) != workload.ranks:
        there = f"has traces of {len(read.graphs)} ranks, workload.ranks is"
        raise ChakraError(workload.path, None, f"{there} {workload.ranks}")
    if wrong := problems(read.graphs):
        raise ChakraError(workload.path, None, wrong[0])
    files = replay_files(read.graphs, read.notes)
    return {f"{DIRECTORY}/{file}": content for file, content in files.items()}
