"""A queue discipline in a kernel: by the port qdisc, and by the stock qdisc that comes nearest."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from emulator.ports.port_qdisc import PortOptions
from topologies.fabrics.fabric import Link


@dataclass(frozen=True, slots=True)
class EgressPort:
    """A port with a queue: one end of `link`, on a node of so many ports, and its number among
    them."""

    link: Link
    ingress_ports: int
    number: int = 0


class Discipline(ABC):
    """One discipline. `queue` is its section of the spec."""

    @abstractmethod
    def own(self, queue: Any, plain: PortOptions, port: EgressPort) -> PortOptions:
        """The options of the port qdisc (`emulator/kernel/`) that make the queue. `plain` has what
        all disciplines share: rate, delay, buffer and seed."""

    @abstractmethod
    def stock(self, queue: Any, link: Link) -> tuple[str, bytes] | None:
        """The kind and the options of the nearest stock qdisc; None where none alone makes the
        queue: it needs its whole switch (`emulator/switches/stock_switch.py`), or there is none."""

    @abstractmethod
    def acts_at_bytes(self, queue: Any, link: Link) -> int:
        """The least backlog at which the queue marks, drops or pauses."""
