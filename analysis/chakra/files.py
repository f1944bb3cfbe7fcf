"""A whole workload as Chakra files: `PREFIX.RANK.et`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from analysis.chakra.check import import_traces
from analysis.chakra.codec import write_trace
from analysis.chakra.errors import ChakraError
from analysis.chakra.expand import expand, runs_by_ranks
from analysis.chakra.graph import ComputeNode, Graph, Groups, from_trace, number_groups, to_trace
from analysis.chakra.schema import COLLECTIVE_KINDS

_FIRST_TAG = 400_000_000
"""Of messages that stand for a collective; workloads' own tags are expected below."""


def write_graphs(prefix: Path | str, graphs: Sequence[Graph], *, seed: int = 1) -> list[Path]:
    """Write one trace per rank; returns their paths.

    Collectives that Chakra has no type for (incast, permutation, send_recv) go out as their sends
    and receives, and so do those that run as programs; a rank without nodes gets one that does
    nothing, as no consumer takes a trace without. Raises ValueError for what a trace cannot hold.
    """
    expanded = expand(
        graphs,
        lambda call: call.kind not in COLLECTIVE_KINDS or runs_by_ranks(call),
        first_tag=_FIRST_TAG,
        seed=seed,
    )
    expanded = [graph or (ComputeNode(id=0, name="nothing"),) for graph in expanded]
    groups = number_groups(expanded)
    paths = [Path(f"{prefix}.{rank}.et") for rank in range(len(graphs))]
    for path, graph in zip(paths, expanded, strict=True):
        write_trace(path, to_trace(graph, groups))
    return paths


def read_graphs(
    prefix: Path | str, groups: Mapping[int, Sequence[int]] | None = None
) -> list[Graph]:
    """Every rank's graph, checked.

    `groups` are the communicator groups of traces that do not carry them (number -> ranks).
    Raises ChakraError naming the file.
    """
    graphs = []
    traces = import_traces(prefix)
    for rank, trace in traces.items():
        path = f"{prefix}.{rank}.et"
        carried = any(attribute.name == "world_size" for attribute in trace.attributes)
        known = None if carried and groups is None else Groups(len(traces), groups)
        try:
            graphs.append(from_trace(trace, known))
        except ValueError as error:
            raise ChakraError(path, None, str(error)) from None
    return graphs
