"""A replayed trace with the times that the replay measured."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Hashable
from dataclasses import replace
from pathlib import Path
from typing import Any

from analysis.chakra.collective_order import Order, collective_orders
from analysis.chakra.graph import (
    CollectiveNode,
    ComputeNode,
    Graph,
    GraphNode,
    ReceiveNode,
    SendNode,
)
from analysis.runs.collectives import ALIGNMENT
from analysis.runs.records import CollectiveRecord, ComputeRecord
from analysis.runs.run import RankLog, Run, RunError
from collectives.call import CollectiveCall, CollectiveError


def graphs_of_replay(run: Run, iteration: int) -> list[Graph]:
    """The graphs of RUN/replay, each node with its start and duration in that iteration, in
    nanoseconds of the run's clock. Raises RunError naming the file."""
    files = [run.directory / "replay" / f"{log.rank:03d}.jsonl" for log in run.ranks]
    programs = [read_program(file) for file in files]
    orders = collective_orders(programs)
    return [
        _timed(run, log, program, order, iteration)
        for log, program, order in zip(run.ranks, programs, orders, strict=True)
    ]


def read_program(path: Path) -> Graph:
    """A rank's program (workloads/models/replay.py has the format), in order of ids.

    Raises RunError naming the file and the line.
    """
    nodes = []
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise RunError(f"{path}: {error}") from None
    for number, line in enumerate(lines, start=1):
        try:
            nodes.append(_node(json.loads(line)))
        except (KeyError, TypeError, ValueError, CollectiveError) as error:
            raise RunError(f"{path}: line {number}: {type(error).__name__}: {error}") from None
    return tuple(sorted(nodes, key=lambda node: node.id))


def _node(line: dict[str, Any]) -> GraphNode:
    common: dict[str, Any] = {
        "id": line["id"],
        "name": line["name"],
        "after": tuple(line["after"]),
    }
    match line["kind"]:
        case "compute":
            return ComputeNode(
                duration_ns=line["duration_ns"],
                flops=line.get("flops", 0),
                memory_bytes=line.get("memory_bytes", 0),
                on_host=line.get("on_host", False),
                stream=line.get("stream") or None,
                **common,
            )
        case "collective":
            call = CollectiveCall(
                line["collective"],
                line["size_bytes"],
                tuple(line["ranks"]),
                line["element_bytes"],
                line["root"],
            )
            return CollectiveNode(call=call, **common)
        case "send" | "receive" as kind:
            return (SendNode if kind == "send" else ReceiveNode)(
                peer=line["peer"], size_bytes=line["size_bytes"], tag=line["tag"], **common
            )
    raise ValueError(f"kind is {line['kind']!r}")


def _timed(run: Run, log: RankLog, program: Graph, order: Order, iteration: int) -> Graph:
    """Nodes that the log does not tell apart (same name, group or flow) are matched in order:
    collectives and messages as they were posted, computations from the shortest to the longest.
    """
    records: dict[Hashable, list[ComputeRecord | CollectiveRecord]] = defaultdict(list)
    world = tuple(range(len(run.ranks)))
    for event in log.events:
        if event.iteration == iteration and event.phase != ALIGNMENT:
            records[_key_of_record(event, world)].append(event)
    nodes: dict[Hashable, list[GraphNode]] = defaultdict(list)
    for node in program:
        nodes[_key_of_node(node, log.rank)].append(node)
    timed: dict[int, GraphNode] = {}
    for key, same in nodes.items():
        found = records.get(key, [])
        if len(found) != len(same):
            raise RunError(
                f"{run.directory}: rank {log.rank}: the replayed program has {len(same)} nodes "
                f"like {same[0].name!r}, the log has {len(found)} in iteration {iteration}"
            )
        if isinstance(same[0], ComputeNode):
            same.sort(key=lambda node: (node.duration_ns, node.id))
            found.sort(key=lambda r: (r.end_ns - r.start_ns, r.start_ns))
        else:
            same.sort(key=lambda node: (order.get(node.id, 0), node.id))
            found.sort(key=_posted)
        for node, record in zip(same, found, strict=True):
            timed[node.id] = replace(
                node, start_ns=record.start_ns, duration_ns=record.end_ns - record.start_ns
            )
    return tuple(timed[node.id] for node in program)


def _posted(record: ComputeRecord | CollectiveRecord) -> tuple[int, int]:
    """A collective by its group's count, a message by the number that ends its id."""
    assert isinstance(record, CollectiveRecord)
    if record.tag is None:
        return record.start_ns, int(record.id.rpartition(".")[2])
    return record.tag, 0


def _key_of_record(record: ComputeRecord | CollectiveRecord, world: tuple[int, ...]) -> Hashable:
    if isinstance(record, ComputeRecord):
        return "compute", record.name
    ranks = world if record.ranks is None else tuple(record.ranks)
    if record.phase == "message":
        source, destination = ranks
        return "message", source, destination, int(record.id.split(".")[4])
    return "collective", ranks


def _key_of_node(node: GraphNode, rank: int) -> Hashable:
    match node:
        case CollectiveNode():
            return "collective", node.call.ranks
        case SendNode():
            return "message", rank, node.peer, node.tag
        case ReceiveNode():
            return "message", node.peer, rank, node.tag
    return "compute", node.name
