"""A workload's traces with its communication and timing, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.chakra.disguise.outline import outlines
from analysis.chakra.graph import Graph


def obfuscated(graphs: Sequence[Graph]) -> tuple[Graph, ...]:
    """The times of computing, the messages, their ends and their order, and nothing else.

    Gone are names, ids, tags, starts, operations and bytes of memory, dependencies that others
    imply, and where one computation ends and the next begins. Groups, sizes and durations stay as
    they are: a replay takes the same time and sends the same bytes. Raises ValueError.
    """
    return outlines(graphs)
