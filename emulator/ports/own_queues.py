"""A `QueueSpec` on a link becomes the options of the port qdisc, and its statistics the counters of
`links.jsonl`: the arrangement of the virtual kernel, where one qdisc is the whole port.

The native kernel's nearest arrangements of stock qdiscs are in `emulator/ports/stock_queues.py` and
`emulator/switches/stock_switch.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from emulator.linux.netlink import Request
from emulator.ports.arrangement import (
    ClassCounters,
    Impairment,
    PortContext,
    QdiscStatistics,
    QueueCounters,
    WithoutPauseController,
)
from emulator.ports.disciplines import BY_KIND, EgressPort
from emulator.ports.port_qdisc import (
    NO_FLAGS,
    QDISC,
    Flag,
    PortOptions,
    PortStatistics,
    QueueKind,
    parse_statistics,
)
from topologies.fabrics.fabric import L1_OVERHEAD_BYTES, Fabric, Link, NodeKind
from topologies.fabrics.port_seed import port_seed
from topologies.spec.queue_section import (
    CLASSES,
    Classes,
    ClassQueue,
    QueueSpec,
    TrafficClass,
    trims,
)
from topologies.units import q32

SAMPLE_CAPACITY = 1 << 20
"""Samples of a port that are kept until somebody reads them, at most."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """Samples of `ports` (interfaces) every `interval_ns`, where something changed: `capacity` of
    each. One that has no room for more is sampled at twice the interval from then on, also of what
    was before, where sampling `coarsens`; else later ones are lost, and counted."""

    interval_ns: int
    ports: frozenset[str]
    capacity: int = SAMPLE_CAPACITY
    coarsens: bool = False


@dataclass(frozen=True)
class QueueArrangement(WithoutPauseController):
    """The port qdisc on every egress port of a fabric."""

    fabric: Fabric
    seed: int = 1
    sampling: Sampling | None = None
    name: str = QDISC
    needs_delay_device: bool = False
    lateness_ns: int = 0
    delays_at_sender: bool = True
    needs_fillers: bool = False
    cuts_links: bool = True

    def options(self, context: PortContext) -> PortOptions:
        """The options of the port's qdisc."""
        interface, node = context.port.interface, context.port.node
        options = port_options(
            context.port.queue,
            context.link,
            ingress_ports=len(self.fabric.links_of[node]),
            seed=port_seed(self.seed, interface),
            number=[link.index for link in self.fabric.links_of[node]].index(context.link.index),
        )
        if self.fabric.by_name[context.link.other(node).node].kind is NodeKind.HOST:
            options = replace(options, flags=options.flags | Flag.LAST)
        if self.sampling is not None and interface in self.sampling.ports:
            options = replace(
                options,
                sample_interval_ns=self.sampling.interval_ns,
                sample_capacity=self.sampling.capacity,
                flags=options.flags | (Flag.COARSEN if self.sampling.coarsens else NO_FLAGS),
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
            trims=statistics.trims,
            classes=class_counters(context.port.queue, statistics),
        )


def port_statistics(qdiscs: Sequence[QdiscStatistics]) -> PortStatistics:
    """The statistics of the port qdisc among an interface's qdiscs. Raises LookupError."""
    for found in qdiscs:
        if found.kind == QDISC:
            return parse_statistics(found.application)
    raise LookupError(f"no {QDISC} qdisc among {[found.kind for found in qdiscs]}")


def port_options(
    queue: QueueSpec, link: Link, ingress_ports: int, seed: int, number: int = 0
) -> PortOptions:
    """The qdisc options of one end of `link` with this queue, on a node of so many ports: of the
    port of this number."""
    where = EgressPort(link, ingress_ports, number)
    plain = PortOptions(
        kind=QueueKind.DROPTAIL,
        rate_bps=link.rate_bps,
        delay_ns=link.delay_ns,
        buffer_bytes=queue.buffer_bytes,
        seed=seed,
    )
    if not isinstance(queue, Classes):
        return _own(queue, plain, where)
    weights = [each.weight for each in queue.classes.values() if each.weight is not None]

    def of_class(served: TrafficClass) -> PortOptions:
        one = replace(plain, buffer_bytes=served.queue.buffer_bytes)
        options = _own(served.queue, one, where)
        if served.weight is None:
            return options
        quantum = (link.frame_bytes + L1_OVERHEAD_BYTES) * served.weight // min(weights)
        return replace(options, class_quantum_bytes=quantum)

    served = [queue.of(priority) for priority in range(CLASSES)]
    return replace(
        plain,
        class_map=sum(each.priority << 4 * number for number, each in enumerate(served)),
        classes=tuple(map(of_class, served)),
    )


def _own(queue: ClassQueue, plain: PortOptions, where: EgressPort) -> PortOptions:
    """The options of a queue's discipline."""
    options = BY_KIND[queue.kind].own(queue, plain, where)
    return replace(options, flags=options.flags | Flag.TRIM) if trims(queue) else options


def class_counters(queue: QueueSpec, statistics: PortStatistics) -> tuple[ClassCounters, ...]:
    """The counters of each class of a port: those of its spec, else the class selectors that were
    seen, when there were others than 0."""
    if isinstance(queue, Classes):
        named = {each.priority: name for name, each in queue.classes.items()}
    else:
        seen = (statistics.class_tx_packets, statistics.class_drops)
        used = [n for n in range(CLASSES) if any(counts[n] for counts in seen)]
        named = dict.fromkeys(used, "") if any(used) else {}
    return tuple(
        ClassCounters(
            name=name,
            priority=n,
            bytes=statistics.class_tx_bytes[n],
            packets=statistics.class_tx_packets[n],
            drops=statistics.class_drops[n],
            ecn_marks=statistics.class_ecn_marks[n],
            paused_ns=statistics.class_paused_ns[n],
            max_backlog_bytes=statistics.class_max_backlog_bytes[n],
        )
        for n, name in sorted(named.items())
    )
