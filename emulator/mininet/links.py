"""Mininet's interfaces and links as views of the fabric's: they make nothing and delete nothing."""

from __future__ import annotations

from typing import Any

from mininet.link import Intf, Link

from emulator.mininet.nodes import FabricNode
from emulator.network.network import Network
from emulator.ports.counters import running
from topologies.fabrics import fabric as model


class FabricIntf(Intf):
    """A port of the fabric."""

    def __init__(self, port: model.Port, node: FabricNode, address: str, network: Network) -> None:
        self._network = network
        super().__init__(port.interface, node=node, mac=port.mac, moveIntfFn=lambda *_: None)
        self.ip, self.prefixLen = address, 32

    def config(self, **_params: Any) -> dict[str, Any]:
        """Nothing is left to configure."""
        return {}

    def updateIP(self) -> str | None:
        """The port's address, which does not change."""
        address: str | None = self.ip
        return address

    def updateMAC(self) -> str | None:
        """The port's MAC address, which does not change."""
        mac: str | None = self.mac
        return mac

    def updateAddr(self) -> tuple[str | None, str | None]:
        """Address and MAC."""
        return self.ip, self.mac

    def isUp(self, setUp: bool = False) -> bool:
        """Whether the port's link is up. Links are taken up and down by the net's
        `configLinkStatus`, so that routes follow; `setUp` does nothing."""
        node = self.node.name
        index = next(
            c.ifindex for c in self._network.contexts(node) if c.port.interface == self.name
        )
        with self._network.netlink(node) as netlink:
            return index in running(netlink)

    def status(self) -> str:
        """OK or DOWN."""
        return "OK" if self.isUp() else "DOWN"

    def delete(self) -> None:
        """The port goes with the fabric."""


class FabricLink(Link):
    """A link of the fabric. `index` is its number there."""

    def __init__(self, index: int, a: FabricIntf, b: FabricIntf) -> None:
        # Not Link's own constructor: that makes a veth pair.
        self.index = index
        self.intf1, self.intf2 = a, b
        a.link = b.link = self

    def delete(self) -> None:
        """The link goes with the fabric."""

    def stop(self) -> None:
        """The link goes with the fabric."""
