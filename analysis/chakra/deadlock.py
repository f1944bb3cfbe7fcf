"""Do ranks that run these graphs come to an end, or wait for each other?

A message is over when both its ends have been started, and a collective when all its members have:
so it is with Gloo, which sends a message when its receiver has posted it. A simulator that takes
sends for done when they begin can run graphs that ranks cannot.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Sequence

from analysis.chakra.collective_order import Order
from analysis.chakra.graph import CollectiveNode, Graph, GraphNode, ReceiveNode, SendNode

_QUOTED = 4
_Place = tuple[int, int]
"""A rank and the id of a node."""


def deadlock_of(graphs: Sequence[Graph], orders: Sequence[Order]) -> str | None:
    """The nodes that wait for each other for ever; None where all ranks come to their ends. The
    ends of messages, and the members of collectives, are there and agree (`summary.problems`);
    `orders` has in which order ranks begin collectives (`collective_orders`)."""
    replay = _Replay(graphs, orders)
    replay.run()
    return replay.circle()


class _Replay:
    """All graphs run with nothing taking time."""

    def __init__(self, graphs: Sequence[Graph], orders: Sequence[Order]) -> None:
        self._nodes: dict[_Place, GraphNode] = {}
        self._waits: Counter[_Place] = Counter()
        self._followers: dict[_Place, list[_Place]] = defaultdict(list)
        # The collectives of a group at a rank, which begin in order.
        self._in_order: dict[tuple[int, tuple[int, ...]], deque[int]] = defaultdict(deque)
        self._begun: dict[object, list[_Place]] = defaultdict(list)
        self._number: Counter[object] = Counter()
        self._ready: set[_Place] = set()
        self._done: set[_Place] = set()
        for rank, graph in enumerate(graphs):
            order = orders[rank]
            for node in sorted(graph, key=lambda each: (order.get(each.id, 0), each.id)):
                place = rank, node.id
                self._nodes[place] = node
                self._waits[place] = len(set(node.after))
                for before in set(node.after):
                    self._followers[rank, before].append(place)
                if isinstance(node, CollectiveNode):
                    self._in_order[rank, node.call.ranks].append(node.id)

    def run(self) -> None:
        """Run as far as it goes."""
        left = deque(place for place in self._nodes if not self._waits[place])
        while left:
            left.extend(self._start(left.popleft()))

    def _start(self, place: _Place) -> list[_Place]:
        """Begin what has nothing to wait for; returns what then has nothing either."""
        rank, node = place[0], self._nodes[place]
        if not isinstance(node, CollectiveNode):
            return self._begin(place, self._meeting(place), 2)
        self._ready.add(place)
        found: list[_Place] = []
        order = self._in_order[rank, node.call.ranks]
        while order and (rank, order[0]) in self._ready:
            first = rank, order.popleft()
            group = node.call.ranks
            self._number[rank, group] += 1
            found += self._begin(first, (group, self._number[rank, group]), len(group))
        return found

    def _meeting(self, place: _Place) -> object:
        """The key that a message's two ends have in common; None for what is over by itself."""
        rank, node = place[0], self._nodes[place]
        if not isinstance(node, SendNode | ReceiveNode):
            return None
        sends = isinstance(node, SendNode)
        ends = (rank, node.peer) if sends else (node.peer, rank)
        key = (*ends, node.tag, node.size_bytes)
        self._number[key, sends] += 1
        return key, self._number[key, sends]

    def _begin(self, place: _Place, meeting: object, members: int) -> list[_Place]:
        if meeting is None:
            return self._finish(place)
        self._begun[meeting].append(place)
        if len(self._begun[meeting]) < members:
            return []
        return [each for member in self._begun[meeting] for each in self._finish(member)]

    def _finish(self, place: _Place) -> list[_Place]:
        self._done.add(place)
        found = []
        for follower in self._followers[place]:
            self._waits[follower] -= 1
            if not self._waits[follower]:
                found.append(follower)
        return found

    def circle(self) -> str | None:
        """The nodes that some of their ends alone have begun, and that the others wait for."""
        stuck = [p for p in self._nodes if p not in self._done and not self._waits[p]]
        if not stuck:
            return None
        said = [self._why(place) for place in stuck[:_QUOTED]]
        more = f"; and {len(stuck) - _QUOTED} more" if len(stuck) > _QUOTED else ""
        return (
            "ranks wait for each other, as a message is sent when its receiver has posted it: "
            + "; ".join(said)
            + more
        )

    def _why(self, place: _Place) -> str:
        rank, node = place[0], self._nodes[place]
        text = f"node {node.id} ({node.name}) of rank {rank}"
        if isinstance(node, CollectiveNode):
            return f"{text} waits for other members of its group"
        if not isinstance(node, SendNode | ReceiveNode):
            return f"{text} waits"
        other = ReceiveNode if isinstance(node, SendNode) else SendNode
        for each, peer in self._nodes.items():
            if each[0] != node.peer or each in self._done or not isinstance(peer, other):
                continue
            same = (peer.peer, peer.tag, peer.size_bytes) == (rank, node.tag, node.size_bytes)
            if same and self._waits[each]:
                before = min(id for id in peer.after if (each[0], id) not in self._done)
                kind = "receive" if other is ReceiveNode else "send"
                return (
                    f"{text} waits for the {kind} of rank {node.peer}, node {peer.id}, "
                    f"which waits for node {before} there"
                )
        return f"{text} waits for rank {node.peer}"
