"""The work of a rank, as plain typed nodes; and such graphs to and from Chakra traces.

This is what runs are turned into for other simulators, and what a trace is turned into for replay.
Durations and starts are exact nanoseconds: Chakra's own fields hold microseconds, so the
nanoseconds travel in attributes that other readers leave alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.chakra.schema import COLLECTIVE_KINDS, CollectiveType, NodeType
from analysis.chakra.trace import Attribute, Trace, TraceNode
from collectives.call import CollectiveCall, CollectiveError
from collectives.kinds import Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphNode:
    """A node of one rank's graph. `after` are the ids of the nodes that it waits for."""

    id: int
    name: str
    after: tuple[int, ...] = ()
    start_ns: int = 0
    duration_ns: int = 0
    stream: int | None = None
    """That of a device, where it is known: nodes of one stream follow each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeNode(GraphNode):
    """Computation of `duration_ns`, on the device or on its host; operations and bytes of memory
    where they are known."""

    flops: int = 0
    memory_bytes: int = 0
    on_host: bool = False

    @property
    def line(self) -> int:
        """That in which nodes follow each other: the host's, or a stream's; others all have one."""
        return -1 if self.on_host else self.stream or 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveNode(GraphNode):
    """This rank's part in a collective; `duration_ns` as measured, 0 when it was not."""

    call: CollectiveCall


@dataclass(frozen=True, slots=True, kw_only=True)
class SendNode(GraphNode):
    """A message to rank `peer`. Messages between two ranks meet by tag and size, in order."""

    peer: int
    size_bytes: int
    tag: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiveNode(GraphNode):
    """A message from rank `peer`."""

    peer: int
    size_bytes: int
    tag: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryNode(GraphNode):
    """A load from memory, or a store to it. A workload that has been read holds none: it has what
    happens (`memory.py`)."""

    loads: bool
    size_bytes: int


Graph = tuple[GraphNode, ...]
"""One rank's nodes. Nodes that may run together start in order of their ids."""

_KIND_OF = {value: kind for kind, value in COLLECTIVE_KINDS.items()} | {
    CollectiveType.REDUCE_SCATTER_BLOCK: Kind.REDUCE_SCATTER
}
_SHARDED = (Kind.ALL_GATHER,)
"""Kinds whose comm_size is one rank's shard, where a call states the total (design of the ET)."""


STREAMS_IN_ORDER = "streams_in_order"
"""The global attribute of a trace whose nodes wait for all that their streams wait for."""
_DEFAULT_GROUP = "default_pg"
"""PyTorch's name of the group of all ranks."""


class Groups:
    """Numbers for communicator groups: 0 is the world, others count up as they are met."""

    def __init__(self, world: int, known: Mapping[int, Sequence[int]] | None = None) -> None:
        self.world = world
        self._members = {0: tuple(range(world))}
        self._members |= {number: tuple(ranks) for number, ranks in (known or {}).items()}
        self._numbers = {ranks: number for number, ranks in self._members.items()}
        self._named = dict.fromkeys(("", _DEFAULT_GROUP), self._members[0])

    def number(self, ranks: tuple[int, ...]) -> int:
        """The group of exactly these ranks, in this order."""
        if ranks not in self._numbers:
            number = max(self._members) + 1
            self._numbers[ranks] = number
            self._members[number] = ranks
        return self._numbers[ranks]

    def ranks(self, number: int) -> tuple[int, ...]:
        """The members of a group. Raises KeyError."""
        return self._members[number]

    def name(self, name: str, ranks: Sequence[int]) -> None:
        """Have a group that is known by a name, which may be a number."""
        self._named[name] = tuple(ranks)

    def named(self, name: str) -> tuple[int, ...]:
        """The members of a group by its name, or by its number as text. Raises KeyError."""
        if name in self._named:
            return self._named[name]
        if not name.isdecimal():
            raise KeyError(name)
        return self._members[int(name)]

    def subgroups(self) -> dict[int, tuple[int, ...]]:
        """All groups but the world."""
        return {number: ranks for number, ranks in self._members.items() if number != 0}


