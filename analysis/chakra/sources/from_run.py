"""A measured run as graphs: what each rank did, after what, and how long it took."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace

from analysis.chakra.graph import CollectiveNode, ComputeNode, Graph, GraphNode
from analysis.chakra.sources.from_gpus import graphs_of_gpus
from analysis.chakra.sources.from_replay import graphs_of_replay
from analysis.chakra.sources.graph_builder import direct
from analysis.runs.collectives import ALIGNMENT, call_of_record
from analysis.runs.records import CollectiveRecord, ComputeRecord
from analysis.runs.run import RankLog, Run, RunError

Event = ComputeRecord | CollectiveRecord


def graphs_of_run(run: Run, iteration: int | None = None) -> list[Graph]:
    """Every rank's graph of one iteration, the last unless given.

    Starts count from the iteration's first event; times are of the target fabric (a scaled run's
    are divided by its scale). A run of a trace keeps the trace's nodes, ids and dependencies and
    gets the measured times. Raises RunError when the run has no such iteration.
    """
    on_gpus = any(log.gpus for log in run.ranks)
    if on_gpus:  # behind the last optimizer's step is no iteration
        iterations = sorted({each.index for log in run.ranks for each in log.iterations})
    else:
        iterations = sorted({e.iteration for log in run.ranks for e in _work(log.events)})
    if not iterations:
        raise RunError(f"{run.directory}: no rank logged any work")
    chosen = iterations[-1] if iteration is None else iteration
    if chosen not in iterations:
        raise RunError(
            f"{run.directory}: no iteration {chosen}: there are {iterations[0]} to {iterations[-1]}"
        )
    if on_gpus:
        return graphs_of_gpus(run, chosen)
    origin_ns = min(
        e.start_ns for log in run.ranks for e in _work(log.events) if e.iteration == chosen
    )
    if run.spec.workload.from_files:
        graphs = graphs_of_replay(run, chosen)
    else:
        graphs = [_graph(run, log, chosen) for log in run.ranks]
    return [
        tuple(_rebased(node, origin_ns, run.environment.scale) for node in graph)
        for graph in graphs
    ]


def _work(events: Sequence[Event]) -> list[Event]:
    """All but the alignments of ranks, which no training program has."""
    return [event for event in events if event.phase != ALIGNMENT]


def _rebased(node: GraphNode, origin_ns: int, scale: int) -> GraphNode:
    start_ns = max(node.start_ns - origin_ns, 0)
    return replace(node, start_ns=start_ns // scale, duration_ns=node.duration_ns // scale)


def _graph(run: Run, log: RankLog, iteration: int) -> Graph:
    kept = [
        line
        for line, event in enumerate(log.events)
        if event.iteration == iteration and event.phase != ALIGNMENT
    ]
    work = [log.events[line] for line in kept]
    try:
        before = over_before(log.events)
    except ValueError as error:
        raise RunError(f"{run.directory}: {error}") from None
    # Work that the rank knew to be over, as far as it belongs to this graph: its first so many
    # nodes.
    parents = direct([(1 << bisect_left(kept, before[line])) - 1 for line in kept])
    order = _by_start(work, parents)
    ids = {index: id for id, index in enumerate(order)}
    return tuple(
        _node(run, work[index], id, tuple(sorted(ids[parent] for parent in parents[index])))
        for id, index in enumerate(order)
    )


def over_before(events: Sequence[Event]) -> list[int]:
    """Per event of one rank, in logged order: how many of them, from the first, were over, and
    known to the rank to be over, before it started.

    A computation blocks the rank and is logged at its end, a collective when the rank has waited
    for it. So all that is logged before a computation is over before it; a collective says how
    far the log was when the rank posted it.
    """
    return [
        position if isinstance(event, ComputeRecord) else event.known
        for position, event in enumerate(events)
    ]


def _by_start(events: Sequence[Event], parents: Sequence[Sequence[int]]) -> list[int]:
    """Positions by start, never before their parents; a group's collectives as they were posted."""

    def key(position: int) -> tuple[int, bool, int, int]:
        event = events[position]
        tag = event.tag if isinstance(event, CollectiveRecord) else None
        return event.start_ns, isinstance(event, ComputeRecord), tag or 0, position

    children: list[list[int]] = [[] for _ in events]
    waits = [len(found) for found in parents]
    for position, found in enumerate(parents):
        for parent in found:
            children[parent].append(position)
    ready = [key(position) for position, count in enumerate(waits) if count == 0]
    heapq.heapify(ready)
    order = []
    while ready:
        position = heapq.heappop(ready)[-1]
        order.append(position)
        for child in children[position]:
            waits[child] -= 1
            if waits[child] == 0:
                heapq.heappush(ready, key(child))
    return order


def _node(run: Run, event: Event, id: int, after: tuple[int, ...]) -> GraphNode:
    duration_ns = event.end_ns - event.start_ns
    if isinstance(event, ComputeRecord):
        return ComputeNode(
            id=id,
            name=f"{event.phase}.{event.name}",
            after=after,
            start_ns=event.start_ns,
            duration_ns=duration_ns,
            flops=event.flops,
            memory_bytes=event.bytes,
        )
    name = event.id.removeprefix(f"i{event.iteration}.")
    return CollectiveNode(
        id=id,
        name=name,
        after=after,
        start_ns=event.start_ns,
        duration_ns=duration_ns,
        call=call_of_record(run, event),
    )
