"""`transport: {kind: tcp}` in a spec, which is the default."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from topologies.spec.fabric_section import Integer
from topologies.spec.transports.connections import SMALLEST_PART_BYTES, Connections
from topologies.spec.transports.section import TransportSection
from topologies.units import SizeBytes, TimeNs

BUFFER_LIMIT_BYTES = 2**31 - 1
"""The socket buffer sysctls are signed 32-bit integers."""


class SocketsTransport(TransportSection):
    """TCP's keys, which all have whose ranks send by sockets.

    `ecn` None negotiates it when the congestion control is dctcp or a queue marks.
    `min_rto` is the route's rto_min (200 ms is Linux's TCP_RTO_MIN), `initial_window` the route's
    initcwnd in segments (10: RFC 6928).

    Two ranks have so many `connections` for messages of programs: a message is `split` over all of
    them, in parts of at least `smallest_part`, or `messages` go whole, each by one of them.
    """

    of_programs: ClassVar[bool] = False
    congestion_control: Literal["cubic", "dctcp", "bbr", "reno"] = "cubic"
    rcvbuf_bytes: SizeBytes = Field(
        default=16_000_000, alias="rcvbuf", ge=4096, le=BUFFER_LIMIT_BYTES
    )
    sndbuf_bytes: SizeBytes = Field(
        default=16_000_000, alias="sndbuf", ge=4096, le=BUFFER_LIMIT_BYTES
    )
    ecn: Annotated[bool, Field(strict=True)] | None = None
    min_rto_ns: TimeNs = Field(default=200_000_000, alias="min_rto", ge=1_000_000)
    initial_window: Integer = Field(default=10, ge=1, le=1000)
    connections: Integer = Field(default=1, ge=1, le=64)
    spread: Literal["split", "messages"] = "split"
    smallest_part_bytes: SizeBytes = Field(
        default=SMALLEST_PART_BYTES, alias="smallest_part", ge=1, le=BUFFER_LIMIT_BYTES
    )

    @property
    def between_ranks(self) -> Connections:
        """Sockets, by which a split message goes in parts of any size from the smallest on."""
        return Connections(
            self.connections, self.spread == "split", least_bytes=self.smallest_part_bytes
        )


class TcpTransport(SocketsTransport):
    """TCP as the hosts run it."""

    kind: Literal["tcp"] = "tcp"

    @property
    def tcp(self) -> TcpTransport:
        """Itself."""
        return self

    def words(self, ecn: bool) -> str:
        """With its congestion control."""
        return f"TCP, {self.congestion_control}" + (", ECN" if ecn else "")


PART = TcpTransport
