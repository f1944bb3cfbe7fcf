"""Memory nodes as what happens: time at a rank's own tier, or messages with the hosts of a pool.

A pool's hosts are ranks of the workload, behind those of the trace. A load sends each of them a
request and gets its stripe; a store sends each its stripe and gets an answer. A host serves one
stripe at a time; the next one is that whose access stands first in its rank's program. ASTRA-sim's
memory pool serves so, too (astra-memory-analytical, AnalyticalRemoteMemory.cc: latency + size /
bandwidth, one at a time); there the way to it is part of its bandwidth, here it is the fabric's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from analysis.chakra.graph import (
    ComputeNode,
    Graph,
    GraphNode,
    MemoryNode,
    ReceiveNode,
    SendNode,
)
from topologies.spec.memory_section import MemorySpec

_FIRST_TAG = 300_000_000
"""The first tag of messages with memory; workloads' own tags are expected below."""
_ELEMENT_BYTES = 4


def with_memory(
    graphs: Sequence[Graph], memory: MemorySpec | None, *, complete: bool = True
) -> tuple[tuple[Graph, ...], tuple[str, ...]]:
    """The graphs without memory nodes, those of a pool's hosts behind them, and notes.

    Without `memory`, a node takes the duration that the trace has for it. Raises ValueError naming
    the node where there is none. `complete` is whether these are all ranks, as a pool needs.
    """
    nodes = [
        (rank, node)
        for rank, graph in enumerate(graphs)
        for node in graph
        if isinstance(node, MemoryNode)
    ]
    pool = memory is not None and memory.kind == "pool"
    if not nodes:
        idle = (ComputeNode(id=0, name="nothing"),)
        return (*graphs, *([idle] * memory.hosts if memory is not None and pool else ())), ()
    moved = sum(node.size_bytes for _, node in nodes)
    if memory is None:
        for rank, node in nodes:
            if not node.duration_ns:
                what = "MEM_LOAD" if node.loads else "MEM_STORE"
                raise ValueError(
                    f"rank {rank}: node {node.id} ({what}) has no duration, and nothing says what "
                    "its memory is: give ASTRA-sim's configuration of remote memory (--memory), or "
                    "workload.memory"
                )
        spent_ns = sum(node.duration_ns for _, node in nodes)
        note = (
            f"{len(nodes)} memory nodes ({moved:,} bytes) are no traffic here: they take their "
            f"recorded durations, {spent_ns // 1000:,} us in all, as computation (workload.memory "
            "puts them on the wire)"
        )
        return tuple(_local(graph, None) for graph in graphs), (note,)
    if not pool:
        note = f"{len(nodes)} memory nodes ({moved:,} bytes) take the time of workload.memory"
        return tuple(_local(graph, memory) for graph in graphs), (note,)
    if not complete:
        raise ValueError("is one rank's: a memory pool serves all ranks, give the PREFIX of them")
    note = (
        f"{len(nodes)} memory nodes ({moved:,} bytes) are messages with {memory.hosts} memory "
        f"hosts, ranks {len(graphs)} to {len(graphs) + memory.hosts - 1}"
    )
    return _Pool(graphs, memory).graphs(), (note,)


def _local(graph: Graph, memory: MemorySpec | None) -> Graph:
    """Accesses of a rank's own tier, beside its device; without one, of their recorded times."""
    return tuple(
        ComputeNode(
            id=node.id,
            name=node.name,
            after=node.after,
            start_ns=node.start_ns,
            duration_ns=node.duration_ns
            if memory is None
            else _service_ns(memory, node.size_bytes),
            memory_bytes=node.size_bytes,
            on_host=memory is not None,
        )
        if isinstance(node, MemoryNode)
        else node
        for node in graph
    )


