"""CoDel (RFC 8289) and FQ-CoDel (RFC 8290): what waits too long is marked or dropped."""

from __future__ import annotations

from dataclasses import replace

from emulator.linux.netlink import u32
from emulator.ports.disciplines.discipline import EgressPort
from emulator.ports.port_qdisc import NEVER, NO_FLAGS, Flag, PortOptions, QueueKind
from topologies.fabrics.fabric import Link
from topologies.spec.queue_section import Codel, FqCodel

_TARGET, _LIMIT, _INTERVAL, _ECN, _CE = 1, 2, 3, 4, 5
_FQ_FLOWS, _FQ_QUANTUM, _FQ_CE = 6, 7, 8


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
    options = u32(_TARGET, _microseconds(queue.target_ns))
    options += u32(_LIMIT, max(1, queue.buffer_bytes // link.frame_bytes))
    options += u32(_INTERVAL, _microseconds(queue.interval_ns))
    options += u32(_ECN, int(queue.ecn))
    flows = isinstance(queue, FqCodel)
    if isinstance(queue, FqCodel):
        options += u32(_FQ_FLOWS, queue.flows)
        options += u32(_FQ_QUANTUM, queue.quantum_bytes or link.frame_bytes)
    if queue.ce_threshold_ns is not None:
        options += u32(_FQ_CE if flows else _CE, _microseconds(queue.ce_threshold_ns))
    return "fq_codel" if flows else "codel", options


def _microseconds(time_ns: int) -> int:
    return max(1, round(time_ns / 1000))
