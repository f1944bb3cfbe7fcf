"""Checks of the fabric under RoCE."""

from __future__ import annotations

from collections.abc import Iterator

from topologies.fabrics.fabric import Fabric, NodeKind
from topologies.routing.extent import Extent, longest_path
from topologies.routing.routes import Routes, compute_routes
from topologies.spec.errors import Problem
from topologies.spec.queue_section import Lossless, QueueSpec, marks
from topologies.spec.routing_section import Ecmp, Srv6, Weighted
from topologies.spec.sections import Sections
from topologies.spec.transports.checks import TransportChecks
from topologies.spec.transports.roce.section import INT_MAX_HOPS, RoceTransport
from topologies.units import format_time

HEADERS_BYTES = 80
"""RXE_MAX_HDR_LENGTH of Linux's rxe: a port's largest path MTU leaves so much of its MTU."""

_PACKET_BYTES = 82
"""Bytes of a packet on a link beside its payload: IPv4 20, UDP 8, base transport header 12, ICRC 4,
Ethernet with preamble and gap 38. An acknowledgement has 4 more."""

_INT_RATE_UNIT_BPS = 100_000_000
_INT_MOST_BPS = 65_535 * _INT_RATE_UNIT_BPS

_MOST_BPS = 2**43
"""The largest integers of controllers (emulator/kernel/rxe/rxe_congestion.c)."""


def telemetry_bytes(extent: Extent) -> int:
    """The bytes that HPCC's packets carry behind their datagrams (emulator/kernel/gwport_int.h)."""
    return 4 + 12 * extent.links


class RoceChecks(TransportChecks):
    """Those of queue pairs and their controllers."""

    def problems(self, spec: Sections, fabric: Fabric) -> Iterator[Problem]:
        """Path MTU, time-outs, marks, losses, rates, and hosts of several ports."""
        assert isinstance(spec.transport, RoceTransport)
        return _problems(spec, spec.transport, fabric)


PART = RoceChecks()


def _problems(spec: Sections, transport: RoceTransport, fabric: Fabric) -> Iterator[Problem]:
    extent = longest_path(fabric)
    yield from _path_mtu(transport, fabric, extent)
    if spec.workload.program is None:  # programs say themselves how long they wait
        yield from _timeout(transport, extent)
    queues = _switch_queues(fabric)
    heeds_marks = transport.congestion_control in ("dcqcn", "dctcp", "nscc")
    if heeds_marks and not any(map(marks, queues)):
        yield Problem(
            ("transport", "congestion_control"),
            transport.congestion_control,
            "expected queues that mark, as nothing would slow a queue pair down: dctcp, red with "
            "ecn, or lossless with k, or kmin and kmax",
        )
    if heeds_marks and transport.ecn is False:
        control = transport.congestion_control
        yield Problem(
            ("transport", "ecn"), "false", f"expected true with {control}: ports mark no other"
        )
    yield from _entropy(transport, fabric)
    yield from _lost(spec, queues)
    if transport.congestion_control != "none":
        yield from _rates(transport, fabric)
    if transport.congestion_control == "hpcc":
        yield from _hpcc(fabric, extent)
    if any(len(fabric.links_of[host.name]) > 1 for host in fabric.hosts):
        yield from _ports(fabric)


def _entropy(transport: RoceTransport, fabric: Fabric) -> Iterator[Problem]:
    """Switches that do not look at what tells entropy values apart."""
    choice = fabric.choice
    by_port = (
        fabric.routing == "ecmp"
        and choice.by_headers
        and not (
            isinstance(choice, Ecmp | Weighted | Srv6)
            and {"ports", "queue-pair"}.isdisjoint(choice.fields)
        )
    )
    if transport.entropy is not None and not by_port:
        yield Problem(
            ("fabric", "routing"),
            fabric.routing if fabric.routing != "ecmp" else choice.kind,
            "expected source, or ecmp, weighted or srv6 by ports or queue-pair, with "
            "transport.entropy: other switches do not look at the port that a packet comes from",
        )


def _ports(fabric: Fabric) -> Iterator[Problem]:
    """Hosts of several ports between which packets do not come and go by the same port: the queue
    pair is of the device of one of them."""
    routes = compute_routes(fabric)
    for host in (each.name for each in fabric.hosts):
        known: dict[str, frozenset[int]] = {}
        for other in (each.name for each in fabric.hosts):
            if other == host:
                continue
            leave = {hop.link for hop in routes.next_hops(host, other)}
            come = _arrivals(routes, other, host, known)
            if len(leave | come) > 1:
                yield Problem(
                    ("transport", "kind"),
                    "roce",
                    "expected routes by which all packets between two hosts come and go by the "
                    f"same port of each: between {host} and {other} they take several ports of "
                    f"{host}",
                )
                return


