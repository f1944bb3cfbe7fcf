"""The physical limit of a collective: how long its bytes take on the narrowest cut they must cross.

Every algorithm has to move this much, whatever its messages look like; latency is left out. Three
kinds of cut are looked at: each member host from the rest (its own ports), the hosts below a layer
of switches from all others (those of a leaf, a pod or a server), and the half of the hosts with the
lower ranks from the other half (the bisection).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import networkx as nx

from analysis.predict.carrier import Carrier
from analysis.predict.engines.wire import goodput_bps
from analysis.runs.collectives import MeasuredCollective
from collectives.kinds import Kind, bus_factor, least_crossing_share
from topologies.fabrics.fabric import Fabric, Link
from topologies.routing.segments import outer_bytes

_LARGEST_FLOW_GRAPH = 2000


@dataclass(frozen=True, slots=True)
class _Group:
    """Hosts that reach each other without the switches of a layer or above it, and the goodput of
    all links up to those, in one direction."""

    hosts: frozenset[str]
    up_bps: float


class PhysicalLimit:
    """Limits of the collectives of one fabric and placement (`hosts[rank]` runs that rank)."""

    def __init__(
        self, fabric: Fabric, hosts: Sequence[str], carrier: Carrier | None = None
    ) -> None:
        """With a carrier the collectives' messages go by that."""
        self._fabric = fabric
        self._carrier = carrier
        self._hosts = tuple(hosts)
        self._crossing: dict[tuple[int, ...], float | None] = {}

    def duration_ns(self, collective: MeasuredCollective) -> float:
        """Lower bound of the duration in nanoseconds of the target fabric; 0 when nothing moves."""
        ranks = collective.ranks
        if len(ranks) < 2 or not collective.size_bytes:
            return 0.0
        narrowest = min(self._host_bps[self._hosts[rank]] for rank in ranks)
        bits = 8.0 * collective.size_bytes
        kind = Kind(collective.kind)
        if kind is Kind.INCAST:
            host_bits = bits * (collective.degree or len(ranks) - 1)
        else:
            host_bits = bits * bus_factor(kind, len(ranks))
        limit = host_bits / narrowest
        for group in self._groups:
            inside = sum(self._hosts[rank] in group.hosts for rank in ranks)
            outside = len(ranks) - inside
            share = max(least_crossing_share(kind, n, len(ranks)) for n in (inside, outside))
            limit = max(limit, bits * float(share) / group.up_bps)
        crossing_bps = self.bisection_bps(ranks)
        if crossing_bps:
            share = least_crossing_share(kind, len(ranks) // 2, len(ranks))
            limit = max(limit, bits * float(share) / crossing_bps)
        return limit * 1e9

    def bisection_bps(self, ranks: Sequence[int]) -> float | None:
        """Goodput from the lower half of these ranks to the upper half with every path used
        (maximum flow; one direction), None for fabrics too large to solve in passing."""
        key = tuple(ranks)
        if key not in self._crossing:
            self._crossing[key] = self._maximum_flow(key)
        return self._crossing[key]

    def _goodput_bps(self, link: Link) -> float:
        if self._carrier is not None:
            wire = self._carrier.wire(link.mtu_bytes, outer_bytes(self._fabric))
            return wire.goodput_bps(link.rate_bps)
        return goodput_bps(link.rate_bps, link.mtu_bytes, outer_bytes(self._fabric))

    @cached_property
    def _host_bps(self) -> dict[str, float]:
        return {
            host.name: sum(self._goodput_bps(link) for link in self._fabric.links_of[host.name])
            for host in self._fabric.hosts
        }

    @cached_property
    def _groups(self) -> tuple[_Group, ...]:
        return tuple(self._found_groups())

    def _found_groups(self) -> Iterator[_Group]:
        layer_of = {node.name: node.layer for node in self._fabric.by_name.values()}
        hosts = {host.name for host in self._fabric.hosts}
        for layer in sorted({*layer_of.values()} - {0}):
            below: nx.Graph[str] = nx.Graph()
            below.add_nodes_from(name for name, found in layer_of.items() if found < layer)
            up_bps = dict.fromkeys(below, 0.0)
            for link in self._fabric.links:
                inside = [end for end in (link.a.node, link.b.node) if end in below]
                if len(inside) == 2:
                    below.add_edge(*inside)
                elif inside:
                    up_bps[inside[0]] += self._goodput_bps(link)
            for joined in nx.connected_components(below):
                members = frozenset(joined & hosts)
                rate_bps = sum(up_bps[name] for name in joined)
                if members and rate_bps:
                    yield _Group(members, rate_bps)

    def _maximum_flow(self, ranks: tuple[int, ...]) -> float | None:
        if len(self._fabric.links) > _LARGEST_FLOW_GRAPH or len(ranks) < 2:
            return None
        half = len(ranks) // 2
        lower = {self._hosts[rank] for rank in ranks[:half]}
        upper = {self._hosts[rank] for rank in ranks[half:]} - lower
        if not lower or not upper:
            return None
        graph: nx.DiGraph[str] = nx.DiGraph()
        for link in self._fabric.links:
            rate = self._goodput_bps(link)
            for a, b in ((link.a.node, link.b.node), (link.b.node, link.a.node)):
                before = graph.edges[a, b]["capacity"] if graph.has_edge(a, b) else 0.0
                graph.add_edge(a, b, capacity=before + rate)
        # Edges without a capacity are unlimited.
        graph.add_edges_from(("lower half", host) for host in lower)
        graph.add_edges_from((host, "upper half") for host in upper)
        return float(nx.maximum_flow_value(graph, "lower half", "upper half"))
