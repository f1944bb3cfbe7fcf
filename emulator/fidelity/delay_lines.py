"""Whether delay lines hand packets over when they are due.

A delay line (netem on an intermediate device) counts what has left it; the watch at the port before
it counts what came in. The packets that had come in at one look must have left when the delay has
passed, the line has serialised what the sender's token bucket let through at once, and timers were
as late as they may be.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from emulator.linux.messages.formats import TC_H_ROOT
from emulator.linux.netlink import NetlinkSocket
from emulator.network.network import Network
from emulator.ports.arrangement import PortContext
from emulator.ports.counters import read_qdiscs
from emulator.ports.port_watch import PortWatch
from emulator.ports.token_depth import LATENESS_NS
from topologies.fabrics.fabric import L1_OVERHEAD_BYTES, Link

_LONGEST_LOOK_NS = 200_000_000
"""Lines of links with longer delays are not looked at: a look lasts as long as the delay."""


@dataclass(slots=True)
class DelayLines:
    """Observations of a network's delay lines: at how many looks one held something, and at how
    many of these something left too late."""

    looks: int = 0
    late: int = 0

    @property
    def late_share(self) -> float | None:
        """Share of the looks; None when no line ever held anything."""
        return self.late / self.looks if self.looks else None

    def look(self, network: Network, node: str, netlink: NetlinkSocket) -> None:
        """Looks once at all delay lines of a node. Takes as long as the longest of their delays."""
        watch = network.watch
        lines = [
            context
            for context in network.contexts(node)
            if context.delay_device is not None and _due_ns(context.link) <= _LONGEST_LOOK_NS
        ]
        if watch is None or not lines:
            return
        came = [_came_in(watch, context) for context in lines]
        since_ns = time.monotonic_ns()
        held = [before < count for before, count in zip(_left(netlink, lines), came, strict=True)]
        if not any(held):
            return
        due_ns = since_ns + max(_due_ns(context.link) for context in lines)
        time.sleep(max(0, due_ns - time.monotonic_ns()) / 1e9)
        for was_held, count, left in zip(held, came, _left(netlink, lines), strict=True):
            self.looks += was_held
            self.late += was_held and left < count


def _due_ns(link: Link) -> int:
    """When a packet must have left at the latest, after it came in."""
    frame_ns = 8 * 10**9 * (link.frame_bytes + L1_OVERHEAD_BYTES) // link.rate_bps
    return link.delay_ns + 2 * frame_ns + 2 * LATENESS_NS


def _came_in(watch: PortWatch, context: PortContext) -> int:
    """Packets that came out of the shaper at the other end of a port's link."""
    return watch.sent_packets(context.link, context.link.other(context.port.node))


def _left(netlink: NetlinkSocket, lines: list[PortContext]) -> list[int]:
    """Packets that each line has handed over or, where a fault has it so, lost."""
    qdiscs = read_qdiscs(netlink)
    return [
        sum(
            qdisc.sent_packets + qdisc.drops
            for qdisc in qdiscs.get(context.delay_device or 0, [])
            if qdisc.parent == TC_H_ROOT
        )
        for context in lines
    ]
