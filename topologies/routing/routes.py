"""Routes: the next hops of every node towards every host, and kernel tables that hold them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from ipaddress import IPv4Network
from math import gcd

from topologies.fabrics.fabric import Fabric
from topologies.routing.groups import Groups
from topologies.routing.prefix_table import FABRIC_NETWORK, AddressTrie
from topologies.spec.routing_section import Weighted, resilient_of


@dataclass(frozen=True, slots=True)
class NextHop:
    """Out of `interface`, over the link with index `link`, to the neighbour `node`."""

    interface: str
    link: int
    node: str


@dataclass(frozen=True, slots=True)
class Route:
    """A prefix and its next hops, with their weights; all equal where there are none. No next hops:
    unreachable (links are down). `place` is that of the resilient group that has them, if any."""

    prefix: IPv4Network
    next_hops: tuple[NextHop, ...]
    weights: tuple[int, ...] = ()
    place: str | None = None


Path = tuple[NextHop, ...]

MAX_WEIGHT = 256
"""The kernel has a byte for a weight less one (rtnh_hops of linux/rtnetlink.h)."""
_UNBOUNDED_BPS = 1 << 62


def compute_routes(
    fabric: Fabric, down: Collection[int] = (), before: Routes | None = None
) -> Routes:
    """Routes of a fabric towards its hosts, without the links whose indices are `down`. Those that
    they replace (`before`) matter to resilient groups alone, which keep what they can of them.

    `ecmp`: all next hops on shortest paths (by hops; nodes that do not forward are no transit).
    Where link classes differ in cost (`Fabric.link_costs`), shortest is cheapest. With
    `Fabric.cheapest_first`, of equals those are taken that begin with the cheapest link.
    `static`: one of them. With n to choose from, layer L takes number (host index // n^(L-1)) mod
    n, which on a fat-tree is D-mod-k routing (Zahavi et al., Optimized InfiniBand fat-tree routing
    for shift all-to-all communication patterns, CCPE 2010).
    `dimension-order`: a grid's axes one after the other; on a torus each in the shorter direction;
    half-way round, up from an even coordinate and down from an odd one, so that both directions get
    as much. A mesh is free of deadlock so, also when queues are lossless. Dimension order alone
    does not make wrap-around rings free of it: the ring of one axis is a cycle of buffers (Dally
    and Seitz 1987 break it by virtual channels, which these queues do not have). With links down
    it has no detour, so then the grid takes `static` shortest paths.

    `Fabric.own_routes` go before all of these, where their link is not down. With the choice
    `weighted`, next hops have weights by what can be sent by way of them.
    """
    return Routes(fabric, frozenset(down), before)


class Routes:
    """See `compute_routes`. Next hops are in order of link index."""

    def __init__(
        self, fabric: Fabric, down: frozenset[int] = frozenset(), before: Routes | None = None
    ) -> None:
        self.fabric = fabric
        self.down = down
        settings = resilient_of(fabric.choice)
        self.groups: Groups | None = None
        """The resilient groups of nodes; None where they have none."""
        if settings is not None:
            self.groups = Groups(self, settings, None if before is None else before.groups)
        self.mode = fabric.routing
        if self.mode == "dimension-order" and down:
            self.mode = "static"
        costs = fabric.link_costs
        self._cost = [costs.get(link.link_class, 1) for link in fabric.links]
        self._hops: dict[str, dict[int, NextHop]] = {}
        self._neighbours: dict[str, list[tuple[str, int]]] = {}
        for name, links in fabric.links_of.items():
            alive = [link for link in links if link.index not in down]
            self._neighbours[name] = [(link.other(name).node, link.index) for link in alive]
            self._hops[name] = {
                link.index: NextHop(link.port(name).interface, link.index, link.other(name).node)
                for link in alive
            }
        self._host_index = {host.name: i for i, host in enumerate(fabric.hosts)}
        self._root = {host.name: self._attachment(host.name) for host in fabric.hosts}
        self._distances: dict[str, dict[str, int]] = {}
        self._towards: dict[tuple[str, str], tuple[int, ...]] = {}
        self._capacities: dict[tuple[str, str], int] = {}

    def next_hops(self, node: str, destination: str) -> tuple[NextHop, ...]:
        """Next hops from a node towards a host, or towards a switch by any shortest way; none when
        it is there already, or unreachable. Kernel tables lead to hosts, and to switches that
        aggregate from those next to them.

        Raises KeyError for an unknown node.
        """
        hops = self._hops[node]
        return tuple(hops[link] for link in self._links(node, destination))

    def neighbours(self, node: str) -> tuple[NextHop, ...]:
        """Next hops over all links of a node that are not down. Raises KeyError for an unknown
        node."""
        return tuple(self._hops[node].values())

    def weights(self, node: str, destination: str) -> tuple[int, ...]:
        """The weights of `next_hops`, in the same order: all 1 unless they are weighted, and then
        in the ratio of what can be sent by way of each, from 1 to `MAX_WEIGHT`.

        The rate at which a node can send on is shared by the links that lead to it (WCMP: Zhou et
        al., EuroSys 2014).
        """
        return self._weights(node, destination, self._links(node, destination))

    def portions(self, node: str, destination: str) -> tuple[int, ...]:
        """In which ratio flows are hashed to `next_hops`, in the same order: by their weights or,
        of a resilient group, by how many buckets each has. Raises UnknownBuckets."""
        buckets = None if self.groups is None else self.groups.towards(node, destination)
        if buckets is None:
            return self.weights(node, destination)
        counts = Counter(buckets)
        return tuple(counts[link] for link in self._links(node, destination))

    def _weights(self, node: str, destination: str, links: tuple[int, ...]) -> tuple[int, ...]:
        if not isinstance(self.fabric.choice, Weighted) or len(links) < 2:
            return (1,) * len(links)
        able = [self._capacity_by(node, link, destination) for link in links]
        divisor, most = gcd(*able), max(able)
        if most // divisor > MAX_WEIGHT:
            able = [max(1, round(each * MAX_WEIGHT / most)) for each in able]
            divisor = gcd(*able)
        return tuple(each // divisor for each in able)

    def _capacity_by(self, node: str, link: int, destination: str) -> int:
        """A link's part of what its far end can send on, in bits/s, and no more than its rate."""
        peer, rate_bps = self._hops[node][link].node, self.fabric.links[link].rate_bps
        onward_bps = self._capacity(peer, destination)
        if onward_bps >= _UNBOUNDED_BPS:
            return rate_bps
        arriving_bps = sum(
            self.fabric.links[each].rate_bps
            for other, each in self._neighbours[peer]
            if each in self._links(other, destination)
        )
        return rate_bps * min(arriving_bps, onward_bps) // arriving_bps

    def _capacity(self, node: str, destination: str) -> int:
        """The rate of a node towards a host, or the switch on which it hangs, in bits/s."""
        root = self._root.get(destination, destination)
        if node in (destination, root):
            return _UNBOUNDED_BPS
        key = node, root
        if key not in self._capacities:
            links = self._links(node, destination)
            self._capacities[key] = sum(
                self._capacity_by(node, link, destination) for link in links
            )
        return self._capacities[key]

    def paths(self, source: str, destination: str) -> tuple[Path, ...]:
        """Every path that packets from a node to a host may take, as the hops in order.

        Their number can grow exponentially with a torus's size under ECMP: see `path_count`.
        """
        if source == destination:
            return ((),)
        return tuple(
            (hop, *rest)
            for hop in self.next_hops(source, destination)
            for rest in self.paths(hop.node, destination)
        )

    def path_count(self, source: str, destination: str) -> int:
        """The number of `paths`, without listing them."""
        counts = {destination: 1}

        def count(node: str) -> int:
            if node not in counts:
                counts[node] = sum(count(hop.node) for hop in self.next_hops(node, destination))
            return counts[node]

        return count(source)

    @cached_property
    def tables(self) -> Mapping[str, tuple[Route, ...]]:
        """For each node, few prefixes whose longest match is `next_hops` for every host's address.

        Addresses that no host has (the switches' own among them) may match anything. A node with
        one link sends everything over it.
        """
        hosts = [host.name for host in self.fabric.hosts]
        every_address = AddressTrie([host.address for host in self.fabric.hosts])
        # All nodes but one reach the hosts behind a switch in the same way under ECMP.
        by_switch = every_address
        if self.mode == "ecmp" and not self.fabric.own_routes:
            by_switch = every_address.merged([self._root[host] for host in hosts])
        roots = set(self._root.values())
        tables: dict[str, tuple[Route, ...]] = {}
        for name, hops in self._hops.items():
            if len(self.fabric.links_of[name]) == 1:
                tables[name] = (Route(FABRIC_NETWORK, tuple(hops.values())),)
            else:
                trie = every_address if name in roots else by_switch
                tables[name] = self._table(name, trie, hosts)
        return tables

    def _table(self, node: str, trie: AddressTrie, hosts: list[str]) -> tuple[Route, ...]:
        labels: dict[tuple[tuple[int, ...], tuple[int, ...], str | None], int] = {}
        is_weighted, groups = isinstance(self.fabric.choice, Weighted), self.groups

        def label_of(index: int) -> int | None:
            if hosts[index] == node:
                return None
            links = self._links(node, hosts[index])
            weights = self._weights(node, hosts[index], links) if is_weighted else ()
            place = None if groups is None or not links else groups.place(node, hosts[index])
            return labels.setdefault((links, weights, place), len(labels))

        rows = trie.aggregate(label_of)
        hops = self._hops[node]
        choices = [
            (tuple(hops[link] for link in links), weights, place)
            for links, weights, place in labels
        ]
        return tuple(Route(prefix, *choices[label]) for prefix, label in rows)

    @cached_property
    def strides(self) -> Mapping[int, int]:
        """Layer -> the stride of its switches' digit of a packet's number, with the choice
        `source`: the product of how many next hops a switch of each layer below has at most."""
        if self.down:
            return compute_routes(self.fabric).strides
        most: dict[int, int] = {}
        for name, routes in self.tables.items():
            layer = self.fabric.by_name[name].layer
            most[layer] = max([most.get(layer, 1), *(len(route.next_hops) for route in routes)])
        found, stride = {}, 1
        for layer in sorted(most):
            found[layer] = stride
            stride *= most[layer]
        return found

    def _attachment(self, host: str) -> str:
        """The switch on which a host with one link hangs, else the host itself."""
        around = self._neighbours[host]
        if self.fabric.by_name[host].forwards or len(around) != 1:
            return host
        switch = around[0][0]
        return switch if self.fabric.by_name[switch].forwards else host

    def _links(self, node: str, destination: str) -> tuple[int, ...]:
        if node == destination:
            return ()
        if destination not in self._root:
            return self._nearer(node, self.fabric.by_name[destination].name)
        if self.mode == "dimension-order":
            return self._in_dimension_order(node, destination)
        own = self.fabric.own_routes.get(node, {}).get(destination)
        if own is not None:
            links = tuple(link for peer, link in self._neighbours[node] if peer == own)
            if links:
                return links
        root = self._root[destination]
        if node == root:
            links = tuple(link for peer, link in self._neighbours[node] if peer == destination)
        else:
            links = self._nearer(node, root)
        if self.mode == "static" and len(links) > 1:
            layer = self.fabric.by_name[node].layer
            index = self._host_index[destination] // len(links) ** max(layer - 1, 0)
            links = (links[index % len(links)],)
        return links

    def _nearer(self, node: str, root: str) -> tuple[int, ...]:
        """Links of `node` with which a cheapest way to `root` begins; the cheapest of them."""
        links = self._towards.get((node, root))
        if links is None:
            distances = self._distances.get(root)
            if distances is None:
                distances = self._distances[root] = self._distances_to(root)
            nodes = self.fabric.by_name
            left, cost = distances.get(node, 0), self._cost
            links = tuple(
                link
                for peer, link in self._neighbours[node]
                if distances.get(peer, left) + cost[link] == left
                and (peer == root or nodes[peer].forwards)
            )
            if self.fabric.cheapest_first and links:
                least = min(cost[link] for link in links)
                links = tuple(link for link in links if cost[link] == least)
            self._towards[node, root] = links
        return links

    def _distances_to(self, root: str) -> dict[str, int]:
        distances: dict[str, int] = {}
        nodes, cost = self.fabric.by_name, self._cost
        # A bucket for each distance: costs are small whole numbers.
        pending: dict[int, list[str]] = {0: [root]}
        while pending:
            here = min(pending)
            for node in pending.pop(here):
                if node in distances:
                    continue
                distances[node] = here
                if node == root or nodes[node].forwards:
                    for peer, link in self._neighbours[node]:
                        if peer not in distances:
                            pending.setdefault(here + cost[link], []).append(peer)
        return distances

    @cached_property
    def _steps(self) -> tuple[tuple[tuple[int, ...], ...], ...]:
        """Direction (1 or -1) by axis, place on it, and distance ahead (round the ring)."""
        places = [host.coordinates for host in self.fabric.hosts]
        direction = _on_a_ring if self.fabric.kind == "torus" else _on_a_line
        return tuple(
            tuple(
                tuple(direction(here, ahead, max(axis) + 1) for ahead in range(max(axis) + 1))
                for here in range(max(axis) + 1)
            )
            for axis in zip(*places, strict=True)
        )

    @cached_property
    def _grid_links(self) -> dict[str, dict[tuple[int, int], tuple[int, ...]]]:
        """Node -> (axis, direction) -> its link that way."""
        found: dict[str, dict[tuple[int, int], tuple[int, ...]]] = {}
        for name, around in self._neighbours.items():
            here = self.fabric.by_name[name].coordinates
            mine = found[name] = {}
            for peer, link in around:
                there = self.fabric.by_name[peer].coordinates
                axis = next(i for i, (a, b) in enumerate(zip(here, there, strict=True)) if a != b)
                length = len(self._steps[axis])
                for step in (1, -1):
                    if (here[axis] + step) % length == there[axis]:
                        mine[axis, step] = (link,)
        return found

    def _in_dimension_order(self, node: str, destination: str) -> tuple[int, ...]:
        here = self.fabric.by_name[node].coordinates
        there = self.fabric.by_name[destination].coordinates
        axis = 0
        while here[axis] == there[axis]:
            axis += 1
        steps = self._steps[axis][here[axis]]
        return self._grid_links[node][axis, steps[(there[axis] - here[axis]) % len(steps)]]


def _on_a_line(here: int, ahead: int, length: int) -> int:
    return 1 if here + ahead < length else -1


def _on_a_ring(here: int, ahead: int, length: int) -> int:
    if 2 * ahead == length:
        return 1 if here % 2 == 0 else -1
    return 1 if 2 * ahead < length else -1
