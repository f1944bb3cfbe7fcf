"""Lossless queues: priority flow control, XOFF and XON (IEEE 802.1Qbb).

Natively a process closes and opens plugs: `emulator/switches/pause_controller.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from emulator.ports.disciplines.discipline import Discipline, EgressPort
from emulator.ports.port_qdisc import PortOptions, QueueKind, threshold_option
from topologies.fabrics.fabric import Link, headroom_bytes
from topologies.spec.queue_section import CLASSES, Lossless
from topologies.units import q32


class EmulatedLossless(Discipline):
    """Pauses."""

    def own(self, queue: Lossless, plain: PortOptions, port: EgressPort) -> PortOptions:
        """Thresholds of the ingress side, and the headroom behind them."""
        given = queue.headroom_bytes
        return replace(
            plain,
            kind=QueueKind.LOSSLESS,
            xoff_bytes=queue.xoff_bytes,
            xon_bytes=queue.xon_bytes,
            headroom_bytes=headroom_bytes(port.link) if given is None else given,
            k_bytes=threshold_option(queue.k_bytes),
            kmin_bytes=queue.kmin_bytes or 0,
            kmax_bytes=queue.kmax_bytes or 0,
            red_pmax_q32=q32(queue.pmax),
            lossy_classes=_class_mask(queue.lossy_priorities),
        )

    def stock(self, queue: Lossless, link: Link) -> tuple[str, bytes] | None:
        """It needs its whole switch."""
        return None

    def acts_at_bytes(self, queue: Lossless, link: Link) -> int:
        """XOFF, or the step."""
        return min(queue.xoff_bytes, queue.k_bytes or queue.xoff_bytes)


PART = EmulatedLossless()


def _class_mask(priorities: Sequence[int]) -> int:
    for priority in priorities:
        if not 0 <= priority < CLASSES:
            raise ValueError(f"a priority is from 0 to {CLASSES - 1}, not {priority}")
    return sum(1 << priority for priority in set(priorities))