def _arrivals(
    routes: Routes, node: str, host: str, known: dict[str, frozenset[int]]
) -> frozenset[int]:
    """The links of a host by which packets from a node may come; `known` has those of others."""
    if node not in known:
        known[node] = frozenset[int]().union(
            *(
                {hop.link} if hop.node == host else _arrivals(routes, hop.node, host, known)
                for hop in routes.next_hops(node, host)
            )
        )
    return known[node]


def _rates(transport: RoceTransport, fabric: Fabric) -> Iterator[Problem]:
    fastest = max((link.rate_bps for link in fabric.links), default=0)
    if fastest > _MOST_BPS:
        yield Problem(
            ("transport", "congestion_control"),
            transport.congestion_control,
            f"expected none with links of more than {_MOST_BPS} bits/s: there is one of {fastest}",
        )


def _lost(spec: Sections, queues: list[QueueSpec]) -> Iterator[Problem]:
    """Queue pairs in a class that lossless queues lose."""
    if any(isinstance(name, str) for name in _names(spec)):
        return  # classes of fabric.queue, whose lossless queues lose none
    for queue in queues:
        if not isinstance(queue, Lossless):
            continue
        for priority in sorted(set(spec.priorities(over_roce=True))):
            if priority in queue.lossy_priorities:
                kept = [str(n) for n in range(8) if n not in queue.lossy_priorities]
                yield Problem(
                    ("transport", "class"),
                    str(priority),
                    "expected one that the lossless queues do not lose (lossy_priorities), "
                    + (", ".join(kept) or "and they lose all"),
                )
                return


def _names(spec: Sections) -> list[str | int | None]:
    """Mistakes in the classes of RoCE."""
    jobs = [job.traffic_class for job in spec.jobs]
    return [spec.traffic_class, spec.transport.own_class, *jobs]


def _path_mtu(transport: RoceTransport, fabric: Fabric, extent: Extent) -> Iterator[Problem]:
    smallest = min((link.mtu_bytes for link in fabric.links), default=2**16)
    more = telemetry_bytes(extent) if transport.congestion_control == "hpcc" else 0
    outer = extent.outer_bytes
    most = smallest - HEADERS_BYTES - more - outer
    if transport.path_mtu_bytes > most:
        and_more = f", and telemetry takes {more}" if more else ""
        and_more += f", and the outer header {outer}" if outer else ""
        yield Problem(
            ("transport", "path_mtu"),
            str(transport.path_mtu_bytes),
            f"expected at most {most}: there is a link with an MTU of {smallest}{and_more}",
        )


def _timeout(transport: RoceTransport, extent: Extent) -> Iterator[Problem]:
    """A time-out before the first acknowledgement can have come: queue pairs send all again, and
    fail after some times of that, though nothing is lost."""
    packet = transport.path_mtu_bytes + _PACKET_BYTES
    until_asked_ns = 8 * packet * (transport.packets_per_ack - 1) * 10**9 // extent.slowest_bps
    least_ns = extent.base_rtt_ns(packet, _PACKET_BYTES) + until_asked_ns
    if transport.qp_timeout_ns < least_ns:
        yield Problem(
            ("transport", "qp_timeout"),
            format_time(transport.qp_timeout_ns),
            f"expected at least {format_time(-(-least_ns // 1000) * 1000)}: so long "
            f"{transport.packets_per_ack} packets and their acknowledgement take without queues, "
            "on the longest path with the slowest link",
        )


def _switch_queues(fabric: Fabric) -> list[QueueSpec]:
    return [
        port.queue
        for link in fabric.links
        for port in (link.a, link.b)
        if fabric.by_name[port.node].kind is NodeKind.SWITCH or fabric.by_name[port.node].forwards
    ]


def _hpcc(fabric: Fabric, extent: Extent) -> Iterator[Problem]:
    where = ("transport", "congestion_control")
    if extent.links > INT_MAX_HOPS:
        yield Problem(
            where,
            "hpcc",
            f"expected another: its packets have room for {INT_MAX_HOPS} ports, and there is a "
            f"path of {extent.links}",
        )
    for link in fabric.links:
        if link.rate_bps % _INT_RATE_UNIT_BPS or link.rate_bps > _INT_MOST_BPS:
            yield Problem(
                where,
                "hpcc",
                f"expected link rates in whole 100Mbps up to 6553.5Gbps: {link.a.node}-"
                f"{link.b.node} has {link.rate_bps} bits/s",
            )
            return
