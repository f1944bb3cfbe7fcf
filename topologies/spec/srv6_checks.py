"""Checks of segment routing against the fabric, the transport and the faults of a spec."""

from __future__ import annotations

from collections.abc import Iterator

from topologies.fabrics.fabric import Fabric
from topologies.routing.choices import MOST_NEXT_HOPS
from topologies.routing.routes import compute_routes
from topologies.routing.segments import (
    LEAST_MTU_BYTES,
    MOST_SEGMENTS,
    segments_of,
    too_many_nodes,
)
from topologies.spec.errors import Problem
from topologies.spec.routing_section import Srv6
from topologies.spec.sections import Sections
from topologies.spec.transports.checks import fabric_trims
from topologies.spec.transports.roce.section import RoceTransport

_KEY = ("fabric", "routing", "kind")
_TRANSPORTS = ("tcp", "mptcp", "roce", "mrc")


def srv6_problems(spec: Sections, fabric: Fabric) -> Iterator[Problem]:
    """The disagreements of a spec whose hosts write segments; none of others."""
    if not isinstance(fabric.choice, Srv6):
        return
    if spec.transport.kind not in _TRANSPORTS:
        yield Problem(
            ("transport", "kind"),
            spec.transport.kind,
            f"expected {', '.join(_TRANSPORTS)} with fabric.routing.kind: srv6: datagrams would "
            "fill the MTU",
        )
    transport = spec.transport
    if isinstance(transport, RoceTransport) and transport.congestion_control == "hpcc":
        expected = "expected another with fabric.routing.kind: srv6: ports write into bare IPv4"
        yield Problem(("transport", "congestion_control"), "hpcc", expected)
    if fabric_trims(fabric):
        expected = "expected false with fabric.routing.kind: srv6: ports cut bare IPv4"
        yield Problem(("fabric", "queue", "trim"), "true", expected)
    if spec.aggregation is not None:
        expected = "expected none with fabric.routing.kind: srv6: switches write no segments"
        yield Problem(("aggregation",), "a section", expected)
    yield from _fabric_problems(fabric)


def _fabric_problems(fabric: Fabric) -> Iterator[Problem]:
    forwarding = next((host.name for host in fabric.hosts if host.forwards), None)
    if forwarding is not None:
        expected = f"expected hosts that do not forward, as {forwarding} does"
        yield Problem(_KEY, "srv6", expected)
        return
    if too_many_nodes(fabric):
        yield Problem(_KEY, "srv6", "expected fewer nodes than micro-segments of 16 bits")
        return
    joined: set[frozenset[str]] = set()
    for link in fabric.links:
        ends = frozenset((link.a.node, link.b.node))
        if ends in joined:
            expected = f"expected one link between {link.a.node} and {link.b.node}: a "
            yield Problem(_KEY, "srv6", expected + "micro-segment names a node")
            return
        joined.add(ends)
    smallest = min(link.mtu_bytes for link in fabric.links)
    if smallest < LEAST_MTU_BYTES:
        expected = f"expected at least {LEAST_MTU_BYTES} with fabric.routing.kind: srv6 (RFC 8200)"
        yield Problem(("fabric", "link", "mtu"), str(smallest), expected)
    yield from _path_problems(fabric)


def _path_problems(fabric: Fabric) -> Iterator[Problem]:
    """Paths that are too long, or too many. Hosts of a switch have the same to all others."""
    segments = segments_of(compute_routes(fabric))
    of_switch: dict[str, list[str]] = {}
    for host in fabric.hosts:
        first = min(link.other(host.name).node for link in fabric.links_of[host.name])
        of_switch.setdefault(first, []).append(host.name)
    some = [name for hosts in of_switch.values() for name in hosts[:2]]
    for source in some:
        for destination in some:
            paths = segments.paths(source, destination)
            longest = max(map(len, paths), default=0)
            if longest > MOST_SEGMENTS:
                yield Problem(
                    _KEY,
                    "srv6",
                    f"expected at most {MOST_SEGMENTS - 1} switches on a path, which is what one "
                    f"address has room for; {source} has {longest - 1} to {destination}",
                )
                return
            if len(paths) > MOST_NEXT_HOPS:
                yield Problem(
                    _KEY,
                    "srv6",
                    f"expected at most {MOST_NEXT_HOPS} paths, {source} has {len(paths)} to "
                    f"{destination}",
                )
                return
