"""Paths as lists of micro-segments (SRv6 uSID): which nodes have which, and what a host writes.

A list is one IPv6 address, its carrier: the locator block of 32 bits, then a micro-segment of 16
bits for each node on the way (format F3216 of RFC 9800). A switch takes its own off the front, and
sends the packet to the node whose micro-segment is then in front.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv6Address, IPv6Network

from topologies.fabrics.fabric import Fabric
from topologies.routing.routes import Path, Routes
from topologies.spec.routing_section import Srv6

BLOCK_BITS, SEGMENT_BITS = 32, 16
MOST_SEGMENTS = (128 - BLOCK_BITS) // SEGMENT_BITS
"""Micro-segments of one carrier: a switch each, and the host at the end."""
OUTER_BYTES = 40
"""The outer header of a packet (RFC 8200). A list of one carrier needs no segment routing header
(H.Encaps.Red of RFC 8986)."""
LINUX_RESERVES_BYTES = 64
"""The bytes that Linux keeps free of a route's MTU for a list of one carrier: it counts the segment
routing header, of 24, that it then leaves out (seg6_lwt_headroom in net/ipv6/seg6_iptunnel.c)."""
LEAST_MTU_BYTES = 1280
"""IPv6 leaves a device alone whose MTU is less (RFC 8200 section 5)."""
_MOST_NODES = (1 << SEGMENT_BITS) - 1


class Segments:
    """The micro-segments of a fabric's nodes, in its order from 1 on, and hosts' lists of them."""

    def __init__(self, routes: Routes) -> None:
        choice = routes.fabric.choice
        if not isinstance(choice, Srv6):
            raise ValueError(f"routing {choice.kind} has no segments")
        self._routes = routes
        self._block = int(IPv6Network(choice.block).network_address)
        self._numbers = {node.name: i for i, node in enumerate(routes.fabric.nodes, 1)}
        self._onward: dict[tuple[str, str], tuple[Path, ...]] = {}

    def locator(self, node: str) -> IPv6Network:
        """The prefix of what is for a node next. Raises KeyError."""
        number = self._numbers[node] << 128 - BLOCK_BITS - SEGMENT_BITS
        return IPv6Network((self._block | number, BLOCK_BITS + SEGMENT_BITS))

    def address(self, node: str) -> IPv6Address:
        """A node's own address, from which it sends; nothing is sent to it."""
        return IPv6Address(int(self.locator(node).network_address) | 1)

    def paths(self, source: str, destination: str) -> tuple[Path, ...]:
        """All shortest paths between two hosts, in the order in which the source's route has them:
        that of link indices, hop by hop. None where there is no way."""
        key = source, destination
        if key not in self._onward:
            if source == destination:
                return ((),)
            hops = self._routes.next_hops(source, destination)
            self._onward[key] = tuple(
                (hop, *rest) for hop in hops for rest in self.paths(hop.node, destination)
            )
        return self._onward[key]

    def carrier(self, path: Path) -> IPv6Address:
        """The destination that the source writes for a path. Raises ValueError for one with more
        nodes than a carrier has room for."""
        if len(path) > MOST_SEGMENTS:
            raise ValueError(f"{len(path)} micro-segments, of at most {MOST_SEGMENTS}")
        found = self._block
        for place, hop in enumerate(path, 1):
            found |= self._numbers[hop.node] << 128 - BLOCK_BITS - SEGMENT_BITS * place
        return IPv6Address(found)


@lru_cache(maxsize=16)
def segments_of(routes: Routes) -> Segments:
    """The segments of routes, shared by all who ask. Raises ValueError where the routing has
    none."""
    return Segments(routes)


def outer_bytes(fabric: Fabric) -> int:
    """The bytes that each packet of TCP has more on the fabric's links than its hosts send."""
    return OUTER_BYTES if isinstance(fabric.choice, Srv6) else 0


def too_many_nodes(fabric: Fabric) -> bool:
    """Whether there are more nodes than micro-segments."""
    return len(fabric.nodes) > _MOST_NODES
