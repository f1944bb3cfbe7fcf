"""CoDel (RFC 8289): what waits too long is marked or dropped."""

from __future__ import annotations

from dataclasses import replace

from emulator.linux.messages import formats
from emulator.linux.messages.template import Template
from emulator.ports.disciplines.discipline import Discipline, EgressPort
from emulator.ports.port_qdisc import NEVER, NO_FLAGS, Flag, PortOptions, QueueKind
from topologies.fabrics.fabric import Link
from topologies.spec.queue_section import Codel


class EmulatedCodel(Discipline):
    """By how long packets waited."""

    def own(self, queue: Codel, plain: PortOptions, port: EgressPort) -> PortOptions:
        """One queue."""
        threshold_ns = queue.ce_threshold_ns
        return replace(
            plain,
            kind=QueueKind.CODEL,
            target_ns=queue.target_ns,
            interval_ns=queue.interval_ns,
            ce_threshold_ns=NEVER if threshold_ns is None else threshold_ns,
            flags=Flag.ECN if queue.ecn else NO_FLAGS,
        )

    def stock(self, queue: Codel, link: Link) -> tuple[str, bytes]:
        """codel, whose times are whole microseconds and whose limit counts packets."""
        options = formats.CODEL.fill(*times_and_limit(queue, link))
        return "codel", with_ce_threshold(options, queue, formats.CODEL_CE)

    def acts_at_bytes(self, queue: Codel, link: Link) -> int:
        """The bytes that the link sends in the least time that counts."""
        target_ns = queue.target_ns
        if queue.ce_threshold_ns is not None:
            target_ns = min(target_ns, queue.ce_threshold_ns)
        return link.rate_bps * target_ns // (8 * 10**9)


PART = EmulatedCodel()


def times_and_limit(queue: Codel, link: Link) -> tuple[int, int, int, int]:
    """The first options of codel and fq_codel: target, limit in packets, interval, and
    whether it marks."""
    return (
        _microseconds(queue.target_ns),
        max(1, queue.buffer_bytes // link.frame_bytes),
        _microseconds(queue.interval_ns),
        int(queue.ecn),
    )


def with_ce_threshold(options: bytes, queue: Codel, attribute: Template) -> bytes:
    """Options with the threshold above which all is marked, where the queue has one."""
    if queue.ce_threshold_ns is None:
        return options
    return options + attribute.fill(_microseconds(queue.ce_threshold_ns))


def _microseconds(time_ns: int) -> int:
    return max(1, round(time_ns / 1000))