def number_groups(graphs: Sequence[Graph]) -> Groups:
    """The groups of a whole workload, numbered alike for all ranks."""
    groups = Groups(len(graphs))
    for graph in graphs:
        for node in graph:
            if isinstance(node, CollectiveNode):
                groups.number(node.call.ranks)
    return groups


def to_trace(graph: Graph, groups: Groups) -> Trace:
    """One rank's graph as a Chakra trace; the groups travel in its global metadata.

    Raises ValueError for a collective that Chakra has no type for (expand it first) and for an
    all-gather whose total is not a multiple of its ranks.
    """
    metadata = [Attribute("world_size", "int64_val", groups.world)]
    metadata += [
        Attribute(f"group.{number}", "int64_list", ranks)
        for number, ranks in groups.subgroups().items()
    ]
    if any(node.stream is not None for node in graph):
        metadata.append(Attribute(STREAMS_IN_ORDER, "bool_val", True))
    return Trace(tuple(_to_node(node, groups) for node in graph), attributes=tuple(metadata))


Pricing = Callable[[int, int], int]
"""Operations and bytes of memory -> nanoseconds."""


def from_trace(trace: Trace, groups: Groups | None = None, price: Pricing | None = None) -> Graph:
    """The inverse of `to_trace`; also takes traces of other origin.

    `groups` are those of the trace's metadata unless given. A trace of other origin has durations
    in microseconds only; nodes that are neither computation, communication nor memory become
    computation of their duration. `price` says what a computation without a duration takes
    (`unpriced`). Streams are those of a trace that has all that they wait for. Raises ValueError
    naming the node.
    """
    groups = groups or trace_groups(trace)
    ordered = any(attribute.name == STREAMS_IN_ORDER for attribute in trace.attributes)
    return tuple(_from_node(node, groups, price, ordered) for node in trace.nodes)


def unpriced(node: TraceNode) -> bool:
    """Whether a node says what it computes, and not how long that takes."""
    timed = node.duration_micros or node.attribute("duration_ns") is not None
    return node.type == NodeType.COMP and not timed and bool(node.integer("num_ops"))


def trace_groups(trace: Trace) -> Groups:
    """The groups that a trace's metadata names. Raises ValueError when it states no world size."""
    values = {attribute.name: attribute.value for attribute in trace.attributes}
    world = values.get("world_size")
    if not isinstance(world, int):
        raise ValueError("the trace's metadata has no world_size: give the groups")
    known = {}
    for name, ranks in values.items():
        number = name.removeprefix("group.")
        if number != name and number.isdecimal() and isinstance(ranks, tuple):
            known[int(number)] = ranks
    return Groups(world, known)


def _to_node(node: GraphNode, groups: Groups) -> TraceNode:
    on_host = isinstance(node, ComputeNode) and node.on_host
    attributes = [Attribute("is_cpu_op", "bool_val", on_host)]

    def add(name: str, value: int, kind: str = "int64_val") -> None:
        attributes.append(Attribute(name, kind, value))

    match node:
        case ComputeNode():
            kind = NodeType.COMP
            add("num_ops", node.flops)
            add("tensor_size", node.memory_bytes)
        case MemoryNode():
            kind = NodeType.MEM_LOAD if node.loads else NodeType.MEM_STORE
            add("tensor_size", node.size_bytes, "uint64_val")
        case CollectiveNode():
            kind = NodeType.COMM_COLL
            attributes += _call_attributes(node, groups)
        case SendNode() | ReceiveNode():
            kind = NodeType.COMM_SEND if isinstance(node, SendNode) else NodeType.COMM_RECV
            add("comm_dst" if isinstance(node, SendNode) else "comm_src", node.peer, "int32_val")
            add("comm_size", node.size_bytes)
            add("comm_tag", node.tag, "int32_val")
        case _:
            raise TypeError(f"node {node.id} is a {type(node).__name__}")
    add("start_ns", node.start_ns)
    add("duration_ns", node.duration_ns)
    if node.stream is not None:
        add("stream", node.stream)
    return TraceNode(
        id=node.id,
        name=node.name,
        type=kind,
        data_deps=node.after,
        start_micros=node.start_ns // 1000,
        duration_micros=(node.duration_ns + 500) // 1000,
        attributes=tuple(attributes),
    )


