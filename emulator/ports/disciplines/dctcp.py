"""DCTCP's step marking: every packet above K bytes of queue (RFC 8257, section 3.1)."""

from __future__ import annotations

from dataclasses import replace

from emulator.ports.disciplines.discipline import Discipline, EgressPort
from emulator.ports.disciplines.red import red_options
from emulator.ports.port_qdisc import PortOptions, QueueKind
from topologies.fabrics.fabric import Link
from topologies.spec.queue_section import Dctcp


class EmulatedDctcp(Discipline):
    """One threshold."""

    def own(self, queue: Dctcp, plain: PortOptions, port: EgressPort) -> PortOptions:
        """A step at K."""
        return replace(plain, kind=QueueKind.DCTCP, k_bytes=queue.k_bytes)

    def stock(self, queue: Dctcp, link: Link) -> tuple[str, bytes]:
        """RED on the queue itself, not its average, with both thresholds at K."""
        k_bytes = queue.k_bytes + 1  # RED acts from its threshold on, the step above it
        return "red", red_options(link, queue.buffer_bytes, k_bytes, k_bytes, 1, 0, True)

    def acts_at_bytes(self, queue: Dctcp, link: Link) -> int:
        """K."""
        return queue.k_bytes


PART = EmulatedDctcp()
