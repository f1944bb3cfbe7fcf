"""Graphs as replay programs: the plain JSON lines that ranks read.

`workloads/models/replay.py` reads them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from analysis.chakra.graph import (
    CollectiveNode,
    ComputeNode,
    Graph,
    GraphNode,
    ReceiveNode,
    SendNode,
)


def replay_files(graphs: Sequence[Graph]) -> dict[str, str]:
    """File name -> content, for every rank and for the groups that they form among them.

    Raises ValueError for a node that cannot be replayed.
    """
    world = tuple(range(len(graphs)))
    groups = {
        tuple(sorted(node.call.ranks))
        for graph in graphs
        for node in graph
        if isinstance(node, CollectiveNode)
    }
    files = {"groups.json": json.dumps(sorted(groups - {world})) + "\n"}
    for rank, graph in enumerate(graphs):
        files[f"{rank:03d}.jsonl"] = "".join(json.dumps(_line(node)) + "\n" for node in graph)
    return files


def _line(node: GraphNode) -> dict[str, Any]:
    line: dict[str, Any] = {"id": node.id, "name": node.name, "after": list(node.after)}
    match node:
        case ComputeNode():
            return line | {
                "kind": "compute",
                "duration_ns": node.duration_ns,
                "flops": node.flops,
                "memory_bytes": node.memory_bytes,
            }
        case CollectiveNode():
            call = node.call
            # Gloo numbers a group's ranks in their order in the world (torch sorts them).
            ranks = sorted(call.ranks)
            return line | {
                "kind": "collective",
                "collective": call.kind,
                "size_bytes": call.size_bytes,
                "element_bytes": call.element_bytes,
                "ranks": ranks,
                "root": ranks.index(call.ranks[call.root]),
            }
        case SendNode() | ReceiveNode():
            return line | {
                "kind": "send" if isinstance(node, SendNode) else "receive",
                "peer": node.peer,
                "size_bytes": node.size_bytes,
                "tag": node.tag,
            }
    raise ValueError(f"node {node.id} ({node.name}): a {type(node).__name__} cannot be replayed")
