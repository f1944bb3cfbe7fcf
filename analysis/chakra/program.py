"""A rank's program as its main thread runs it, turned into a graph."""

from __future__ import annotations

from dataclasses import replace

from analysis.chakra.graph import Collective, Compute, Graph, GraphNode
from analysis.chakra.precedence import direct
from analysis.predictors.interface import CollectiveCall
from topologies.compute_spec import ComputeSpec


class Program:
    """What the main thread of a rank does, in order. Computation takes what `roofline` says."""

    def __init__(self, roofline: ComputeSpec) -> None:
        self._roofline = roofline
        self._nodes: list[GraphNode] = []
        self._over: list[int] = []
        self._known = 0

    def compute(self, name: str, flops: int, memory_bytes: int, item_bytes: int) -> None:
        duration_ns = self._roofline.time_ns(flops, memory_bytes, item_bytes)
        id = self._add(
            Compute(
                id=len(self._nodes),
                name=name,
                duration_ns=duration_ns,
                flops=flops,
                memory_bytes=memory_bytes,
            )
        )
        self._known |= 1 << id

    def post(self, name: str, call: CollectiveCall) -> int:
        """Start a collective; returns what to wait for."""
        return self._add(Collective(id=len(self._nodes), name=name, call=call))

    def wait(self, id: int) -> None:
        self._known |= self._over[id] | 1 << id

    def _add(self, node: GraphNode) -> int:
        self._nodes.append(node)
        self._over.append(self._known)
        return node.id

    def graph(self) -> Graph:
        parents = direct(self._over)
        return tuple(replace(node, after=parents[node.id]) for node in self._nodes)