def _service_ns(memory: MemorySpec, size_bytes: int) -> int:
    return memory.latency_ns + -(-size_bytes * 10**9 // memory.rate_bytes_per_s)


def stripes(size_bytes: int, hosts: int) -> tuple[int, ...]:
    """The bytes of each host's stripe, whole elements and as equal as these are; hosts without an
    element have none."""
    elements = max(-(-size_bytes // _ELEMENT_BYTES), 1)
    share, more = divmod(elements, hosts)
    sizes = (share + (host < more) for host in range(hosts))
    return tuple(size * _ELEMENT_BYTES for size in sizes if size)


class _Pool:
    def __init__(self, graphs: Sequence[Graph], memory: MemorySpec) -> None:
        self._graphs = graphs
        self._memory = memory
        self._hosts: list[list[GraphNode]] = [[] for _ in range(memory.hosts)]

    def graphs(self) -> tuple[Graph, ...]:
        # Accesses that hosts find waiting are served by their place in the ranks' programs.
        places = [
            (place, rank)
            for rank, graph in enumerate(self._graphs)
            for place in range(sum(isinstance(node, MemoryNode) for node in graph))
        ]
        self._turn = {where: turn for turn, where in enumerate(sorted(places))}
        self._served: dict[int, list[tuple[int, int, MemoryNode, int]]] = {}
        ranks = tuple(tuple(self._rank(rank, graph)) for rank, graph in enumerate(self._graphs))
        for turn in sorted(self._served):
            for host, rank, node, size_bytes in self._served[turn]:
                self._serve(host, rank, turn, node, size_bytes)
        idle = (ComputeNode(id=0, name="nothing"),)
        return (*ranks, *(tuple(host) or idle for host in self._hosts))

    def _rank(self, rank: int, graph: Graph) -> Iterator[GraphNode]:
        next_id = max((node.id for node in graph), default=0) + 1
        ends: dict[int, tuple[int, ...]] = {}
        place = 0
        for node in graph:
            if isinstance(node, MemoryNode):
                sizes = stripes(node.size_bytes, self._memory.hosts)
                ends[node.id] = tuple(range(next_id, next_id + 2 * len(sizes)))
                next_id += 2 * len(sizes)
        for node in graph:
            after = tuple(dict.fromkeys(e for p in node.after for e in ends.get(p, (p,))))
            if not isinstance(node, MemoryNode):
                yield replace(node, after=after)
                continue
            turn = self._turn[place, rank]
            place += 1
            ids = iter(ends[node.id])
            for host, size_bytes in enumerate(stripes(node.size_bytes, self._memory.hosts)):
                self._served.setdefault(turn, []).append((host, rank, node, size_bytes))
                there, back = self._sizes(node, size_bytes)
                peer, tag = len(self._graphs) + host, _FIRST_TAG + turn
                for made, id, size in (
                    (SendNode, next(ids), there),
                    (ReceiveNode, next(ids), back),
                ):
                    yield made(
                        id=id,
                        name=f"{node.name}.{host}",
                        after=after,
                        start_ns=node.start_ns,
                        peer=peer,
                        size_bytes=size,
                        tag=tag,
                    )

    def _sizes(self, node: MemoryNode, size_bytes: int) -> tuple[int, int]:
        request = self._memory.request_bytes
        return (request, size_bytes) if node.loads else (size_bytes, request)

    def _serve(self, host: int, rank: int, turn: int, node: MemoryNode, size_bytes: int) -> None:
        nodes = self._hosts[host]
        there, back = self._sizes(node, size_bytes)
        id, tag = len(nodes), _FIRST_TAG + turn
        name = f"{'load' if node.loads else 'store'}.{rank}"
        nodes.append(ReceiveNode(id=id, name=name, peer=rank, size_bytes=there, tag=tag))
        nodes.append(
            ComputeNode(
                id=id + 1,
                name=name,
                after=(id,),
                duration_ns=_service_ns(self._memory, size_bytes),
                memory_bytes=size_bytes,
            )
        )
        nodes.append(
            SendNode(id=id + 2, name=name, after=(id + 1,), peer=rank, size_bytes=back, tag=tag)
        )
