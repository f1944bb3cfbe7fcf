"""Is a trace a graph that can be run?"""

import glob
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from analysis.chakra.codec import decode_records, read_bytes, read_records
from analysis.chakra.errors import ChakraError
from analysis.chakra.foreign import as_feeder_reads
from analysis.chakra.old_schemas import old_trace, versionless
from analysis.chakra.schema import CollectiveType, NodeType
from analysis.chakra.trace import Trace, TraceNode
from topologies.spec.foreign_files import foreign_file

_NODE_TYPES = frozenset(NodeType)
_COLLECTIVES = frozenset(CollectiveType)
_REQUIRED: dict[int, tuple[str, ...]] = {
    NodeType.COMM_COLL: ("comm_type", "comm_size"),
    NodeType.COMM_SEND: ("comm_dst", "comm_size", "comm_tag"),
    NodeType.COMM_RECV: ("comm_src", "comm_size", "comm_tag"),
    NodeType.MEM_LOAD: ("tensor_size",),
    NodeType.MEM_STORE: ("tensor_size",),
}


def import_trace(path: Path | str) -> tuple[Trace, tuple[str, ...]]:
    """Read a trace and check it, with notes of what is read otherwise than it stands there
    (`foreign.as_feeder_reads`). Raises ChakraError, with the offset of the node at fault."""
    data = read_bytes(path)
    if (foreign := foreign_file(data)) is not None:
        raise ChakraError(path, None, f"is no execution trace: it is {foreign}")
    records = read_records(data, path)
    try:
        old = old_trace([record for _, record in records])
    except ValueError as error:
        raise ChakraError(path, None, f"of an old schema of Chakra: {error}") from None
    if old is None:
        (offset, first), *rest = records
        found = decode_records([(offset, versionless(first) or first), *rest], path)
    else:
        found = old
    trace, notes = as_feeder_reads(found)
    check_trace(trace, path, [offset for offset, _ in records[-len(trace.nodes) :]])
    if old is not None:
        notes = (f"is of Chakra's schema {old.version}, and read as the present one", *notes)
    return trace, notes


def ranks_of(prefix: Path, suffixes: Sequence[str]) -> dict[int, Path]:
    """Every `PREFIX.RANK` with one of the suffixes, by rank; ranks must be 0 to n-1. Raises
    ChakraError."""
    found: dict[int, Path] = {}
    for suffix in suffixes:
        for path in prefix.parent.glob(f"{glob.escape(prefix.name)}.*{suffix}"):
            rank = path.name[len(prefix.name) + 1 : -len(suffix)]
            if rank.isdecimal():
                found[int(rank)] = path
    missing = sorted(set(range(max(found, default=-1) + 1)) - set(found))
    if missing:
        raise ChakraError(prefix, None, f"no file for rank {missing[0]} of 0 to {max(found)}")
    return dict(sorted(found.items()))


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
    """The mistakes of a node by itself."""
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
