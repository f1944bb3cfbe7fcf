"""A switch's shared memory with dynamic thresholds (Choudhury and Hahne 1998).

Natively it needs to know of the switch's other ports: `emulator/switches/stock_switch.py`.
"""

from __future__ import annotations

from dataclasses import replace

from emulator.ports.disciplines.discipline import Discipline, EgressPort
from emulator.ports.port_qdisc import PortOptions, QueueKind, threshold_option
from topologies.fabrics.fabric import Link
from topologies.spec.queue_section import Shared


class EmulatedShared(Discipline):
    """A share of the switch's memory."""

    def own(self, queue: Shared, plain: PortOptions, port: EgressPort) -> PortOptions:
        """A port may hold alpha times what is free of its switch's memory."""
        return replace(
            plain,
            kind=QueueKind.SHARED,
            alpha_q16=max(1, round(queue.alpha * 2**16)),
            k_bytes=threshold_option(queue.k_bytes),
        )

    def stock(self, queue: Shared, link: Link) -> tuple[str, bytes] | None:
        """It needs its whole switch."""
        return None

    def acts_at_bytes(self, queue: Shared, link: Link) -> int:
        """K, or the whole memory."""
        return queue.k_bytes or queue.buffer_bytes


PART = EmulatedShared()
