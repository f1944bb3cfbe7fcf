"""Drop-tail: first in, first out, and what finds no room is dropped."""

from __future__ import annotations

from emulator.linux.messages import formats
from emulator.ports.disciplines.discipline import Discipline, EgressPort
from emulator.ports.port_qdisc import PortOptions
from topologies.fabrics.fabric import Link
from topologies.spec.queue_section import DropTail


class EmulatedDropTail(Discipline):
    """The options that every port has."""

    def own(self, queue: DropTail, plain: PortOptions, port: EgressPort) -> PortOptions:
        """The part that every port has."""
        return plain

    def stock(self, queue: DropTail, link: Link) -> tuple[str, bytes]:
        """bfifo, which counts bytes."""
        return "bfifo", formats.BFIFO.fill(queue.buffer_bytes)

    def acts_at_bytes(self, queue: DropTail, link: Link) -> int:
        """When it is full."""
        return queue.buffer_bytes


PART = EmulatedDropTail()
