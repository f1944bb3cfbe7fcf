"""Cells: queues at the ingress of a switch, credits by request and grant, a fabric inside of it."""

from __future__ import annotations

from dataclasses import replace

from emulator.ports.disciplines.discipline import Discipline, EgressPort
from emulator.ports.port_qdisc import PortOptions, QueueKind, threshold_option
from topologies.fabrics.fabric import Link
from topologies.spec.queue_section import Cells


class EmulatedCells(Discipline):
    """A line card's port."""

    def own(self, queue: Cells, plain: PortOptions, port: EgressPort) -> PortOptions:
        """A queue at each card, and one for what is whole again."""
        return replace(
            plain,
            kind=QueueKind.CELLS,
            queues=queue.cards(port.ingress_ports) + 1,
            quantum_bytes=queue.credit_bytes,
            k_bytes=threshold_option(queue.k_bytes),
            card=port.number // queue.ports,
            fabric_links=queue.links,
            fabric_bps=queue.link_rate_bps,
            fabric_ns=queue.link_delay_ns,
            cell_bytes=queue.cell_bytes,
            cell_header_bytes=queue.header_bytes,
        )

    def stock(self, queue: Cells, link: Link) -> tuple[str, bytes] | None:
        """None: no stock qdisc asks for credits."""
        return None

    def acts_at_bytes(self, queue: Cells, link: Link) -> int:
        """K, or when a card is full."""
        return queue.k_bytes or queue.buffer_bytes


PART = EmulatedCells()