def _call_attributes(node: CollectiveNode, groups: Groups) -> list[Attribute]:
    call = node.call
    if call.kind not in COLLECTIVE_KINDS:
        raise ValueError(f"node {node.id}: Chakra has no collective {call.kind}")
    size_bytes = call.size_bytes
    if call.kind in _SHARDED:
        if size_bytes % call.world:
            raise ValueError(
                f"node {node.id}: {call.kind} of {size_bytes} bytes does not divide into "
                f"{call.world} shards"
            )
        size_bytes //= call.world
    attributes = [
        Attribute("comm_type", "int64_val", int(COLLECTIVE_KINDS[call.kind])),
        Attribute("comm_size", "int64_val", size_bytes),
        Attribute("element_size", "int64_val", call.element_bytes),
        Attribute("root", "int64_val", call.root),
    ]
    number = groups.number(call.ranks)
    if number:
        attributes.append(Attribute("pg_name", "string_val", str(number)))
    return attributes


def _from_node(node: TraceNode, groups: Groups, price: Pricing | None, ordered: bool) -> GraphNode:
    start_ns = node.integer("start_ns")
    duration_ns = node.integer("duration_ns")
    common: dict[str, Any] = {
        "id": node.id,
        "name": node.name,
        "after": tuple(dict.fromkeys((*node.data_deps, *node.ctrl_deps))),
        "start_ns": node.start_micros * 1000 if start_ns is None else start_ns,
        "duration_ns": node.duration_micros * 1000 if duration_ns is None else duration_ns,
        "stream": node.integer("stream") if ordered else None,
    }
    if node.type == NodeType.COMM_COLL:
        return CollectiveNode(call=_call(node, groups), **common)
    if node.type in (NodeType.COMM_SEND, NodeType.COMM_RECV):
        sends = node.type == NodeType.COMM_SEND
        return (SendNode if sends else ReceiveNode)(
            peer=_required(node, "comm_dst" if sends else "comm_src"),
            size_bytes=_required(node, "comm_size"),
            tag=node.integer("comm_tag") or 0,
            **common,
        )
    if node.type in (NodeType.MEM_LOAD, NodeType.MEM_STORE):
        return MemoryNode(
            loads=node.type == NodeType.MEM_LOAD,
            size_bytes=_required(node, "tensor_size"),
            **common,
        )
    flops, memory_bytes = node.integer("num_ops") or 0, node.integer("tensor_size") or 0
    if price is not None and unpriced(node):
        common["duration_ns"] = price(flops, memory_bytes)
    on_host = bool(node.integer("is_cpu_op"))
    return ComputeNode(flops=flops, memory_bytes=memory_bytes, on_host=on_host, **common)


def _call(node: TraceNode, groups: Groups) -> CollectiveCall:
    group = node.attribute("pg_name") or ""
    if not isinstance(group, str):
        raise ValueError(f"node {node.id}: pg_name is {group!r}, not a group's name")
    try:
        ranks = groups.named(group)
    except KeyError:
        raise ValueError(
            f"node {node.id}: pg_name: no ranks are told of group {group}: give ASTRA-sim's file "
            "of communicator groups (--groups)"
        ) from None
    kind = _KIND_OF[CollectiveType(_required(node, "comm_type"))]
    size_bytes = _required(node, "comm_size") * (len(ranks) if kind in _SHARDED else 1)
    try:
        return CollectiveCall(
            kind,
            size_bytes,
            ranks,
            element_bytes=node.integer("element_size") or 4,
            root=node.integer("root") or 0,
        )
    except CollectiveError as error:
        raise ValueError(f"node {node.id}: {error}") from None


def _required(node: TraceNode, name: str) -> int:
    value = node.integer(name)
    if value is None:
        raise ValueError(f"node {node.id} lacks attribute {name}")
    return value
