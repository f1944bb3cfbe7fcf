"""The rtnetlink requests that a fabric is made of, as plain functions that return a `Request`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from emulator.linux.messages import formats
from emulator.linux.messages.formats import TC_H_ROOT
from emulator.linux.netlink import Request, request

_TICK_NS = 10_000_000
"""Timers of groups are told in clock_t (USER_HZ, 100 a second)."""


@dataclass(frozen=True, slots=True)
class VethEnd:
    """One end of a veth pair, made directly in the namespace behind `namespace_fd`."""

    name: str
    ifindex: int
    namespace_fd: int
    mac: str


@dataclass(frozen=True, slots=True)
class Metrics:
    """TCP's metrics of a route; None leaves the kernel's. `min_rto_ms` is locked, as only then TCP
    heeds it (tcp_rto_min in include/net/tcp.h)."""

    initial_window: int | None = None
    min_rto_ms: int | None = None
    mtu_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Hop:
    """A next hop on a link without a subnet: out of `ifindex`, to the neighbour `gateway`. `weight`
    is its share of the flows, from 1 to 256."""

    ifindex: int
    gateway: IPv4Address
    weight: int = 1


def _mac(value: str) -> bytes:
    return bytes.fromhex(value.replace(":", ""))


def veth(a: VethEnd, b: VethEnd, mtu_bytes: int) -> Request:
    """Makes a veth pair, each end in its own namespace under its own name and index."""
    what = f"make the link {a.name} - {b.name}"
    return request(formats.VETH, what, *_end(a, mtu_bytes), *_end(b, mtu_bytes))


def _end(end: VethEnd, mtu_bytes: int) -> tuple[int, bytes, int, bytes, int]:
    return end.ifindex, end.name.encode(), end.namespace_fd, _mac(end.mac), mtu_bytes


def ifb(name: str, ifindex: int, namespace_fd: int, mtu_bytes: int) -> Request:
    """Makes an intermediate functional block, up, in the namespace behind `namespace_fd`."""
    what = f"make the intermediate device {name}"
    return request(formats.IFB, what, ifindex, name.encode(), namespace_fd, mtu_bytes)


def device(kind: str) -> Request:
    """Makes a device of a kind, with all that the kernel gives it."""
    return request(formats.DEVICE, f"make a {kind}", kind.encode())


def set_state(ifindex: int, up: bool, name: str = "") -> Request:
    """Sets an interface up or down, as `ip link set dev X up`."""
    what = f"set {name or f'interface {ifindex}'} {'up' if up else 'down'}"
    return request(formats.LINK_UP if up else formats.LINK_DOWN, what, ifindex)


def get_links(with_statistics: bool) -> Request:
    """Asks for all interfaces of a namespace."""
    asked = formats.GET_LINKS if with_statistics else formats.GET_LINKS_WITHOUT_STATISTICS
    return request(asked, "list interfaces")


def address(ifindex: int, value: IPv4Address, name: str = "") -> Request:
    """Gives an interface the address as a /32."""
    packed = value.packed
    what = f"give {name or ifindex} address {value}/32"
    return request(formats.ADDRESS, what, ifindex, packed, packed)


def neighbour(ifindex: int, value: IPv4Address, mac: str, name: str = "") -> Request:
    """Names the neighbour at the other end of a link for good, so that nothing asks on the wire."""
    what = f"name neighbour {value} on {name or ifindex}"
    return request(formats.NEIGHBOUR, what, ifindex, value.packed, _mac(mac))


def _metrics(metrics: Metrics) -> bytes:
    parts = []
    if metrics.min_rto_ms is not None:
        parts.append(formats.METRIC_LOCK.fill(1 << formats.RTAX_RTO_MIN))
        parts.append(formats.METRIC_MIN_RTO.fill(metrics.min_rto_ms))
    if metrics.initial_window is not None:
        parts.append(formats.METRIC_WINDOW.fill(metrics.initial_window))
    if metrics.mtu_bytes is not None:
        parts.append(formats.METRIC_MTU.fill(metrics.mtu_bytes))
    return formats.ROUTE_METRICS.fill(b"".join(parts)) if parts else b""


def route(
    destination: IPv4Network,
    hops: Sequence[Hop],
    source: IPv4Address | None = None,
    metrics: Metrics = Metrics(),
) -> Request:
    """Adds or replaces a route; several next hops make it an ECMP route, by their weights,
    none make the destination unreachable (senders get an ICMP error at once)."""
    length = destination.prefixlen
    head = formats.ROUTE_ON_LINK if len(hops) == 1 else formats.ROUTE
    if not hops:
        head = formats.ROUTE_UNREACHABLE
    parts = [head.fill(length)]
    if length:
        parts.append(formats.ROUTE_TO.fill(destination.network_address.packed))
    if hops:
        if source is not None:
            parts.append(formats.ROUTE_SOURCE.fill(source.packed))
        parts.append(_metrics(metrics))
        parts.append(_next_hops(hops))
    what = f"route {destination} by {', '.join(str(h.gateway) for h in hops) or 'nobody'}"
    return Request(head.type, head.flags, b"".join(parts), what)


def next_hop(number: int, hop: Hop) -> Request:
    """Makes a next hop that groups name by its number, or replaces it. Its link must have a
    carrier."""
    what = f"make the next hop {hop.gateway} on interface {hop.ifindex}"
    return request(formats.NEXT_HOP, what, number, hop.ifindex, hop.gateway.packed)


def resilient_group(
    number: int,
    members: Sequence[tuple[int, int]],
    buckets: int,
    idle_ns: int,
    unbalanced_ns: int,
) -> Request:
    """Makes a group of next hops with a table of buckets, or gives it these `members`: their
    numbers and weights, from 1 to 256. The timers are whole hundredths of a second."""
    packed = [formats.GROUP_MEMBER.pack(each, weight - 1, 0, 0) for each, weight in members]
    what = f"make group {number} of {len(members)} next hops with {buckets} buckets"
    timers = idle_ns // _TICK_NS, unbalanced_ns // _TICK_NS
    return request(formats.RESILIENT_GROUP, what, number, b"".join(packed), buckets, *timers)


def delete_next_hop(number: int) -> Request:
    """Deletes a next hop or a group, and all routes that name it."""
    return request(formats.NEXT_HOP_DELETED, f"delete next hop {number}", number)


def route_by_group(
    destination: IPv4Network,
    number: int,
    source: IPv4Address,
    metrics: Metrics = Metrics(),
) -> Request:
    """Adds or replaces a route whose next hops are those of a group."""
    head, length = formats.ROUTE, destination.prefixlen
    parts = [head.fill(length)]
    if length:
        parts.append(formats.ROUTE_TO.fill(destination.network_address.packed))
    parts += [formats.ROUTE_SOURCE.fill(source.packed), _metrics(metrics)]
    parts.append(formats.ROUTE_BY_GROUP.fill(number))
    what = f"route {destination} by group {number}"
    return Request(head.type, head.flags, b"".join(parts), what)


def wrapping_route(
    destination: IPv4Address,
    carriers: Sequence[tuple[Hop, IPv6Address]],
    source: IPv4Address,
    metrics: Metrics,
) -> Request:
    """Adds or replaces the route to a host by next hops that wrap packets in IPv6 (H.Encaps.Red of
    RFC 8986), each with its carrier of segments. A flow has one of them. Nothing is sent to their
    gateways, but RDMA asks for the neighbour of a route before it makes a queue pair."""
    hops = [
        formats.WRAPPING_HOP.fill(hop.ifindex, hop.gateway.packed, each.packed)
        for hop, each in carriers
    ]
    head = formats.ROUTE if hops else formats.ROUTE_UNREACHABLE
    parts = [head.fill(32), formats.ROUTE_TO.fill(destination.packed)]
    if hops:
        parts.append(formats.ROUTE_SOURCE.fill(source.packed))
        parts.append(_metrics(metrics))
        parts.append(formats.ROUTE_HOPS.fill(b"".join(hops)))
    what = f"route {destination} by segments of {len(hops)} paths"
    return Request(head.type, head.flags, b"".join(parts), what)


def address6(ifindex: int, value: IPv6Address) -> Request:
    """Gives an interface the address as a /128."""
    what = f"give interface {ifindex} address {value}/128"
    return request(formats.ADDRESS6, what, ifindex, value.packed)


def neighbour6(ifindex: int, value: IPv6Address, mac: str, name: str = "") -> Request:
    """As `neighbour`, of IPv6."""
    what = f"name neighbour {value} on {name or ifindex}"
    return request(formats.NEIGHBOUR6, what, ifindex, value.packed, _mac(mac))


def route6(destination: IPv6Network, ifindex: int, gateway: IPv6Address) -> Request:
    """Adds or replaces a route of IPv6 with one next hop."""
    what = f"route {destination} by {gateway}"
    length, packed = destination.prefixlen, destination.network_address.packed
    return request(formats.ROUTE6, what, length, packed, ifindex, gateway.packed)


def segment_of_switch(locator: IPv6Network, ifindex: int, block_bits: int) -> Request:
    """Has a node take its micro-segment off the front of the list, and send the packet on by its
    routes: End with the flavour NEXT-C-SID (RFC 9800). Any of its interfaces will do."""
    length, packed = locator.prefixlen, locator.network_address.packed
    bits = block_bits, length - block_bits
    what = f"pass on what is for {locator}"
    return request(formats.SEGMENT_OF_SWITCH, what, length, packed, ifindex, *bits)


def segment_of_host(locator: IPv6Network, ifindex: int) -> Request:
    """Has a host unwrap packets, and take them as if they had come so: End.DX4 (RFC 8986)."""
    length, packed = locator.prefixlen, locator.network_address.packed
    what = f"unwrap what is for {locator}"
    return request(formats.SEGMENT_OF_HOST, what, length, packed, ifindex)


def _next_hops(hops: Sequence[Hop]) -> bytes:
    if len(hops) == 1:
        return formats.ROUTE_HOP.fill(hops[0].ifindex, hops[0].gateway.packed)
    made = b"".join(
        [formats.HOP.fill(hop.weight - 1, hop.ifindex, hop.gateway.packed) for hop in hops]
    )
    return formats.ROUTE_HOPS.fill(made)


def delete_route(destination: IPv4Network) -> Request:
    """Deletes the route to a prefix from the main table."""
    head, length = formats.ROUTE_DELETED, destination.prefixlen
    payload = head.fill(length)
    if length:
        payload += formats.ROUTE_TO.fill(destination.network_address.packed)
    return Request(head.type, head.flags, payload, f"withdraw the route to {destination}")


def qdisc(
    ifindex: int,
    kind: str,
    parent: int = TC_H_ROOT,
    handle: int = 0x10000,
    options: bytes = b"",
    name: str = "",
) -> Request:
    """Puts a queue discipline in place (replacing what stands there). `options` is the body of
    TCA_OPTIONS, empty for none."""
    what = f"put qdisc {kind} on {name or f'interface {ifindex}'}"
    if not options:
        return request(formats.QDISC, what, ifindex, handle, parent, kind.encode())
    return request(
        formats.QDISC_WITH_OPTIONS, what, ifindex, handle, parent, kind.encode(), options
    )


def change_qdisc(
    ifindex: int, kind: str, parent: int, handle: int, options: bytes, name: str = ""
) -> Request:
    """Changes the options of a queue discipline in place; what it holds stays."""
    what = f"change qdisc {kind} on {name or f'interface {ifindex}'}"
    return request(formats.QDISC_CHANGED, what, ifindex, handle, parent, kind.encode(), options)


def delete_qdisc(ifindex: int) -> Request:
    """Removes the root queue discipline and all below it."""
    return request(formats.QDISC_DELETED, f"remove the qdisc of interface {ifindex}", ifindex)


def get_qdiscs() -> Request:
    """Asks for all queue disciplines of a namespace."""
    return request(formats.GET_QDISCS, "list qdiscs")


def make_hooks(ifindex: int, name: str = "") -> Request:
    """Gives an interface the hooks on which classifiers run, for what arrives and what leaves."""
    return request(formats.HOOKS, f"put hooks on {name or ifindex}", ifindex)


def redirect_ingress(ifindex: int, target: int, name: str = "") -> tuple[Request, Request]:
    """Sends all that arrives at `ifindex` through the egress of device `target` (clsact, matchall,
    mirred): where a stock delay line stands, after the sender's queue. See tc-mirred(8)."""
    what = f"redirect what arrives at {name or ifindex}"
    return make_hooks(ifindex, name), request(formats.REDIRECT, what, ifindex, target)


def run_classifier(
    ifindex: int, program: int, number: int, *, arriving: bool, name: str = "", order: int = 1
) -> Request:
    """Has an eBPF classifier (by its descriptor) look at all that arrives at an interface, before
    it is redirected, or that is about to be queued there. The program finds `number` (16 bits) as
    its class id. The interface needs its hooks (`make_hooks`). The one of several with the lower
    `order` (1 to 3) looks first. See tc-bpf(8)."""
    what = f"count what {'arrives at' if arriving else 'is queued at'} {name or ifindex}"
    made = formats.CLASSIFIER_OF_ARRIVING if arriving else formats.CLASSIFIER_OF_LEAVING
    return request(made, what, ifindex, order, number, program)


def round_robin_class(
    ifindex: int, parent: int, class_id: int, quantum_bytes: int, name: str = ""
) -> Request:
    """Adds a class to a drr qdisc whose handle is `parent`. See tc-drr(8)."""
    what = f"add a class to {name or ifindex}"
    return request(formats.DRR_CLASS, what, ifindex, class_id, parent, quantum_bytes)
