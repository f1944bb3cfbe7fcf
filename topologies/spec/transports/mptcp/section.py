"""`transport: {kind: mptcp}` in a spec."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from topologies.spec.fabric_section import Integer
from topologies.spec.transports.tcp.section import SocketsTransport, TcpTransport


class MptcpTransport(SocketsTransport):
    """Linux's MPTCP (RFC 8684) in place of TCP: each connection of a host has so many `subflows`,
    between the same addresses, each from a port of its own. The other keys are TCP's, and each
    subflow has them."""

    kind: Literal["mptcp"]
    subflows: Integer = Field(default=4, ge=1, le=64)

    @property
    def tcp(self) -> TcpTransport:
        """TCP as a subflow has it."""
        known = {name: getattr(self, name) for name in SocketsTransport.model_fields}
        return TcpTransport.model_construct(**known | {"kind": "tcp"})

    @property
    def flows_per_socket(self) -> int:
        """The subflows."""
        return self.subflows

    def words(self, ecn: bool) -> str:
        """With the number of subflows, and their congestion control."""
        many = f"{self.subflows} subflow{'s' if self.subflows > 1 else ''}"
        return f"MPTCP, {many}, {self.congestion_control}" + (", ECN" if ecn else "")


PART = MptcpTransport
