"""Virtual output queues: one for each ingress port, served by deficit round robin.

Natively it needs to know of the switch's other ports: `emulator/switches/stock_switch.py`.
"""

from __future__ import annotations

from dataclasses import replace

from emulator.ports.disciplines.discipline import Discipline, EgressPort
from emulator.ports.port_qdisc import PortOptions, QueueKind, threshold_option
from topologies.fabrics.fabric import Link
from topologies.spec.queue_section import Voq


class EmulatedVoq(Discipline):
    """Several queues."""

    def own(self, queue: Voq, plain: PortOptions, port: EgressPort) -> PortOptions:
        """A queue for each ingress port, and one more for what the node itself sends."""
        return replace(
            plain,
            kind=QueueKind.VOQ,
            queues=port.ingress_ports + 1,
            quantum_bytes=port.link.frame_bytes,
            k_bytes=threshold_option(queue.k_bytes),
        )

    def stock(self, queue: Voq, link: Link) -> tuple[str, bytes] | None:
        """It needs its whole switch."""
        return None

    def acts_at_bytes(self, queue: Voq, link: Link) -> int:
        """K, or when they are full."""
        return queue.k_bytes or queue.buffer_bytes


PART = EmulatedVoq()
