"""What goes over links: segments and acknowledgements of TCP connections."""

from __future__ import annotations

from collections import deque
from typing import Protocol

HEADERS_BYTES = 66
"""Of a frame as Linux counts it: Ethernet 14, IPv4 20, TCP 20, timestamps 12."""

SACK_BYTES, FIRST_SACK_BYTES = 8, 12
"""TCP options of selective acknowledgements (RFC 2018): 4 bytes with padding, and 8 a block."""


LOST, HELD = -1, -2
"""What a port answers for a packet in place of the time at which it leaves."""


class Receives(Protocol):
    """An end of a connection."""

    def receive(self, packet: Packet, now: int) -> None:
        """A packet has arrived."""
        ...


class Leaves(Protocol):
    """A socket that has packets in its host's port."""

    def leaves_port(self, leaves_ns: int, size_bytes: int) -> None:
        """A packet that was held in the port leaves it then."""
        ...


class Sends(Protocol):
    """A directed link with its queue."""

    delay_ns: int
    flying: deque[tuple[int, Packet]]
    """What is on the wire, in order, by when it arrives."""
    ticks: deque[int]
    """When transmissions end of which somebody wants to know."""
    armed_ns: int
    """When its timer fires."""
    armed_as: int
    """The number of the event for that."""
    serves: bool
    """Whether `serve` does something."""

    def serve(self, now: int) -> None:
        """Go on to transmit what waits."""
        ...

    def send(self, packet: Packet, now: int) -> int:
        """Queue a packet. When its last bit leaves; `LOST`, or `HELD` while that is not known."""
        ...


class Packet:
    """A frame: `length` as Linux counts it. `seq` to `end_seq` is its data, nothing for an
    acknowledgement alone."""

    __slots__ = (
        "ack",
        "ce",
        "cwr",
        "dsack",
        "ece",
        "echo_ms",
        "ect",
        "end_seq",
        "hop",
        "length",
        "push",
        "route",
        "sack",
        "sender",
        "seq",
        "stamp_ms",
        "target",
        "window",
    )

    def __init__(
        self,
        route: tuple[Sends, ...],
        target: Receives,
        seq: int,
        end_seq: int,
        ack: int,
        window: int,
    ) -> None:
        self.route = route
        self.target = target
        self.seq = seq
        self.end_seq = end_seq
        self.ack = ack
        self.window = window
        self.hop = 0
        self.length = HEADERS_BYTES + end_seq - seq
        self.ect = False
        self.ce = False
        self.ece = False
        self.cwr = False
        self.push = False
        self.dsack = False
        self.stamp_ms = self.echo_ms = 0
        self.sack: tuple[tuple[int, int], ...] = ()
        self.sender: Leaves | None = None
