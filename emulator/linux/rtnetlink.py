"""The rtnetlink requests that a fabric is made of, as plain functions that return a `Request`.

Formats: include/uapi/linux/{rtnetlink,if_link,neighbour,pkt_sched,veth}.h.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

from emulator.linux.netlink import (
    NLM_F_CREATE,
    NLM_F_EXCL,
    NLM_F_REPLACE,
    Request,
    attribute,
    text,
    u32,
)

RTM_NEWLINK, RTM_GETLINK, RTM_SETLINK = 16, 18, 19
RTM_NEWADDR, RTM_NEWROUTE, RTM_DELROUTE, RTM_NEWNEIGH = 20, 24, 25, 28
RTM_NEWQDISC, RTM_DELQDISC, RTM_GETQDISC, RTM_NEWTCLASS, RTM_NEWTFILTER = 36, 37, 38, 40, 44

CREATE = NLM_F_CREATE | NLM_F_EXCL
_REPLACE = NLM_F_CREATE | NLM_F_REPLACE

AF_INET = 2
AF_UNSPEC = 0
IFF_UP = 0x1

IFLA_ADDRESS, IFLA_IFNAME, IFLA_MTU = 1, 3, 4
IFLA_TXQLEN, IFLA_OPERSTATE, IFLA_LINKINFO, IFLA_STATS64 = 13, 16, 18, 23
IFLA_NET_NS_FD, IFLA_EXT_MASK = 28, 29
IFLA_NUM_TX_QUEUES, IFLA_NUM_RX_QUEUES = 31, 32
IFLA_GSO_MAX_SEGS = 40
IFLA_INFO_KIND, IFLA_INFO_DATA, VETH_INFO_PEER = 1, 2, 1
RTEXT_FILTER_SKIP_STATS = 1 << 3

IFA_ADDRESS, IFA_LOCAL = 1, 2
NDA_DST, NDA_LLADDR, NUD_PERMANENT = 1, 2, 0x80

RTA_DST, RTA_OIF, RTA_GATEWAY, RTA_PREFSRC, RTA_METRICS, RTA_MULTIPATH = 1, 4, 5, 7, 8, 9
RTAX_LOCK, RTAX_INITCWND, RTAX_RTO_MIN = 1, 11, 13
RTNH_F_ONLINK = 4
RT_TABLE_MAIN, RTPROT_STATIC = 254, 4
RTN_UNICAST, RTN_UNREACHABLE = 1, 7
RT_SCOPE_UNIVERSE = 0

TCA_KIND, TCA_OPTIONS, TCA_XSTATS = 1, 2, 4
TCA_STATS2, TCA_STATS_BASIC, TCA_STATS_QUEUE = 7, 1, 3
TC_H_ROOT = 0xFFFFFFFF
TC_H_CLSACT = 0xFFFFFFF1
TC_H_MIN_INGRESS, TC_H_MIN_EGRESS = 0xFFF2, 0xFFF3

IFINFO = struct.Struct("=BxHiII")
_IFADDR = struct.Struct("=BBBBi")
_NDMSG = struct.Struct("=BxxxiHBB")
_RTMSG = struct.Struct("=BBBBBBBBI")
_RTNEXTHOP = struct.Struct("=HBBi")
TCMSG = struct.Struct("=BxxxiIII")


_TX_QUEUE_PACKETS = 1000


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


@dataclass(frozen=True, slots=True)
class Hop:
    """A next hop on a link without a subnet: out of `ifindex`, to the neighbour `gateway`."""

    ifindex: int
    gateway: IPv4Address


def _interface_attributes(end: VethEnd, mtu_bytes: int) -> bytes:
    return b"".join(
        (
            text(IFLA_IFNAME, end.name),
            u32(IFLA_NET_NS_FD, end.namespace_fd),
            attribute(IFLA_ADDRESS, bytes.fromhex(end.mac.replace(":", ""))),
            u32(IFLA_MTU, mtu_bytes),
            u32(IFLA_TXQLEN, _TX_QUEUE_PACKETS),
            # A port has one queue. Every queue more costs a kobject: half of the creation time.
            u32(IFLA_NUM_TX_QUEUES, 1),
            u32(IFLA_NUM_RX_QUEUES, 1),
            # One segment per packet: a 64 KB super-packet would be serialised as one unit.
            u32(IFLA_GSO_MAX_SEGS, 1),
        )
    )


def veth(a: VethEnd, b: VethEnd, mtu_bytes: int) -> Request:
    """Makes a veth pair, each end in its own namespace under its own name and index."""
    peer = IFINFO.pack(AF_UNSPEC, 0, b.ifindex, 0, 0) + _interface_attributes(b, mtu_bytes)
    info = text(IFLA_INFO_KIND, "veth") + attribute(IFLA_INFO_DATA, attribute(VETH_INFO_PEER, peer))
    payload = (
        IFINFO.pack(AF_UNSPEC, 0, a.ifindex, 0, 0)
        + _interface_attributes(a, mtu_bytes)
        + attribute(IFLA_LINKINFO, info)
    )
    return Request(int(RTM_NEWLINK), CREATE, payload, f"make the link {a.name} - {b.name}")


def ifb(name: str, ifindex: int, namespace_fd: int, mtu_bytes: int) -> Request:
    """Makes an intermediate functional block, up, in the namespace behind `namespace_fd`."""
    payload = (
        IFINFO.pack(AF_UNSPEC, 0, ifindex, IFF_UP, IFF_UP)
        + text(IFLA_IFNAME, name)
        + u32(IFLA_NET_NS_FD, namespace_fd)
        + u32(IFLA_MTU, mtu_bytes)
        + u32(IFLA_TXQLEN, _TX_QUEUE_PACKETS)
        + u32(IFLA_NUM_TX_QUEUES, 1)
        + u32(IFLA_NUM_RX_QUEUES, 1)
        + attribute(IFLA_LINKINFO, text(IFLA_INFO_KIND, "ifb"))
    )
    return Request(int(RTM_NEWLINK), CREATE, payload, f"make the intermediate device {name}")


def set_state(ifindex: int, up: bool, name: str = "") -> Request:
    """Sets an interface up or down, as `ip link set dev X up`."""
    flags = IFF_UP if up else 0
    what = f"set {name or f'interface {ifindex}'} {'up' if up else 'down'}"
    return Request(int(RTM_SETLINK), 0, IFINFO.pack(AF_UNSPEC, 0, ifindex, flags, IFF_UP), what)


def get_links(with_statistics: bool) -> Request:
    """Asks for all interfaces of a namespace."""
    mask = 0 if with_statistics else RTEXT_FILTER_SKIP_STATS
    return Request(
        int(RTM_GETLINK),
        0,
        IFINFO.pack(AF_UNSPEC, 0, 0, 0, 0) + u32(IFLA_EXT_MASK, mask),
        "list interfaces",
    )


def address(ifindex: int, value: IPv4Address, name: str = "") -> Request:
    """Gives an interface the address as a /32."""
    packed = value.packed
    payload = (
        _IFADDR.pack(AF_INET, 32, 0, RT_SCOPE_UNIVERSE, ifindex)
        + attribute(IFA_LOCAL, packed)
        + attribute(IFA_ADDRESS, packed)
    )
    return Request(int(RTM_NEWADDR), CREATE, payload, f"give {name or ifindex} address {value}/32")


def neighbour(ifindex: int, value: IPv4Address, mac: str, name: str = "") -> Request:
    """Names the neighbour at the other end of a link for good, so that nothing asks on the wire."""
    payload = (
        _NDMSG.pack(AF_INET, ifindex, NUD_PERMANENT, 0, 0)
        + attribute(NDA_DST, value.packed)
        + attribute(NDA_LLADDR, bytes.fromhex(mac.replace(":", "")))
    )
    return Request(
        int(RTM_NEWNEIGH), _REPLACE, payload, f"name neighbour {value} on {name or ifindex}"
    )


def _metrics(metrics: Metrics) -> bytes:
    parts = b""
    if metrics.min_rto_ms is not None:
        parts += u32(RTAX_LOCK, 1 << RTAX_RTO_MIN) + u32(RTAX_RTO_MIN, metrics.min_rto_ms)
    if metrics.initial_window is not None:
        parts += u32(RTAX_INITCWND, metrics.initial_window)
    return attribute(RTA_METRICS, parts) if parts else b""


def _route_payload(
    destination: IPv4Network,
    hops: Sequence[Hop],
    source: IPv4Address | None,
    metrics: Metrics,
) -> bytes:
    length = destination.prefixlen
    single = len(hops) == 1
    kind = RTN_UNICAST if hops else RTN_UNREACHABLE
    parts = [
        _RTMSG.pack(
            AF_INET,
            length,
            0,
            0,
            RT_TABLE_MAIN,
            RTPROT_STATIC,
            RT_SCOPE_UNIVERSE,
            kind,
            RTNH_F_ONLINK if single else 0,
        )
    ]
    if length:
        parts.append(attribute(RTA_DST, destination.network_address.packed))
    if not hops:
        return b"".join(parts)
    if source is not None:
        parts.append(attribute(RTA_PREFSRC, source.packed))
    parts.append(_metrics(metrics))
    if single:
        parts.append(u32(RTA_OIF, hops[0].ifindex))
        parts.append(attribute(RTA_GATEWAY, hops[0].gateway.packed))
    else:
        nested = b""
        for hop in hops:
            gateway = attribute(RTA_GATEWAY, hop.gateway.packed)
            nested += _RTNEXTHOP.pack(8 + len(gateway), RTNH_F_ONLINK, 0, hop.ifindex) + gateway
        parts.append(attribute(RTA_MULTIPATH, nested))
    return b"".join(parts)


def route(
    destination: IPv4Network,
    hops: Sequence[Hop],
    source: IPv4Address | None = None,
    metrics: Metrics = Metrics(),
) -> Request:
    """Adds or replaces a route; several next hops of equal weight make it an ECMP route, none make
    the destination unreachable (senders get an ICMP error at once)."""
    return Request(
        int(RTM_NEWROUTE),
        _REPLACE,
        _route_payload(destination, hops, source, metrics),
        f"route {destination} by {', '.join(str(h.gateway) for h in hops) or 'nobody'}",
    )


def delete_route(destination: IPv4Network) -> Request:
    """Deletes the route to a prefix from the main table."""
    payload = _RTMSG.pack(
        AF_INET, destination.prefixlen, 0, 0, RT_TABLE_MAIN, RTPROT_STATIC, 255, 0, 0
    )
    if destination.prefixlen:
        payload += attribute(RTA_DST, destination.network_address.packed)
    return Request(int(RTM_DELROUTE), 0, payload, f"withdraw the route to {destination}")


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
    payload = TCMSG.pack(AF_UNSPEC, ifindex, handle, parent, 0) + text(TCA_KIND, kind)
    if options:
        payload += attribute(TCA_OPTIONS, options)
    return Request(
        int(RTM_NEWQDISC),
        _REPLACE,
        payload,
        f"put qdisc {kind} on {name or f'interface {ifindex}'}",
    )


def change_qdisc(
    ifindex: int, kind: str, parent: int, handle: int, options: bytes, name: str = ""
) -> Request:
    """Changes the options of a queue discipline in place; what it holds stays."""
    payload = (
        TCMSG.pack(AF_UNSPEC, ifindex, handle, parent, 0)
        + text(TCA_KIND, kind)
        + attribute(TCA_OPTIONS, options)
    )
    return Request(
        int(RTM_NEWQDISC), 0, payload, f"change qdisc {kind} on {name or f'interface {ifindex}'}"
    )


def delete_qdisc(ifindex: int) -> Request:
    """Removes the root queue discipline and all below it."""
    return Request(
        int(RTM_DELQDISC),
        0,
        TCMSG.pack(AF_UNSPEC, ifindex, 0, TC_H_ROOT, 0),
        f"remove the qdisc of interface {ifindex}",
    )


def get_qdiscs() -> Request:
    """Asks for all queue disciplines of a namespace."""
    return Request(int(RTM_GETQDISC), 0, TCMSG.pack(AF_UNSPEC, 0, 0, 0, 0), "list qdiscs")


_HOOKS = 0xFFFF0000
_ALL_PROTOCOLS = 0x0300  # htons(ETH_P_ALL)


def make_hooks(ifindex: int, name: str = "") -> Request:
    """Gives an interface the hooks on which classifiers run, for what arrives and what leaves."""
    return Request(
        int(RTM_NEWQDISC),
        CREATE,
        TCMSG.pack(AF_UNSPEC, ifindex, _HOOKS, TC_H_CLSACT, 0) + text(TCA_KIND, "clsact"),
        f"put hooks on {name or ifindex}",
    )


def redirect_ingress(ifindex: int, target: int, name: str = "") -> tuple[Request, Request]:
    """Sends all that arrives at `ifindex` through the egress of device `target` (clsact, matchall,
    mirred): where a stock delay line stands, after the sender's queue. See tc-mirred(8)."""
    stolen, egress_redirect = 4, 1
    # struct tc_mirred: index, capab, action, refcnt, bindcnt, eaction, ifindex
    parameters = struct.pack("=IIiiiiI", 0, 0, stolen, 0, 0, egress_redirect, target)
    action = text(1, "mirred") + attribute(
        2, attribute(2, parameters)
    )  # TCA_ACT_KIND, TCA_ACT_OPTIONS, TCA_MIRRED_PARMS
    options = attribute(2, attribute(1, action))  # TCA_MATCHALL_ACT, first action
    match = Request(
        int(RTM_NEWTFILTER),
        CREATE,
        TCMSG.pack(AF_UNSPEC, ifindex, 0, _HOOKS | TC_H_MIN_INGRESS, (3 << 16) | _ALL_PROTOCOLS)
        + text(TCA_KIND, "matchall")
        + attribute(TCA_OPTIONS, options),
        f"redirect what arrives at {name or ifindex}",
    )
    return make_hooks(ifindex, name), match


