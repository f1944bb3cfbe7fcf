"""The fabric: nodes, ports and links as immutable data, independent of any kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from ipaddress import IPv4Address
from typing import TYPE_CHECKING

from topologies.spec.queue_section import QueueSpec
from topologies.spec.routing_section import BY_HASH, NextHopChoice

if TYPE_CHECKING:
    import networkx as nx

L1_OVERHEAD_BYTES = 24
"""Preamble and start delimiter 8, FCS 4, inter-packet gap 12 (IEEE 802.3): what a frame takes on
the wire beyond what Linux counts."""
PAUSE_FRAME_WIRE_BYTES = 84
"""A 64-byte frame with preamble and gap."""
_ETHERNET_HEADER_BYTES = 14


class NodeKind(Enum):
    """The purpose of a node. Hosts run ranks; in a torus they forward as well."""

    HOST = "host"
    SWITCH = "switch"


@dataclass(frozen=True, slots=True)
class Node:
    """A host or a switch. `layer` is 0 for hosts and grows away from them; `coordinates` are the
    builder's own (pod and position in a fat-tree, axes in a torus). Every node has one address,
    which all its ports carry as a /32 (unnumbered links)."""

    name: str
    kind: NodeKind
    address: IPv4Address
    forwards: bool
    layer: int
    coordinates: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Port:
    """One end of a link: an interface of a node, with the queue at its egress."""

    node: str
    interface: str
    mac: str
    queue: QueueSpec


@dataclass(frozen=True, slots=True)
class Link:
    """A full-duplex link. Rate (L1, so preamble and gap included), delay and MTU hold for each
    direction."""

    index: int
    a: Port
    b: Port
    rate_bps: int
    delay_ns: int
    mtu_bytes: int
    link_class: str

    @property
    def frame_bytes(self) -> int:
        """The largest frame, as Linux counts it."""
        return self.mtu_bytes + _ETHERNET_HEADER_BYTES

    def other(self, node: str) -> Port:
        """The far end, seen from `node`. Raises KeyError when the link does not touch it."""
        if node == self.a.node:
            return self.b
        if node == self.b.node:
            return self.a
        raise KeyError(f"link {self.index} does not touch {node}")

    def port(self, node: str) -> Port:
        """The port of this link at `node`. Raises KeyError when the link does not touch it."""
        return self.other(self.other(node).node)


def headroom_bytes(link: Link) -> int:
    """The bytes that may still arrive at an ingress after its XOFF was passed (IEEE 802.1Q annex N,
    with no response time at the sender): the frame that passed it; a frame that the pause frame has
    to wait for, the pause frame itself, its propagation, the frame that the sender had begun, and
    what was on the wire: 2 * rate * delay + 3 frames + one pause frame."""
    frame = link.frame_bytes
    on_the_wire = -(-2 * link.rate_bps * link.delay_ns // (8 * 10**9))
    return on_the_wire + 3 * frame + PAUSE_FRAME_WIRE_BYTES


@dataclass(frozen=True)
class Fabric:
    """A validated fabric. Hosts stand in rank order of a linear placement, links by index."""

    kind: str
    nodes: tuple[Node, ...]
    links: tuple[Link, ...]
    routing: str
    link_costs: Mapping[str, int] = field(default_factory=dict)
    """The cost of a hop for routing, by link class; 1 where nothing is said."""
    cheapest_first: bool = False
    """Whether of equally cheap ways those are taken that begin with the cheapest link."""
    own_routes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Node -> host -> the neighbour that is taken towards it, whatever is shortest."""
    choice: NextHopChoice = BY_HASH
    """How one of several next hops is chosen."""
    copied_class: str | None = None
    """The class of links over which messages of programs go as copies of memory
    (`topologies.fabrics.copies`); None where all that is sent is packets."""

    @cached_property
    def hosts(self) -> tuple[Node, ...]:
        return tuple(n for n in self.nodes if n.kind is NodeKind.HOST)

    @cached_property
    def switches(self) -> tuple[Node, ...]:
        return tuple(n for n in self.nodes if n.kind is NodeKind.SWITCH)

    @cached_property
    def routers(self) -> tuple[Node, ...]:
        """The switches; of a grid, which has none, its hosts, as these forward."""
        return self.switches or tuple(n for n in self.nodes if n.forwards)

    @cached_property
    def by_name(self) -> dict[str, Node]:
        return {n.name: n for n in self.nodes}

    @cached_property
    def links_of(self) -> dict[str, tuple[Link, ...]]:
        """Node name -> its links, in order of index."""
        found: dict[str, list[Link]] = {n.name: [] for n in self.nodes}
        for link in self.links:
            found[link.a.node].append(link)
            found[link.b.node].append(link)
        return {name: tuple(links) for name, links in found.items()}

    @cached_property
    def graph(self) -> nx.MultiGraph[str]:
        """Nodes by name; an edge per link, keyed by its index."""
        import networkx as nx  # of what a guest imports before its ranks start it is a quarter

        graph: nx.MultiGraph[str] = nx.MultiGraph()
        graph.add_nodes_from(n.name for n in self.nodes)
        for link in self.links:
            graph.add_edge(link.a.node, link.b.node, key=link.index)
        return graph
