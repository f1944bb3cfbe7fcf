"""A fabric as netlink requests: which interface has which index, and what makes each node.

Pure: it computes the requests, `emulator.network.network` sends them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from ipaddress import IPv4Network
from itertools import repeat

from emulator.linux import rtnetlink
from emulator.linux.netlink import Request
from emulator.linux.rtnetlink import Hop, Metrics, VethEnd
from emulator.network.groups import GroupNode, group_numbers
from emulator.network.segments import SegmentNode
from emulator.network.sysctls import LINUX_INITIAL_WINDOW, LINUX_MIN_RTO_NS, TcpSettings
from emulator.ports.arrangement import PortArrangement, PortContext
from emulator.ports.idle_filler import IdleFiller
from emulator.ports.port_watch import PortWatch
from topologies.fabrics.fabric import Fabric, Link, NodeKind
from topologies.routing.routes import NextHop, Route, Routes
from topologies.spec.routing_section import Srv6, resilient_of

LOOPBACK = 1
_FIRST_PORT = 2
_FIRST_DELAY_DEVICE = 10_000


def _ifindex(position: int, link: Link, node: str) -> int:
    """The interface index of a node's port. Indices are per namespace and asked for at creation, so
    they are known beforehand. The two ends of a link must differ: the kernel's link watch takes a
    device whose index equals its peer's for a plain one, and lets its carrier wait for a second
    (linkwatch_urgent_event in net/core/link_watch.c).
    """
    return _FIRST_PORT + 2 * position + (link.b.node == node)


class Blueprint:
    """The requests of one fabric, with a watch on its ports and fillers for idle ones where there
    are such. `contexts` are the
    ports by node, in order of link index; `ifindex` is the index of every interface in its node's
    namespace."""

    def __init__(
        self,
        fabric: Fabric,
        arrangement: PortArrangement,
        transport: TcpSettings,
        watch: PortWatch | None = None,
        filler: IdleFiller | None = None,
        aggregating: frozenset[str] = frozenset(),
    ) -> None:
        self._aggregating = aggregating
        self._fabric = fabric
        self._watch = watch
        self._filler = filler
        self._arrangement = arrangement
        self._host_metrics = _metrics(transport)
        self.contexts: dict[str, tuple[PortContext, ...]] = {
            node.name: tuple(
                PortContext(
                    link=link,
                    port=link.port(node.name),
                    ifindex=_ifindex(position, link, node.name),
                    delay_device=(
                        _FIRST_DELAY_DEVICE + position if arrangement.needs_delay_device else None
                    ),
                )
                for position, link in enumerate(fabric.links_of[node.name])
            )
            for node in fabric.nodes
        }
        self._group_nodes: dict[str, GroupNode] = {}
        settings = resilient_of(fabric.choice)
        if settings is not None:
            numbers = group_numbers(fabric)
            self._group_nodes = {
                node: GroupNode(node, fabric, settings, contexts, numbers)
                for node, contexts in self.contexts.items()
                if len(contexts) > 1
            }
        self.ifindex = {
            context.port.interface: context.ifindex
            for contexts in self.contexts.values()
            for context in contexts
        }

    def link_requests(self, descriptors: Mapping[str, int]) -> Iterator[Request]:
        """All links, each end in the namespace behind its node's open descriptor."""
        for link in self._fabric.links:
            a, b = (
                VethEnd(p.interface, self.ifindex[p.interface], descriptors[p.node], p.mac)
                for p in (link.a, link.b)
            )
            yield rtnetlink.veth(a, b, link.mtu_bytes)
        for node, contexts in self.contexts.items():
            for context in contexts:
                if context.delay_device is not None:
                    yield rtnetlink.ifb(
                        f"delay{context.delay_device - _FIRST_DELAY_DEVICE}",
                        context.delay_device,
                        descriptors[node],
                        context.link.mtu_bytes,
                    )

    def node_requests(self, node: str, routes: Routes) -> list[Request]:
        """The requests that configure a node, to be sent in its namespace.

        Raises UnsupportedPort for a port that the arrangement cannot make.
        """
        own = self._fabric.by_name[node].address
        requests = [rtnetlink.set_state(LOOPBACK, True, "lo")]
        for context in self.contexts[node]:
            name = context.port.interface
            requests.append(rtnetlink.set_state(context.ifindex, True, name))
            requests.append(rtnetlink.address(context.ifindex, own, name))
            requests.append(self.neighbour_request(node, context))
            requests.extend(self._arrangement.requests(context))
            if self._watch is not None:
                requests.extend(
                    self._watch.requests(
                        context,
                        has_hooks=self._arrangement.needs_delay_device,
                        delays_at_sender=self._arrangement.delays_at_sender,
                    )
                )
            if self._filler is not None:  # only beside a watch, which makes the hooks
                requests.extend(self._filler.requests(context))
        if not isinstance(self._fabric.choice, Srv6):
            requests.extend(
                self.route_request(node, route)
                for route in routes.tables[node]
                if route.place is None
            )
        requests.extend(self.neighbour_routes(node, self.contexts[node]))
        return requests

    def requests_with_carriers(self, node: str, routes: Routes) -> list[Request]:
        """The requests that a node is sent once its links have carriers."""
        segments, groups = self.segment_node(node, routes), self.group_node(node)
        requests = [] if segments is None else segments.requests(routes)
        if groups is not None:
            requests += groups.requests(routes)
            requests += [
                self.route_request(node, route)
                for route in routes.tables[node]
                if route.place is not None
            ]
        return requests

    def route_changes(self, node: str, before: Routes, routes: Routes) -> list[Request]:
        """The requests that make a node's routes those of `routes`. A group is replaced where it
        stands, and routes that name it are left alone."""
        old = {route.prefix: route for route in before.tables[node]}
        new = {route.prefix: route for route in routes.tables[node]}
        gone = [rtnetlink.delete_route(prefix) for prefix in old if prefix not in new]
        groups = self.group_node(node)
        requests: list[Request] = []
        renewed: set[str] = set()
        if groups is not None:
            requests += groups.changed(routes, before)
            renewed = groups.renewed(routes, before)
            gone += groups.gone(routes, before)
        for prefix, route in new.items():
            was = old.get(prefix)
            kept = was is not None and route.place is not None and was.place == route.place
            if (was != route and not kept) or route.place in renewed:
                requests.append(self.route_request(node, route))
        return requests + gone

    def group_node(self, node: str) -> GroupNode | None:
        """The next hops and groups of a node whose routes go by resilient groups; else None."""
        return self._group_nodes.get(node)

    def segment_node(self, node: str, routes: Routes) -> SegmentNode | None:
        """The requests to a node beside the usual, where hosts write segments; else None."""
        if not isinstance(self._fabric.choice, Srv6):
            return None
        return SegmentNode(node, routes, self.contexts[node], self._host_metrics)

    def neighbour_routes(self, node: str, contexts: Sequence[PortContext]) -> list[Request]:
        """Routes to the switches at the far ends of some ports that aggregate: tables lead to hosts
        only. The first of parallel links is taken."""
        far: dict[str, PortContext] = {}
        for context in contexts:
            peer = context.link.other(node).node
            if peer in self._aggregating:
                far.setdefault(peer, context)
        return [
            self.route_request(
                node,
                Route(
                    IPv4Network(self._fabric.by_name[peer].address),
                    (NextHop(context.port.interface, context.link.index, peer),),
                ),
            )
            for peer, context in far.items()
        ]

    def neighbour_request(self, node: str, context: PortContext) -> Request:
        """The far end of a port, by address and MAC."""
        far = context.link.other(node)
        return rtnetlink.neighbour(
            context.ifindex, self._fabric.by_name[far.node].address, far.mac, context.port.interface
        )

    def route_request(self, node: str, route: Route) -> Request:
        """A route of a node; routes of those who talk TCP carry its metrics."""
        own = self._fabric.by_name[node]
        talks = own.kind is NodeKind.HOST or node in self._aggregating
        metrics = self._host_metrics if talks else Metrics()
        if route.place is not None:
            number = self._group_nodes[node].number(route.place)
            return rtnetlink.route_by_group(route.prefix, number, own.address, metrics)
        hops = [
            Hop(self.ifindex[hop.interface], self._fabric.by_name[hop.node].address, weight)
            for hop, weight in zip(route.next_hops, route.weights or repeat(1), strict=False)
        ]
        return rtnetlink.route(route.prefix, hops, own.address, metrics)


def _metrics(transport: TcpSettings) -> Metrics:
    """Only what differs from Linux's own: a route without metrics leaves TCP alone."""
    window, rto_ns = transport.initial_window, transport.min_rto_ns
    return Metrics(
        initial_window=window if window != LINUX_INITIAL_WINDOW else None,
        min_rto_ms=-(-rto_ns // 10**6) if rto_ns != LINUX_MIN_RTO_NS else None,
    )
