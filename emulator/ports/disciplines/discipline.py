"""A queue discipline in both its arrangements: the port qdisc's own, and stock qdiscs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from emulator.ports.port_qdisc import PortOptions
from topologies.fabrics.fabric import Link


@dataclass(frozen=True, slots=True)
class EgressPort:
    """Where a queue stands: at one end of `link`, on a node of so many ports."""

    link: Link
    ingress_ports: int


Own = Callable[[Any, PortOptions, EgressPort], PortOptions]
"""(queue, what all disciplines share: rate, delay, buffer and seed; where) -> the options of the
port qdisc (`emulator/kernel/`) that make the queue."""

Stock = Callable[[Any, Link], tuple[str, bytes]]
"""(queue, link) -> the kind and the options of the nearest stock qdisc."""
