"""Drop-tail: first in, first out, and what finds no room is dropped."""

from __future__ import annotations

from emulator.linux.messages import formats
from emulator.ports.disciplines.discipline import EgressPort
from emulator.ports.port_qdisc import PortOptions
from topologies.fabrics.fabric import Link
from topologies.spec.queue_section import DropTail


def own(queue: DropTail, plain: PortOptions, port: EgressPort) -> PortOptions:
    """The part that every port has."""
    return plain


def stock(queue: DropTail, link: Link) -> tuple[str, bytes]:
    """bfifo, which counts bytes."""
    return "bfifo", formats.BFIFO.fill(queue.buffer_bytes)
