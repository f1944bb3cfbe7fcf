"""Queues made of the kernel's own qdiscs, for the native kernel: the nearest to each `QueueSpec`.

At the sender's egress a token bucket (tbf) holds the rate and, as its child, the queue and its AQM.
At the receiver's ingress an IFB with netem serialises once more and then delays: a packet that
finds the link idle, which a token bucket lets go at once, gets its serialisation there, and packets
in flight are never counted as queued. `benchmarks/stock_deviation.py` measures how far each
discipline deviates from the port qdisc (benchmarks/results/2026-11-21-stock-queues.md).

Queues that must know of the other ports of their switch are in `emulator/switches/stock_switch.py`.

Each discipline's qdisc is in `emulator/ports/disciplines/`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from emulator.linux.messages.formats import (
    CODEL_STATISTICS,
    FQ_CODEL_STATISTICS,
    RED_STATISTICS,
    TC_H_ROOT,
)
from emulator.linux.netlink import Request
from emulator.linux.rtnetlink import change_qdisc, qdisc, redirect_ingress
from emulator.ports.arrangement import (
    Impairment,
    PortContext,
    QdiscStatistics,
    QueueCounters,
    UnsupportedPort,
    WithoutPauseController,
    netem_options,
    root_drops,
    tbf_options,
)
from emulator.ports.disciplines import BY_KIND
from emulator.ports.token_depth import token_depth_bytes
from topologies.fabrics.fabric import Fabric, Link
from topologies.spec.queue_section import Classes, QueueSpec

SHAPER_HANDLE, SHAPER_CLASS, QUEUE_HANDLE = 0x10000, 0x10001, 0x20000
_MARKS = {
    "red": RED_STATISTICS.reader("marked"),
    "codel": CODEL_STATISTICS.reader("ecn_mark", "ce_mark"),
    "fq_codel": FQ_CODEL_STATISTICS.reader("ecn_mark", "ce_mark"),
}
"""A reader of the count of marked packets in a qdisc's own statistics."""
_DELAY_LINE_BYTES = 10**10
"""So much that a delay line never drops: the queue is before it."""


@dataclass(frozen=True)
class StockArrangement(WithoutPauseController):
    """A token bucket with the queue at the egress, a delay line at the far end's ingress.

    `lateness_ns` is the lateness that the bucket makes up for; the delay line serialises once more,
    so that the bytes that an idle port lets through at once still arrive at the link's rate.
    """

    name: str = "stock"
    needs_delay_device: bool = True
    cuts_links: bool = False
    lateness_ns: int = 0
    delays_at_sender: bool = False
    needs_fillers: bool = False

    def requests(self, context: PortContext) -> Sequence[Request]:
        """The port's shaper and queue, and the delay line for what arrives at it."""
        link, port, index = context.link, context.port, context.ifindex
        shaper = qdisc(
            index,
            "tbf",
            TC_H_ROOT,
            SHAPER_HANDLE,
            self._shaper(link, port.queue),
            port.interface,
        )
        kind, options = stock_queue(port.queue, link, port.interface)
        queue = qdisc(index, kind, SHAPER_CLASS, QUEUE_HANDLE, options, port.interface)
        return (shaper, queue, *delay_line(context))

    def _shaper(self, link: Link, queue: QueueSpec) -> bytes:
        depth = token_depth_bytes(link, queue, self.lateness_ns)
        return tbf_options(link, queue.buffer_bytes, depth)

    def counters(self, context: PortContext, qdiscs: Sequence[QdiscStatistics]) -> QueueCounters:
        """Drops of the shaper (its queue's are in them) and marks of its queue."""
        drops = root_drops(qdiscs, "tbf")
        return QueueCounters(
            drops=drops,
            drops_by_reason={"queue": drops} if drops else {},
            ecn_marks=sum(marks_of(q) for q in qdiscs),
        )

    def impair(self, context: PortContext, impairment: Impairment) -> Sequence[Request]:
        """Another rate for the shaper; loss and delay in the delay line of what arrives, which is
        the other direction: faults are on both."""
        shaper = self._shaper(impairment.link, context.port.queue)
        return impair_port(context, impairment, shaper)


def impair_port(
    context: PortContext, impairment: Impairment, shaper: bytes
) -> tuple[Request, Request]:
    """The changes of a port that has a token bucket with the options `shaper` and a delay line.
    Raises UnsupportedPort without a device."""
    if context.delay_device is None:
        raise UnsupportedPort(f"{context.port.interface}: its delay line needs a device (ifb)")
    link, name = impairment.link, context.port.interface
    delay = netem_options(link, _DELAY_LINE_BYTES, impairment.loss, impairment.corruption)
    return (
        change_qdisc(context.ifindex, "tbf", TC_H_ROOT, SHAPER_HANDLE, shaper, name),
        change_qdisc(context.delay_device, "netem", TC_H_ROOT, SHAPER_HANDLE, delay, name),
    )


def needed_qdiscs(fabric: Fabric) -> frozenset[str]:
    """The stock qdiscs that `StockArrangement` makes a fabric of. Raises UnsupportedPort for a
    queue that it cannot make at all."""
    kinds = {
        stock_queue(port.queue, link, port.interface)[0]
        for link in fabric.links
        for port in (link.a, link.b)
    }
    return frozenset({"tbf", "netem", "clsact", *kinds})


def delay_line(context: PortContext) -> tuple[Request, Request, Request]:
    """The delay of all that arrives at a port: the netem of its intermediate device, the port's
    hooks, and the redirection from one to the other. Raises UnsupportedPort without a device."""
    link, name = context.link, context.port.interface
    if context.delay_device is None:
        raise UnsupportedPort(f"{name}: its delay line needs a device (ifb)")
    netem = qdisc(
        context.delay_device,
        "netem",
        TC_H_ROOT,
        SHAPER_HANDLE,
        netem_options(link, _DELAY_LINE_BYTES),
        f"the delay line of {name}",
    )
    return (netem, *redirect_ingress(context.ifindex, context.delay_device, name))


def marks_of(statistics: QdiscStatistics) -> int:
    """How many packets a qdisc has marked; 0 for one that marks none."""
    read = _MARKS.get(statistics.kind)
    return sum(read(statistics.application)) if read and statistics.application else 0


def stock_queue(queue: QueueSpec, link: Link, interface: str) -> tuple[str, bytes]:
    """The qdisc kind and options that come nearest. Raises UnsupportedPort where none does."""
    made = None if isinstance(queue, Classes) else BY_KIND[queue.kind].stock(queue, link)
    if made is None:
        raise UnsupportedPort(
            f"{interface}: a {queue.kind} queue has no equivalent among stock qdiscs alone"
        )
    return made