def run_classifier(
    ifindex: int, program: int, number: int, *, arriving: bool, name: str = "", order: int = 1
) -> Request:
    """Has an eBPF classifier (by its descriptor) look at all that arrives at an interface, before
    it is redirected, or that is about to be queued there. The program finds `number` (16 bits) as
    its class id. The interface needs its hooks (`make_hooks`). Of several, the one of the lower
    `order` (1 to 3) looks first. See tc-bpf(8)."""
    direct_action = 1
    # TCA_BPF_CLASSID, TCA_BPF_FD, TCA_BPF_NAME, TCA_BPF_FLAGS
    options = u32(3, number) + u32(6, program) + text(7, "groundwire") + u32(8, direct_action)
    parent = _HOOKS | (TC_H_MIN_INGRESS if arriving else TC_H_MIN_EGRESS)
    return Request(
        int(RTM_NEWTFILTER),
        CREATE,
        TCMSG.pack(AF_UNSPEC, ifindex, 0, parent, (order << 16) | _ALL_PROTOCOLS)
        + text(TCA_KIND, "bpf")
        + attribute(TCA_OPTIONS, options),
        f"count what {'arrives at' if arriving else 'is queued at'} {name or ifindex}",
    )


def round_robin_class(
    ifindex: int, parent: int, class_id: int, quantum_bytes: int, name: str = ""
) -> Request:
    """Adds a class to a drr qdisc whose handle is `parent`. See tc-drr(8)."""
    options = u32(1, quantum_bytes)  # TCA_DRR_QUANTUM
    return Request(
        int(RTM_NEWTCLASS),
        CREATE,
        TCMSG.pack(AF_UNSPEC, ifindex, class_id, parent, 0)
        + text(TCA_KIND, "drr")
        + attribute(TCA_OPTIONS, options),
        f"add a class to {name or ifindex}",
    )
