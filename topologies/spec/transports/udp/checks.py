"""Checks of datagrams: that links can carry them."""

from __future__ import annotations

from collections.abc import Iterator

from topologies.fabrics.fabric import Fabric
from topologies.spec.errors import Problem
from topologies.spec.sections import Sections
from topologies.spec.transports.checks import TransportChecks
from topologies.spec.transports.udp.section import HEADER_BYTES, IP_UDP_BYTES, UdpTransport


class UdpChecks(TransportChecks):
    """Those of sizes."""

    def problems(self, spec: Sections, fabric: Fabric) -> Iterator[Problem]:
        """A payload that no link carries whole, and a window below one."""
        transport = spec.transport
        assert isinstance(transport, UdpTransport)
        smallest = min((link.mtu_bytes for link in fabric.links), default=2**16)
        most = smallest - IP_UDP_BYTES - HEADER_BYTES
        if transport.payload_bytes > most:
            yield Problem(
                ("transport", "payload"),
                str(transport.payload_bytes),
                f"expected at most {most}: there is a link with an MTU of {smallest}, and headers "
                f"take {IP_UDP_BYTES + HEADER_BYTES}",
            )
        if transport.window_bytes < transport.payload_bytes:
            yield Problem(
                ("transport", "window"),
                str(transport.window_bytes),
                f"expected at least a payload, {transport.payload_bytes}",
            )


PART = UdpChecks()
