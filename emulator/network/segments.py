"""Segment routing over IPv6 on a fabric: what its nodes are asked for beside the usual."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from ipaddress import IPv6Address

from emulator.linux import rtnetlink
from emulator.linux.netlink import Request
from emulator.linux.rtnetlink import Hop, Metrics
from emulator.ports.arrangement import PortContext
from topologies.routing.routes import Path, Routes
from topologies.routing.segments import (
    BLOCK_BITS,
    LINUX_RESERVES_BYTES,
    OUTER_BYTES,
    segments_of,
)

_LOOPBACK = 1
_FAR_END = IPv6Address("fe80::1")
"""The neighbour at the far end of any link: it is named for good, and nobody else is there."""

SYSCTLS = (
    ("ipv6/conf/all/disable_ipv6", "0"),
    ("ipv6/conf/default/disable_ipv6", "0"),
    # Interfaces have no addresses of their own, look for no double ones, and ask no routers: their
    # packets would be on the wire.
    ("ipv6/conf/default/addr_gen_mode", "1"),
    ("ipv6/conf/default/accept_dad", "0"),
    ("ipv6/conf/default/accept_ra", "0"),
    ("ipv6/conf/default/router_solicitations", "0"),
)
"""The sysctls of all nodes, set before they have interfaces."""

FORWARDING = (
    ("ipv6/conf/all/forwarding", "1"),
    # An interface that forwards would join the group of all routers, and say so on the wire; what
    # is forwarded goes by the switch for all of them.
    ("ipv6/conf/default/forwarding", "0"),
)
"""Those of nodes that forward, too."""


class SegmentNode:
    """A node of a fabric with segments. `ports` are its own, by link; `metrics` are those of a
    host's routes."""

    def __init__(
        self, node: str, routes: Routes, ports: Sequence[PortContext], metrics: Metrics
    ) -> None:
        self._node = routes.fabric.by_name[node]
        self._ports = ports
        smallest = min(link.mtu_bytes for link in routes.fabric.links)
        # A packet and the outer header fill the smallest link.
        mtu_bytes = smallest - OUTER_BYTES + LINUX_RESERVES_BYTES
        self._metrics = replace(metrics, mtu_bytes=mtu_bytes)

    def requests(self, routes: Routes) -> list[Request]:
        """All that it is asked for once its links have carriers."""
        requests = [each for port in self._ports for each in self.of_port(port, routes)]
        requests += self.own(routes)
        if not self._node.forwards:
            own = segments_of(routes).address(self._node.name)
            requests.append(rtnetlink.address6(_LOOPBACK, own))
        requests += self.to_hosts(routes)
        return requests

    def of_port(self, port: PortContext, routes: Routes) -> tuple[Request, Request]:
        """The neighbour at a port, and the route to its micro-segment."""
        far = port.link.other(self._node.name)
        locator = segments_of(routes).locator(far.node)
        return (
            rtnetlink.neighbour6(port.ifindex, _FAR_END, far.mac, port.port.interface),
            rtnetlink.route6(locator, port.ifindex, _FAR_END),
        )

    def own(self, routes: Routes, down: frozenset[int] = frozenset()) -> list[Request]:
        """The behaviour of its own micro-segment. Linux keeps that with one of its interfaces, and
        forgets it with this: that of a link that is not `down`."""
        up = [port.ifindex for port in self._ports if port.link.index not in down]
        locator = segments_of(routes).locator(self._node.name)
        if not up:
            return []
        if self._node.forwards:
            return [rtnetlink.segment_of_switch(locator, up[0], BLOCK_BITS)]
        return [rtnetlink.segment_of_host(locator, up[0])]

    def to_hosts(self, routes: Routes, before: Routes | None = None) -> Iterator[Request]:
        """A host's routes to all others; only those that differ from what was `before`."""
        if self._node.forwards:
            return
        by_name = routes.fabric.by_name
        hops = {
            port.port.interface: Hop(
                port.ifindex, by_name[port.link.other(self._node.name).node].address
            )
            for port in self._ports
        }
        for host in routes.fabric.hosts:
            paths = self._paths(routes, host.name)
            if host == self._node or (before and self._paths(before, host.name) == paths):
                continue
            carrier = segments_of(routes).carrier
            carriers = [(hops[path[0].interface], carrier(path)) for path in paths]
            yield rtnetlink.wrapping_route(
                host.address, carriers, self._node.address, self._metrics
            )

    def _paths(self, routes: Routes, host: str) -> tuple[Path, ...]:
        return segments_of(routes).paths(self._node.name, host)
