"""Workloads for the exporters' tests."""

from __future__ import annotations

from hypothesis import strategies as st

from analysis.chakra.graph import CollectiveNode, ComputeNode, Graph, GraphNode
from collectives.call import CollectiveCall

WITH_CHAKRA_TYPE = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "barrier",
)
WITHOUT = ("incast", "permutation", "send_recv")


@st.composite
def workloads(
    draw: st.DrawFn, kinds: tuple[str, ...] = (*WITH_CHAKRA_TYPE, *WITHOUT)
) -> list[Graph]:
    """Chains of computation and collectives, over the world and over its two halves."""
    ranks = draw(st.sampled_from([2, 4, 6]))
    world, half = tuple(range(ranks)), ranks // 2
    graphs: list[list[GraphNode]] = [[] for _ in world]
    for index in range(draw(st.integers(1, 5))):
        kind = draw(st.sampled_from(kinds))
        whole = half < 2 or draw(st.booleans())
        size = 0 if kind == "barrier" else 4 * ranks * draw(st.integers(1, 5000))
        root = draw(st.integers(0, half - 1))
        for rank in world:
            members = world if whole else (world[:half] if rank < half else world[half:])
            before = (2 * index - 1,) if index else ()
            duration = draw(st.integers(0, 10**6))
            compute = ComputeNode(
                id=2 * index, name=f"c{index}", after=before, duration_ns=duration
            )
            call = CollectiveCall(kind, size, members, root=root)
            collective = CollectiveNode(
                id=2 * index + 1, name=f"{kind}.{index}", after=(2 * index,), call=call
            )
            graphs[rank] += [compute, collective]
    return [tuple(graph) for graph in graphs]
