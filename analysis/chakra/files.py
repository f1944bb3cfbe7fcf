"""A whole workload as Chakra files: `PREFIX.RANK.et`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from analysis.chakra.codec import write_trace
from analysis.chakra.expand import expand, runs_by_ranks
from analysis.chakra.graph import ComputeNode, Graph, number_groups, to_trace
from analysis.chakra.schema import COLLECTIVE_KINDS

FIRST_TAG = 400_000_000
"""The first tag of messages that stand for a collective; workloads' own tags are expected below."""


def write_graphs(prefix: Path | str, graphs: Sequence[Graph], *, seed: int = 1) -> list[Path]:
    """Write one trace per rank; returns their paths.

    Collectives that Chakra has no type for (incast, permutation, send_recv) go out as their sends
    and receives, and so do those that run as programs; a rank without nodes gets one that does
    nothing, as no consumer takes a trace without. Raises ValueError for what a trace cannot hold.
    """
    expanded = expand(
        graphs,
        lambda call: call.kind not in COLLECTIVE_KINDS or runs_by_ranks(call),
        first_tag=FIRST_TAG,
        seed=seed,
    )
    expanded = [graph or (ComputeNode(id=0, name="nothing"),) for graph in expanded]
    groups = number_groups(expanded)
    paths = [Path(f"{prefix}.{rank}.et") for rank in range(len(graphs))]
    for path, graph in zip(paths, expanded, strict=True):
        write_trace(path, to_trace(graph, groups))
    return paths
