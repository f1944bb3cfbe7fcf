"""Is a trace a graph that can be run?"""

from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from analysis.chakra.codec import decode, read_bytes, record_offsets
from analysis.chakra.errors import ChakraError
from analysis.chakra.schema import CollectiveType, NodeType
from analysis.chakra.trace import Trace, TraceNode

_NODE_TYPES = frozenset(NodeType)
_COLLECTIVES = frozenset(CollectiveType)
_REQUIRED: dict[int, tuple[str, ...]] = {
    NodeType.COMM_COLL: ("comm_type", "comm_size"),
    NodeType.COMM_SEND: ("comm_dst", "comm_size", "comm_tag"),
    NodeType.COMM_RECV: ("comm_src", "comm_size", "comm_tag"),
    NodeType.MEM_LOAD: ("tensor_size",),
    NodeType.MEM_STORE: ("tensor_size",),
}


def import_trace(path: Path | str) -> Trace:
    """Read a trace and check it. Raises ChakraError, with the offset of the node at fault."""
    data = read_bytes(path)
    trace = decode(data, path)
    check_trace(trace, path, record_offsets(data, path))
    return trace


def import_traces(prefix: Path | str) -> dict[int, Trace]:
    """Every `PREFIX.RANK.et`, by rank, checked; ranks must be 0 to n-1. Raises ChakraError."""
    prefix = Path(prefix)
    found: dict[int, Path] = {}
    for path in prefix.parent.glob(f"{prefix.name}.*.et"):
        rank = path.name[len(prefix.name) + 1 : -len(".et")]
        if rank.isdecimal():
            found[int(rank)] = path
    if not found:
        raise ChakraError(prefix, None, f"no file {prefix.name}.RANK.et there")
    missing = sorted(set(range(max(found) + 1)) - set(found))
    if missing:
        raise ChakraError(prefix, None, f"no file for rank {missing[0]} of 0 to {max(found)}")
    return {rank: import_trace(found[rank]) for rank in sorted(found)}


def check_trace(
    trace: Trace, path: Path | str = "<trace>", offsets: Sequence[int] | None = None
) -> None:
    """Refuse what no consumer could run: no nodes, duplicate ids, dependencies on nodes that
    are not there, cycles, unknown node types, communication without its size or peer.

    `offsets` are the nodes' places in the file, for the error. Raises ChakraError naming the node.
    """
    if not trace.nodes:
        raise ChakraError(path, None, "holds no nodes")
    positions: dict[int, int] = {}

    def fail(position: int, what: str) -> NoReturn:
        raise ChakraError(path, None if offsets is None else offsets[position], what)

    for position, node in enumerate(trace.nodes):
        if positions.setdefault(node.id, position) != position:
            fail(position, f"node id {node.id} is used twice")
    children: list[list[int]] = [[] for _ in trace.nodes]
    waiting: list[int] = []
    for position, node in enumerate(trace.nodes):
        fault = _fault(node)
        if fault is not None:
            fail(position, fault)
        parents = {*node.ctrl_deps, *node.data_deps}
        for parent in parents:
            if parent not in positions:
                fail(position, f"node {node.id} depends on node {parent}, which is not there")
            children[positions[parent]].append(position)
        waiting.append(len(parents))
    ready = deque(position for position, count in enumerate(waiting) if count == 0)
    while ready:
        for child in children[ready.popleft()]:
            waiting[child] -= 1
            if waiting[child] == 0:
                ready.append(child)
    stuck = next((position for position, count in enumerate(waiting) if count > 0), None)
    if stuck is not None:
        fail(stuck, f"the dependencies form a cycle through node {trace.nodes[stuck].id}")


def _fault(node: TraceNode) -> str | None:
    """What is wrong with a node by itself."""
    if node.type not in _NODE_TYPES:
        return f"node {node.id} has type {node.type}, allowed 0 to {max(NodeType)}"
    try:
        values = {name: node.integer(name) for name in _REQUIRED.get(node.type, ())}
    except ValueError as error:
        return str(error)
    for name, value in values.items():
        if value is None:
            return f"node {node.id} ({NodeType(node.type).name}) lacks attribute {name}"
        if value < 0:
            return f"node {node.id}: {name} is {value}, below 0"
    kind = values.get("comm_type", 0)
    if kind not in _COLLECTIVES:
        return f"node {node.id} has comm_type {kind}, allowed 0 to {max(CollectiveType)}"
    return None
