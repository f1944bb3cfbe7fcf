"""Traces as other programs write them, made into what can be run; and notes of what that changes.

Chakra's converter of PyTorch's traces names the caller of each operator in `ctrl_deps`, also where
it has left that caller out; Chakra's feeder reads `data_deps` alone. Older versions of the
converter give the host's side of a collective the type COMM_COLL, too, and no `comm_type`.

The converter's device nodes depend on what launched them, and on nothing of their stream
(mlcommons/chakra#215): collectives would begin before what they reduce. Their order on a stream is
that of their start times where the trace has them, else that of their ids, which grow with
launches. NCCL's stream waits for the one that is current when it is used (PyTorch,
ProcessGroupNCCL.cpp, syncStream); a trace does not name that one, and here it is the stream on
which most is computed.
Sources: mlcommons/chakra, src/converter/pytorch_converter.py, src/feeder/et_feeder.cpp.
"""

from __future__ import annotations

import heapq
import json
from ast import literal_eval
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from analysis.chakra.graph import STREAMS_IN_ORDER, unpriced
from analysis.chakra.schema import NodeType
from analysis.chakra.trace import Trace, TraceNode

_RANKS_NAMED = 3
_PROCESS_GROUPS = "process_group:init"
_ON_STREAMS = (NodeType.COMP, NodeType.COMM_COLL, NodeType.COMM_SEND, NodeType.COMM_RECV)


def as_feeder_reads(trace: Trace) -> tuple[Trace, tuple[str, ...]]:
    """The trace with the dependencies that Chakra's feeder follows where some of the others lead
    nowhere, and with the host's side of collectives as computation; and notes of that."""
    notes = []
    nodes = trace.nodes
    known = {node.id for node in nodes}
    dangling = sum(parent not in known for node in nodes for parent in node.ctrl_deps)
    if dangling:
        nodes = tuple(replace(node, ctrl_deps=()) for node in nodes)
        notes.append(
            f"{dangling} of its ctrl_deps name nodes that are not there, as Chakra's converter "
            "leaves callers out: data_deps alone are followed, as by Chakra's feeder"
        )
    launches = {node.id for node in nodes if _is_launch(node)}
    if launches:
        nodes = tuple(
            replace(node, type=NodeType.COMP) if node.id in launches else node for node in nodes
        )
        notes.append(
            f"{len(launches)} nodes of type COMM_COLL on the host have no comm_type: they start "
            "collectives, and take their duration as computation"
        )
    told = any(attribute.name == STREAMS_IN_ORDER for attribute in trace.attributes)
    nodes, added = (nodes, 0) if told else _in_stream_order(nodes)
    if added:
        notes.append(
            f"{added} dependencies of device nodes on nodes before them, on their stream or on "
            "the stream that computes, are not in the trace and are added (mlcommons/chakra#215)"
        )
    return replace(trace, nodes=nodes), tuple(notes)


def _in_stream_order(nodes: tuple[TraceNode, ...]) -> tuple[tuple[TraceNode, ...], int]:
    """Nodes of a device, each behind the one before it on its stream, communication also behind
    what was computed before it; and how many dependencies were not there."""
    streams = {node.id: stream for node in nodes if (stream := _stream(node)) is not None}
    if not streams:
        return nodes, 0
    by_id = {node.id: node for node in nodes}
    after = {node.id: {*node.data_deps, *node.ctrl_deps} for node in nodes}
    computing = Counter(streams[id] for id in streams if by_id[id].type == NodeType.COMP)
    main = computing.most_common(1)[0][0] if computing else None
    last: dict[int, int] = {}
    added: dict[int, list[int]] = {}
    for id in _launch_order(by_id, after):
        if id not in streams:
            continue
        own = streams[id]
        before = [last[own]] if own in last else []
        communicates = by_id[id].type != NodeType.COMP
        if communicates and main is not None and own != main and main in last:
            before.append(last[main])
        new = [each for each in before if each not in after[id]]
        if new:
            added[id] = new
        last[own] = id
    changed = tuple(
        replace(node, data_deps=(*node.data_deps, *added[node.id])) if node.id in added else node
        for node in nodes
    )
    return changed, sum(map(len, added.values()))


def _stream(node: TraceNode) -> int | None:
    """The stream of a device node that the converter wrote; None of others. Its first versions put
    it where the host's nodes have their thread."""
    if node.type not in _ON_STREAMS or node.attribute("is_cpu_op") is not False:
        return None
    for name in ("stream", "tid"):
        value = node.attribute(name)
        if isinstance(value, int):
            return value
    return None


def _launch_order(by_id: Mapping[int, TraceNode], after: Mapping[int, set[int]]) -> Iterator[int]:
    """The nodes, each behind all that it waits for; the one that began first, or was launched
    first, precedes others that may come next. Nodes that wait in a circle are left out."""
    followers: dict[int, list[int]] = defaultdict(list)
    waits: dict[int, int] = {}
    for id, parents in after.items():
        known = [parent for parent in parents if parent in by_id]
        waits[id] = len(known)
        for parent in known:
            followers[parent].append(id)
    ready = [(by_id[id].start_micros, id) for id, count in waits.items() if not count]
    heapq.heapify(ready)
    while ready:
        _, id = heapq.heappop(ready)
        yield id
        for follower in followers[id]:
            waits[follower] -= 1
            if not waits[follower]:
                heapq.heappush(ready, (by_id[follower].start_micros, follower))


def not_as_they_say(trace: Trace, device: str) -> tuple[str, ...]:
    """The nodes of a trace that a replay takes for something else: those that `device` was to
    time."""
    notes = []
    timed = [node for node in trace.nodes if unpriced(node)]
    if timed:
        how = "take no time" if device == "none" else f"take what the roofline of {device} says"
        notes.append(f"{len(timed)} computations with num_ops have no duration, and {how}")
    return tuple(notes)


def groups_of_pytorch(trace: Trace) -> dict[str, tuple[int, ...]]:
    """The process groups that PyTorch lists in a metadata node of its own, by name; one of all
    ranks has no ranks there, and none here. Raises ValueError."""
    found: dict[str, tuple[int, ...]] = {}
    for node in trace.nodes:
        if node.type != NodeType.METADATA or _PROCESS_GROUPS not in node.name:
            continue
        if node.inputs is None:
            continue
        try:
            (text,) = literal_eval(node.inputs.values)
            for group in json.loads(text):
                found[str(group["pg_name"])] = tuple(int(rank) for rank in group["ranks"])
        except (ValueError, SyntaxError, TypeError, KeyError) as error:
            raise ValueError(
                f"node {node.id} ({node.name}): inputs are no list of process groups: {error}"
            ) from None
    return found


def by_ranks(notes: Iterable[tuple[int, str]], ranks: int) -> tuple[str, ...]:
    """Notes on ranks' traces, each once with the ranks that it is about."""
    about: dict[str, list[int]] = defaultdict(list)
    for rank, note in notes:
        about[note].append(rank)
    return tuple(f"{_named(found, ranks)}: {note}" for note, found in about.items())


def _named(found: list[int], ranks: int) -> str:
    if len(found) == ranks > 1:
        return "all ranks"
    named = ", ".join(map(str, found[:_RANKS_NAMED]))
    more = f" and {len(found) - _RANKS_NAMED} others" if len(found) > _RANKS_NAMED else ""
    return f"rank{'s' if len(found) > 1 else ''} {named}{more}"


def _is_launch(node: TraceNode) -> bool:
    on_host = bool(node.attribute("is_cpu_op"))
    return node.type == NodeType.COMM_COLL and on_host and node.attribute("comm_type") is None
