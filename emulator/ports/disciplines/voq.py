"""Virtual output queues: one for each ingress port, served by deficit round robin.

Natively it needs to know of the switch's other ports: `emulator/switches/stock_switch.py`.
"""

from __future__ import annotations

from dataclasses import replace

from emulator.ports.disciplines.discipline import EgressPort
from emulator.ports.port_qdisc import PortOptions, QueueKind, threshold_option
from topologies.spec.queue_section import Voq


def own(queue: Voq, plain: PortOptions, port: EgressPort) -> PortOptions:
    """A queue for each ingress port, and one more for what the node itself sends."""
    return replace(
        plain,
        kind=QueueKind.VOQ,
        queues=port.ingress_ports + 1,
        quantum_bytes=port.link.frame_bytes,
        k_bytes=threshold_option(queue.k_bytes),
    )
