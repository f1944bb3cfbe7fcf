"""What RoCE asks of the fabric under it."""

from __future__ import annotations

from collections.abc import Iterator

from topologies.fabrics.fabric import Fabric, NodeKind
from topologies.routing.extent import Extent, longest_path
from topologies.spec.errors import Problem
from topologies.spec.queue_section import Lossless, QueueSpec, marks
from topologies.spec.roce.section import INT_MAX_HOPS, RoceTransport
from topologies.spec.sections import Sections

HEADERS_BYTES = 80
"""RXE_MAX_HDR_LENGTH of Linux's rxe: a port's largest path MTU leaves so much of its MTU."""

_INT_RATE_UNIT_BPS = 100_000_000
_INT_MOST_BPS = 65_535 * _INT_RATE_UNIT_BPS


def telemetry_bytes(extent: Extent) -> int:
    """What HPCC's packets carry behind their datagrams (emulator/kernel/gwport_int.h)."""
    return 4 + 12 * extent.links


def roce_problems(spec: Sections, fabric: Fabric) -> Iterator[Problem]:
    """Disagreements of a spec's transport with its fabric; none for TCP."""
    transport = spec.transport
    if not isinstance(transport, RoceTransport):
        return
    extent = longest_path(fabric)
    yield from _path_mtu(transport, fabric, extent)
    queues = _switch_queues(fabric)
    if transport.congestion_control == "dcqcn" and not any(map(marks, queues)):
        yield Problem(
            ("transport", "congestion_control"),
            "dcqcn",
            "expected queues that mark, as nothing would slow a queue pair down: dctcp, red with "
            "ecn, or lossless with k, or kmin and kmax",
        )
    if transport.congestion_control == "dcqcn" and transport.ecn is False:
        yield Problem(
            ("transport", "ecn"), "false", "expected true with dcqcn: ports mark no other"
        )
    yield from _lost(spec, queues)
    if transport.congestion_control == "hpcc":
        yield from _hpcc(fabric, extent)


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
    """What the spec says of classes of RoCE."""
    assert isinstance(spec.transport, RoceTransport)
    jobs = [job.traffic_class for job in spec.jobs]
    return [spec.traffic_class, spec.transport.traffic_class, *jobs]


def _path_mtu(transport: RoceTransport, fabric: Fabric, extent: Extent) -> Iterator[Problem]:
    smallest = min((link.mtu_bytes for link in fabric.links), default=2**16)
    more = telemetry_bytes(extent) if transport.congestion_control == "hpcc" else 0
    most = smallest - HEADERS_BYTES - more
    if transport.path_mtu_bytes > most:
        and_more = f", and telemetry takes {more}" if more else ""
        yield Problem(
            ("transport", "path_mtu"),
            str(transport.path_mtu_bytes),
            f"expected at most {most}: there is a link with an MTU of {smallest}{and_more}",
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
