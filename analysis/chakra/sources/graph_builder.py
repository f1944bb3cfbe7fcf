"""Builds the graph of a rank: what its main thread does, in order, and what must come before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from analysis.chakra.graph import CollectiveNode, ComputeNode, Graph, GraphNode
from collectives.call import CollectiveCall
from topologies.spec.compute_section import ComputeSpec


class GraphBuilder:
    """The acts of a rank's main thread, in order. Computation takes the time of `roofline`."""

    def __init__(self, roofline: ComputeSpec) -> None:
        self._roofline = roofline
        self._nodes: list[GraphNode] = []
        self._over: list[int] = []
        self._known = 0

    def compute(self, name: str, flops: int, memory_bytes: int, item_bytes: int) -> None:
        self._compute(
            name, self._roofline.time_ns(flops, memory_bytes, item_bytes), flops, memory_bytes
        )

    def pause(self, name: str, duration_ns: int) -> None:
        """A computation whose time is known, on the spec's device."""
        self._compute(name, duration_ns * self._roofline.slowdown, 0, 0)

    def _compute(self, name: str, duration_ns: int, flops: int, memory_bytes: int) -> None:
        id = self._add(
            ComputeNode(
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
        return self._add(CollectiveNode(id=len(self._nodes), name=name, call=call))

    def wait(self, id: int) -> None:
        self._known |= self._over[id] | 1 << id

    def _add(self, node: GraphNode) -> int:
        self._nodes.append(node)
        self._over.append(self._known)
        return node.id

    def graph(self) -> Graph:
        parents = direct(self._over)
        return tuple(replace(node, after=parents[node.id]) for node in self._nodes)


def direct(over: Sequence[int]) -> list[tuple[int, ...]]:
    """The direct dependencies of each node (transitive reduction).

    `over[i]` is a bit set: bit j is set when j was over before i was started. It must hold, with
    j, everything that was over before j. Returns positions, in ascending order.
    """
    found = []
    for known in over:
        implied = 0
        for position in positions(known):
            implied |= over[position]
        found.append(tuple(positions(known & ~implied)))
    return found


def positions(bits: int) -> list[int]:
    """The positions of the bits that are set, in ascending order."""
    found = []
    while bits:
        lowest = bits & -bits
        found.append(lowest.bit_length() - 1)
        bits ^= lowest
    return found
