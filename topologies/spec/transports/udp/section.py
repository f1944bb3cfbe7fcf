"""`transport: {kind: udp}` in a spec."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from topologies.spec.transports.section import TransportSection
from topologies.spec.transports.tcp.section import TcpTransport
from topologies.units import SizeBytes, TimeNs

Whole = Annotated[int, Field(strict=True)]

HEADER_BYTES = 19
"""The header of each datagram (workloads/execution/transports/udp_links.py)."""
IP_UDP_BYTES = 28
"""IPv4 20, UDP 8 (RFC 791, 768)."""


class UdpTransport(TransportSection):
    """Messages of programs as UDP datagrams, which ranks number, acknowledge and send again. TCP
    beside it has its defaults.

    A rank sends to another by turns from so many `ports`, which ECMP takes for as many flows.
    `payload` is the most data of a datagram. `window` bounds what is unacknowledged to one rank: a
    window that grows by a payload each round and is halved when something is sent again. A datagram
    that is not acknowledged within `timeout` is sent again, so many times (`retry_count`).
    """

    of_programs: ClassVar[bool] = True
    kind: Literal["udp"]
    ports: Whole = Field(default=1, ge=1, le=64)
    payload_bytes: SizeBytes = Field(default=1400, alias="payload", ge=64, le=60_000)
    window_bytes: SizeBytes = Field(default=256_000, alias="window", gt=0)
    timeout_ns: TimeNs = Field(default=5_000_000, alias="timeout", ge=10_000)
    retry_count: Whole = Field(default=20, ge=0, le=1000)

    @property
    def tcp(self) -> TcpTransport:
        """With its defaults, for all that is not between programs."""
        return TcpTransport()

    def words(self, ecn: bool) -> str:
        """With the number of ports."""
        return f"UDP, {self.ports} port{'s' if self.ports > 1 else ''}"


PART = UdpTransport
