"""The resilient groups of a fabric's nodes: each has one for every place that its routes lead to.

A place is a switch with hosts that have one link, or a host with several; where a graph has routes
of its own, each host. All packets for a place go by one group, however its next hops change, so
that the group can be replaced where it stands.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from topologies.fabrics.fabric import Fabric
from topologies.routing.buckets import Buckets, Shares, filled, replaced
from topologies.spec.routing_section import Resilient

if TYPE_CHECKING:
    from topologies.routing.routes import Routes


class Groups:
    """The groups of routes. Next hops are numbers of links, in their order. `before` are the groups
    that these have replaced; None where they are made."""

    def __init__(self, routes: Routes, settings: Resilient, before: Groups | None = None) -> None:
        self._routes, self._settings, self._before = routes, settings, before
        self._found: dict[tuple[str, str], Buckets | None] = {}

    def place(self, node: str, destination: str) -> str | None:
        """The place to which a node's group leads by which it reaches a host; None where that is by
        a link to the host itself, or the node has no other link."""
        if len(self._routes.fabric.links_of[node]) == 1:
            return None
        place = self._places[destination]
        return None if place == node else place

    def of(self, node: str) -> Iterator[str]:
        """The places to which a node has groups, by which it reaches them or has reached them."""
        if len(self._routes.fabric.links_of[node]) > 1:
            yield from (place for place in dict.fromkeys(self._places.values()) if place != node)

    def shares(self, node: str, place: str) -> Shares:
        """The next hops of a group and their weights; none where the place is out of reach."""
        hops = self._routes.next_hops(node, place)
        weights = self._routes.weights(node, place)
        return tuple((hop.link, weight) for hop, weight in zip(hops, weights, strict=True))

    def buckets(self, node: str, place: str) -> Buckets | None:
        """The link of each bucket of a group; None where the place is out of reach: then there is
        no group, and what leads there again is a new one. Raises UnknownBuckets."""
        key = node, place
        waiting: list[Groups] = []
        groups: Groups | None = self
        while groups is not None and key not in groups._found:
            waiting.append(groups)
            groups = groups._before
        for each in reversed(waiting):
            each._found[key] = each._after(key)
        return self._found[key]

    def towards(self, node: str, destination: str) -> Buckets | None:
        """The link of each bucket by which a node reaches a host; None where it has no group for
        that. Raises UnknownBuckets."""
        place = self.place(node, destination)
        return None if place is None else self.buckets(node, place)

    def all_buckets(self) -> tuple[Buckets | None, ...]:
        """Those of all groups, in one order for all routes of a fabric. Raises UnknownBuckets."""
        nodes = (node.name for node in self._routes.fabric.nodes)
        return tuple(self.buckets(node, place) for node in nodes for place in self.of(node))

    def _after(self, key: tuple[str, str]) -> Buckets | None:
        """The buckets of a group, where those before it are known."""
        shares = self.shares(*key)
        held = None if self._before is None else self._before._found[key]
        if not shares:
            return None
        if held is None or self._before is None:
            return filled(shares, self._settings.buckets)
        if self._before.shares(*key) == shares:
            return held
        return replaced(held, shares, moves_idle=not self._settings.idle_timer_ns)

    @cached_property
    def _places(self) -> dict[str, str]:
        """By host."""
        fabric = self._routes.fabric
        return {host.name: _place(fabric, host.name) for host in fabric.hosts}


def _place(fabric: Fabric, host: str) -> str:
    links, nodes = fabric.links_of[host], fabric.by_name
    if fabric.own_routes or nodes[host].forwards or len(links) != 1:
        return host
    peer = links[0].other(host).node
    return peer if nodes[peer].forwards else host
