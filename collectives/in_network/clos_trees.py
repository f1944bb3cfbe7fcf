"""Trees of groups on switches of reducing microswitches: which of them can aggregate at once.

Each tree is flows through its switches (`clos`): at the root, one that is reduced and copied; at
others one that is reduced on the way up, and one that is copied on the way down. A link between
switches has a lane for each host that is below it, and a group has a lane of its own, the same at
both ends.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from collectives.in_network.clos import Conflict, Flow, route
from topologies.aggregation_tree import AggregationTree
from topologies.fabrics.fabric import Fabric, Link, NodeKind


class ClosSwitches:
    """The switches of a fabric as FRED_m, and the trees that have been routed through them."""

    def __init__(self, fabric: Fabric, middles: int) -> None:
        self._fabric = fabric
        self._middles = middles
        self._flows: defaultdict[str, tuple[Flow, ...]] = defaultdict(tuple)
        self._lanes: defaultdict[int, int] = defaultdict(int)

    def add(self, name: str, hosts: Sequence[str], tree: AggregationTree) -> str:
        """Route one more tree, over these hosts; why it cannot go with the others, or nothing."""
        names = (*hosts, *tree.switches)
        ports: dict[tuple[str, str], int] = {}
        lanes = dict(self._lanes)
        for child, parent in enumerate(tree.parents):
            if parent < 0:
                continue
            link = self._link(names[child], names[parent])
            lane = lanes.get(link.index, 0)
            if lane == self._width(link):
                return f"{name}: all {lane} lanes of {link.a.node}-{link.b.node} are others'"
            lanes[link.index] = lane + 1
            for end in (link.a.node, link.b.node):
                ports[end, link.other(end).node] = self._first_port(end, link) + lane
        found = {}
        for place, switch in enumerate(tree.switches):
            participant = len(hosts) + place
            below = frozenset(
                ports[switch, names[child]]
                for child, parent in enumerate(tree.parents)
                if parent == participant
            )
            above = tree.parents[participant]
            flows = self._flows[switch]
            if above < 0:
                flows += (Flow(name, below, below),)
            else:
                up = frozenset({ports[switch, names[above]]})
                flows += (Flow(f"{name} up", below, up), Flow(f"{name} down", up, below))
            try:
                route(self._ports(switch), self._middles, flows)
            except Conflict as conflict:
                return f"conflict in {switch}: {conflict}"
            found[switch] = flows
        self._flows.update(found)
        self._lanes.update(lanes)
        return ""

    def _link(self, one: str, other: str) -> Link:
        return next(link for link in self._fabric.links_of[one] if link.other(one).node == other)

    def _hosts_at(self, node: str) -> int:
        around = (link.other(node).node for link in self._fabric.links_of[node])
        return sum(self._fabric.by_name[name].kind is NodeKind.HOST for name in around)

    def _width(self, link: Link) -> int:
        """Lanes of a link."""
        ends = (link.a.node, link.b.node)
        if any(self._fabric.by_name[end].kind is NodeKind.HOST for end in ends):
            return 1
        return max(1, *(self._hosts_at(end) for end in ends))

    def _first_port(self, switch: str, link: Link) -> int:
        first = 0
        for each in self._fabric.links_of[switch]:
            if each.index == link.index:
                return first
            first += self._width(each)
        raise AssertionError("a link is among those of its ends")

    def _ports(self, switch: str) -> int:
        return sum(self._width(link) for link in self._fabric.links_of[switch])
