"""CoDel (RFC 8289) and FQ-CoDel (RFC 8290): what waits too long is marked or dropped."""

from __future__ import annotations

from dataclasses import replace

from emulator.linux.messages import formats
from emulator.ports.disciplines.discipline import EgressPort
from emulator.ports.port_qdisc import NEVER, NO_FLAGS, Flag, PortOptions, QueueKind
from topologies.fabrics.fabric import Link
from topologies.spec.queue_section import Codel, FqCodel


def own(queue: Codel, plain: PortOptions, port: EgressPort) -> PortOptions:
    """One queue, or one for each flow."""
    threshold_ns = queue.ce_threshold_ns
    codel = replace(
        plain,
        kind=QueueKind.CODEL,
        target_ns=queue.target_ns,
        interval_ns=queue.interval_ns,
        ce_threshold_ns=NEVER if threshold_ns is None else threshold_ns,
        flags=Flag.ECN if queue.ecn else NO_FLAGS,
    )
    if not isinstance(queue, FqCodel):
        return codel
    return replace(
        codel,
        kind=QueueKind.FQ_CODEL,
        queues=queue.flows,
        quantum_bytes=queue.quantum_bytes or port.link.frame_bytes,
    )


def stock(queue: Codel, link: Link) -> tuple[str, bytes]:
    """codel or fq_codel, whose times are whole microseconds and whose limit counts packets."""
    values = (
        _microseconds(queue.target_ns),
        max(1, queue.buffer_bytes // link.frame_bytes),
        _microseconds(queue.interval_ns),
        int(queue.ecn),
    )
    if isinstance(queue, FqCodel):
        quantum = queue.quantum_bytes or link.frame_bytes
        kind, ce_threshold = "fq_codel", formats.FQ_CODEL_CE
        options = formats.FQ_CODEL.fill(*values, queue.flows, quantum)
    else:
        kind, ce_threshold = "codel", formats.CODEL_CE
        options = formats.CODEL.fill(*values)
    if queue.ce_threshold_ns is not None:
        options += ce_threshold.fill(_microseconds(queue.ce_threshold_ns))
    return kind, options


def _microseconds(time_ns: int) -> int:
    return max(1, round(time_ns / 1000))
