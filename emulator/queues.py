"""A `QueueSpec` on a link becomes the options of the port qdisc, and its statistics the counters of
`links.jsonl`: the arrangement of the virtual kernel, where one qdisc is the whole port.

The native kernel's nearest arrangements of stock qdiscs are in `emulator/stock_queues.py` and
`emulator/stock_switch.py`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from emulator.netlink import Request
from emulator.port_qdisc import (
    CLASSES,
    NEVER,
    NO_FLAGS,
    QDISC,
    Flag,
    Kind,
    PortOptions,
    PortStatistics,
    parse_statistics,
    q32,
)
from emulator.ports import (
    Impairment,
    PortContext,
    QdiscStatistics,
    QueueCounters,
    Unattended,
)
from topologies.fabric import PAUSE_FRAME_WIRE_BYTES, Fabric, Link
from topologies.queue_spec import (
    Codel,
    Dctcp,
    DropTail,
    FqCodel,
    Lossless,
    QueueSpec,
    Red,
    Shared,
    Voq,
)

_SAMPLE_CAPACITY = 1 << 18
"""Changes of a port's backlog that are kept until somebody reads them."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """The backlog of `ports` (interfaces), every `interval_ns`."""

    interval_ns: int
    ports: frozenset[str]


@dataclass(frozen=True)
class QueueArrangement(Unattended):
    """The port qdisc on every egress port of a fabric."""

    fabric: Fabric
    seed: int = 1
    sampling: Sampling | None = None
    name: str = QDISC
    needs_delay_device: bool = False
    cuts_links: bool = True

    def options(self, context: PortContext) -> PortOptions:
        """What the port's qdisc is made with."""
        interface, node = context.port.interface, context.port.node
        options = port_options(
            context.port.queue,
            context.link,
            ingress_ports=len(self.fabric.links_of[node]),
            seed=port_seed(self.seed, interface),
        )
        if self.sampling is not None and interface in self.sampling.ports:
            options = replace(
                options,
                sample_interval_ns=self.sampling.interval_ns,
                sample_capacity=_SAMPLE_CAPACITY,
            )
        return options

    def requests(self, context: PortContext) -> Sequence[Request]:
        """One request: the port's root qdisc."""
        return (self.options(context).add(context.ifindex, context.port.interface),)

    def impair(self, context: PortContext, impairment: Impairment) -> Sequence[Request]:
        """One request: the port's qdisc with other options."""
        options = replace(
            self.options(replace(context, link=impairment.link)),
            loss_q32=q32(impairment.loss),
            corrupt_q32=q32(impairment.corruption),
            flags=self.options(context).flags | (Flag.DOWN if impairment.down else NO_FLAGS),
        )
        return (options.change(context.ifindex, context.port.interface),)

    def counters(self, context: PortContext, qdiscs: Sequence[QdiscStatistics]) -> QueueCounters:
        """The port's counters since it was made. Raises LookupError when its qdisc is not there."""
        statistics = port_statistics(qdiscs)
        return QueueCounters(
            drops=statistics.dropped,
            drops_by_reason={k: v for k, v in statistics.drops.items() if v},
            ecn_marks=statistics.ecn_marks,
            pauses=statistics.pauses,
            paused_ns=statistics.paused_ns,
            max_backlog_bytes=statistics.max_backlog_bytes,
            backlog_byte_us=statistics.backlog_byte_us,
            late_packets=statistics.late_packets,
        )


def port_statistics(qdiscs: Sequence[QdiscStatistics]) -> PortStatistics:
    """The statistics of the port qdisc among an interface's qdiscs. Raises LookupError."""
    for found in qdiscs:
        if found.kind == QDISC:
            return parse_statistics(found.application)
    raise LookupError(f"no {QDISC} qdisc among {[found.kind for found in qdiscs]}")


def port_seed(seed: int, interface: str) -> int:
    """The seed of a port's random numbers: other for every port and every seed of a spec."""
    digest = hashlib.sha256(f"{seed}/{interface}".encode()).digest()
    return int.from_bytes(digest[:8], "little")


def headroom_bytes(link: Link) -> int:
    """What may still arrive at an ingress after its XOFF was passed (IEEE 802.1Q annex N, with no
    response time at the sender): the frame that passed it; a frame that the pause frame has to wait
    for, the pause frame itself, its propagation, the frame that the sender had begun, and what was
    on the wire: 2 * rate * delay + 3 frames + one pause frame.
    """
    frame = link.frame_bytes
    on_the_wire = -(-2 * link.rate_bps * link.delay_ns // (8 * 10**9))
    return on_the_wire + 3 * frame + PAUSE_FRAME_WIRE_BYTES


def port_options(queue: QueueSpec, link: Link, ingress_ports: int, seed: int) -> PortOptions:
    """The qdisc options of one end of `link` with this queue, on a node of so many ports."""
    plain = PortOptions(
        kind=Kind.DROPTAIL,
        rate_bps=link.rate_bps,
        delay_ns=link.delay_ns,
        buffer_bytes=queue.buffer_bytes,
        seed=seed,
    )
    frame = link.frame_bytes
    match queue:
        case DropTail():
            return plain
        case Red():
            return replace(
                plain,
                kind=Kind.RED,
                kmin_bytes=queue.kmin_bytes,
                kmax_bytes=queue.kmax_bytes,
                red_pmax_q32=q32(queue.pmax),
                red_weight_q32=q32(queue.weight),
                flags=Flag.ECN if queue.ecn else NO_FLAGS,
            )
        case Dctcp():
            return replace(plain, kind=Kind.DCTCP, k_bytes=queue.k_bytes)
        case Codel():
            threshold = queue.ce_threshold_ns
            codel = replace(
                plain,
                kind=Kind.CODEL,
                target_ns=queue.target_ns,
                interval_ns=queue.interval_ns,
                ce_threshold_ns=NEVER if threshold is None else threshold,
                flags=Flag.ECN if queue.ecn else NO_FLAGS,
            )
            if not isinstance(queue, FqCodel):
                return codel
            return replace(
                codel,
                kind=Kind.FQ_CODEL,
                queues=queue.flows,
                quantum_bytes=queue.quantum_bytes or frame,
            )
        case Shared():
            return replace(
                plain,
                kind=Kind.SHARED,
                alpha_q16=max(1, round(queue.alpha * 2**16)),
                k_bytes=_threshold(queue.k_bytes),
            )
        case Voq():
            # One more for what the node itself sends.
            return replace(
                plain,
                kind=Kind.VOQ,
                queues=ingress_ports + 1,
                quantum_bytes=frame,
                k_bytes=_threshold(queue.k_bytes),
            )
        case Lossless():
            given = queue.headroom_bytes
            return replace(
                plain,
                kind=Kind.LOSSLESS,
                xoff_bytes=queue.xoff_bytes,
                xon_bytes=queue.xon_bytes,
                headroom_bytes=headroom_bytes(link) if given is None else given,
                k_bytes=_threshold(queue.k_bytes),
                lossy_classes=_class_mask(queue.lossy_priorities),
            )


def _threshold(k_bytes: int | None) -> int:
    return NEVER if k_bytes is None else k_bytes


def _class_mask(priorities: Sequence[int]) -> int:
    for priority in priorities:
        if not 0 <= priority < CLASSES:
            raise ValueError(f"a priority is from 0 to {CLASSES - 1}, not {priority}")
    return sum(1 << priority for priority in set(priorities))
