"""FQ-CoDel (RFC 8290): CoDel in a queue for each flow, served by deficit round robin."""

from __future__ import annotations

from dataclasses import replace

from emulator.linux.messages import formats
from emulator.ports.disciplines.codel import EmulatedCodel, times_and_limit, with_ce_threshold
from emulator.ports.disciplines.discipline import EgressPort
from emulator.ports.port_qdisc import PortOptions, QueueKind
from topologies.fabrics.fabric import Link
from topologies.spec.queue_section import FqCodel


class EmulatedFqCodel(EmulatedCodel):
    """Several CoDel queues."""

    def own(self, queue: FqCodel, plain: PortOptions, port: EgressPort) -> PortOptions:  # type: ignore[override]
        """One for each hash of a flow."""
        return replace(
            super().own(queue, plain, port),
            kind=QueueKind.FQ_CODEL,
            queues=queue.flows,
            quantum_bytes=queue.quantum_bytes or port.link.frame_bytes,
        )

    def stock(self, queue: FqCodel, link: Link) -> tuple[str, bytes]:  # type: ignore[override]
        """fq_codel, as `codel`."""
        quantum = queue.quantum_bytes or link.frame_bytes
        options = formats.FQ_CODEL.fill(*times_and_limit(queue, link), queue.flows, quantum)
        return "fq_codel", with_ce_threshold(options, queue, formats.FQ_CODEL_CE)


PART = EmulatedFqCodel()
