"""The work of every rank as messages alone: when each begins, by the ends of others.

Receivers are ready from the beginning. So a message that waits for a receipt waits for what that
receipt was posted after, too.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from analysis.chakra.expand import expand_all
from analysis.chakra.graph import Graph, GraphNode, ReceiveNode, SendNode
from analysis.chakra.sources.graph_builder import positions


@dataclass(frozen=True, slots=True)
class Message:
    """A message, by its place among all: its two ends, and what must be over before it begins.

    `sent` and `received` are messages whose sending from, or receipt at, its source it waits for;
    `computed_ns` is computation since the last of these, or since the beginning; `measured_ns` is
    its start in a run, 0 where nothing was measured.
    """

    source: int
    destination: int
    size_bytes: int
    sent: tuple[int, ...] = ()
    received: tuple[int, ...] = ()
    computed_ns: int = 0
    measured_ns: int = 0

    @property
    def waits(self) -> bool:
        """Whether it waits for other messages."""
        return bool(self.sent or self.received)


def messages_of(graphs: Sequence[Graph], seed: int = 1) -> list[Message]:
    """All messages of a workload, in the order in which they can begin; a collective is the
    messages of its program, or of Gloo.

    Raises ValueError for what has no messages of ranks (switches take part), and for ranks that
    wait for each other.
    """
    expanded = expand_all(graphs, seed=seed)
    order, numbers = _in_order(expanded)
    known = [_Known(graph, numbers[rank]) for rank, graph in enumerate(expanded)]
    return [known[rank].message(expanded, rank, node) for rank, node in order]


def _in_order(
    graphs: Sequence[Graph],
) -> tuple[list[tuple[int, SendNode]], list[dict[int, int]]]:
    """The sends, each behind those that it waits for; and the number of its message for each
    communication node, by rank."""
    ends: dict[tuple[int, int, int, int], deque[tuple[int, int]]] = defaultdict(deque)
    for rank, graph in enumerate(graphs):
        for node in graph:
            if isinstance(node, ReceiveNode):
                ends[node.peer, rank, node.tag, node.size_bytes].append((rank, node.id))
    receipt: dict[tuple[int, int], tuple[int, int]] = {}
    for rank, graph in enumerate(graphs):
        for node in graph:
            if isinstance(node, SendNode):
                met = ends[rank, node.peer, node.tag, node.size_bytes]
                if not met:
                    raise ValueError(f"rank {rank}, node {node.id}: nobody receives its message")
                receipt[rank, node.id] = met.popleft()
    return _ordered(graphs, receipt)


def _ordered(
    graphs: Sequence[Graph], receipt: Mapping[tuple[int, int], tuple[int, int]]
) -> tuple[list[tuple[int, SendNode]], list[dict[int, int]]]:
    nodes = {(rank, node.id): node for rank, graph in enumerate(graphs) for node in graph}
    followers: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    waits: dict[tuple[int, int], int] = {}
    for place, node in nodes.items():
        before = [(place[0], parent) for parent in dict.fromkeys(node.after)]
        for each in before:
            followers[each].append(place)
        waits[place] = len(before)
    for send, end in receipt.items():
        followers[send].append(end)
        waits[end] += 1
    ready = deque(place for place, count in waits.items() if not count)
    order: list[tuple[int, SendNode]] = []
    numbers: list[dict[int, int]] = [{} for _ in graphs]
    done = 0
    while ready:
        place = ready.popleft()
        done += 1
        node = nodes[place]
        if isinstance(node, SendNode):
            numbers[place[0]][node.id] = len(order)
            rank, id = receipt[place]
            numbers[rank][id] = len(order)
            order.append((place[0], node))
        for each in followers[place]:
            waits[each] -= 1
            if not waits[each]:
                ready.append(each)
    if done < len(nodes):
        (rank, id), _ = next(item for item in waits.items() if item[1])
        raise ValueError(f"rank {rank}, node {id}: waits for ever")
    return order, numbers


class _Known:
    """The messages that are over when the nodes of a rank begin, as bit sets of its communication
    nodes."""

    def __init__(self, graph: Graph, numbers: Mapping[int, int]) -> None:
        self._nodes = {node.id: node for node in graph}
        self._numbers = numbers
        self._ends = [node for node in graph if isinstance(node, SendNode | ReceiveNode)]
        self._bit = {node.id: place for place, node in enumerate(self._ends)}
        self._before: dict[int, int] = {}
        self._sent: dict[int, int] = {}
        self._computed: dict[int, int] = {}
        for node in _parents_first(graph):
            self._add(node)

    def _add(self, node: GraphNode) -> None:
        """Bits of the nodes that it waits for. A send brings all that it waited for itself, and a
        receipt does not, as receivers are ready from the beginning."""
        needed = implied = 0
        computed_ns = 0
        for parent in node.after:
            bit = self._bit.get(parent)
            if bit is None:
                needed |= self._before[parent]
                duration_ns = self._nodes[parent].duration_ns
                computed_ns = max(computed_ns, self._computed[parent] + duration_ns)
                continue
            needed |= 1 << bit
            if isinstance(self._nodes[parent], ReceiveNode):
                needed |= self._before[parent]
        for place in positions(needed):
            end = self._ends[place]
            if isinstance(end, SendNode):
                implied |= self._sent[end.id]
        self._before[node.id] = needed & ~implied
        self._sent[node.id] = needed | implied
        self._computed[node.id] = computed_ns

    def message(self, graphs: Sequence[Graph], rank: int, node: SendNode) -> Message:
        sent: list[int] = []
        received: list[int] = []
        for place in positions(self._before[node.id]):
            end = self._ends[place]
            (sent if isinstance(end, SendNode) else received).append(self._numbers[end.id])
        return Message(
            rank,
            node.peer,
            node.size_bytes,
            tuple(sorted(sent)),
            tuple(sorted(received)),
            self._computed[node.id],
            node.start_ns,
        )


def _parents_first(graph: Graph) -> Iterator[GraphNode]:
    """The nodes of a graph, each behind those that it waits for."""
    nodes = {node.id: node for node in graph}
    done: set[int] = set()
    for node in graph:
        stack = [node]
        while stack:
            left = [nodes[parent] for parent in stack[-1].after if parent not in done]
            if left and stack[-1].id not in done:
                stack += left
                continue
            last = stack.pop()
            if last.id not in done:
                done.add(last.id)
                yield last
