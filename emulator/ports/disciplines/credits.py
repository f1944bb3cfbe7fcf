"""Credits: a packet is sent when the far end of the link has a place for it."""

from __future__ import annotations

from dataclasses import replace

from emulator.ports.disciplines.discipline import Discipline, EgressPort
from emulator.ports.port_qdisc import PortOptions, QueueKind
from topologies.fabrics.fabric import Link
from topologies.spec.queue_section import Credits


class EmulatedCredits(Discipline):
    """The far end's buffer."""

    def own(self, queue: Credits, plain: PortOptions, port: EgressPort) -> PortOptions:
        """Its buffer, which every port has."""
        return replace(plain, kind=QueueKind.CREDITS)

    def stock(self, queue: Credits, link: Link) -> tuple[str, bytes] | None:
        """None: no stock qdisc knows what has left the next node."""
        return None

    def acts_at_bytes(self, queue: Credits, link: Link) -> int:
        """When the far end is full."""
        return queue.buffer_bytes


PART = EmulatedCredits()
