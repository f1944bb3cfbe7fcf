"""LogGOPSim's GOAL schedules: the workload as sends, receives and calculations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from analysis.chakra.expand import expand_all
from analysis.chakra.graph import ComputeNode, Graph, ReceiveNode, SendNode
from analysis.chakra.sources.goal import GoalOperation


def goal_lines(graphs: Sequence[Graph], *, seed: int = 1) -> Iterator[str]:
    """The lines of a GOAL text (the input of LogGOPSim's txt2bin), without line ends.

    A collective goes out as the messages of its program, or of Gloo. Each has tags of its own,
    above the workload's. Calculations are in nanoseconds, LogGOPSim's unit of time. Format:
    Hoefler, Siebert and Lumsdaine, "Group Operation Assembly Language", ICPP 2009, as txt2bin reads
    it.
    """
    yield f"num_ranks {len(graphs)}"
    for rank, graph in enumerate(expand_all(graphs, seed=seed)):
        yield f"rank {rank} {{"
        for node in graph:
            match node:
                case ComputeNode():
                    yield f"l{node.id}: calc {node.duration_ns}"
                case SendNode():
                    yield f"l{node.id}: send {node.size_bytes}b to {node.peer} tag {node.tag}"
                case ReceiveNode():
                    yield f"l{node.id}: recv {node.size_bytes}b from {node.peer} tag {node.tag}"
        for node in graph:
            for parent in node.after:
                yield f"l{node.id} requires l{parent}"
        yield "}"


def goal_operations(graphs: Sequence[Graph], *, seed: int = 1) -> Iterator[list[GoalOperation]]:
    """The same by rank, for the binary file. Computation of the host is on a CPU of its own."""
    for graph in expand_all(graphs, seed=seed):
        places = {node.id: place for place, node in enumerate(graph)}
        found = []
        for node in graph:
            kind, size, peer, options = "calc", node.duration_ns, -1, {"cpu": 0}
            if isinstance(node, SendNode | ReceiveNode):
                kind = "send" if isinstance(node, SendNode) else "recv"
                size, peer, options["tag"] = node.size_bytes, node.peer, node.tag
            elif isinstance(node, ComputeNode):
                options["cpu"] = int(node.on_host)
            after = [places[parent] for parent in dict.fromkeys(node.after)]
            found.append(GoalOperation(0, f"l{node.id}", kind, size, peer, options, after))
        yield found
