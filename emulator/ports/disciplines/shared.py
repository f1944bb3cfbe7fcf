"""A switch's shared memory with dynamic thresholds (Choudhury and Hahne 1998).

Natively it needs to know of the switch's other ports: `emulator/switches/stock_switch.py`.
"""

from __future__ import annotations

from dataclasses import replace

from emulator.ports.disciplines.discipline import EgressPort
from emulator.ports.port_qdisc import PortOptions, QueueKind, threshold_option
from topologies.spec.queue_section import Shared


def own(queue: Shared, plain: PortOptions, port: EgressPort) -> PortOptions:
    """A port may hold alpha times what is free of its switch's memory."""
    return replace(
        plain,
        kind=QueueKind.SHARED,
        alpha_q16=max(1, round(queue.alpha * 2**16)),
        k_bytes=threshold_option(queue.k_bytes),
    )
