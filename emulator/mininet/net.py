"""A Mininet whose network is one of our fabrics."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mininet.log import error, output
from mininet.net import Mininet
from mininet.util import ensureRoot

from emulator.mininet import iperf
from emulator.mininet.links import FabricIntf, FabricLink
from emulator.mininet.nodes import FabricHost, FabricNode, FabricSwitch
from emulator.mininet.options import link_defaults, refuse_unknown
from emulator.mininet.topology import fabric_of_topo
from emulator.network.host_places import make_host_places
from emulator.network.network import Network, NetworkOptions
from emulator.ports.arrangement import PortArrangement
from topologies.fabrics.fabric import Fabric, NodeKind
from topologies.routing.routes import compute_routes


class FabricIsFixed(RuntimeError):
    """Nodes and links cannot be added to a live fabric or taken from it."""


class FabricMininet(Mininet):
    """Mininet's API on a fabric, given as a `Fabric` or as a Mininet Topo.

    The fabric is up when the constructor returns (`build=False`: when `build` does), as stock
    Mininet's nodes are; `stop` takes it down. Mininet's option `link` gives a Topo's links what
    they do not say themselves (`partial(TCLink, bw=10)`); options that would change what a fabric
    is are refused. Raises what Network.up and fabric_of_topo raise, UnsupportedOption, and
    ValueError without a fabric.
    """

    def __init__(
        self,
        topo: Any = None,
        fabric: Fabric | None = None,
        arrangement: Callable[[Fabric], PortArrangement] | None = None,
        options: NetworkOptions | None = None,
        build: bool = True,
        **params: Any,
    ) -> None:
        if fabric is None:
            if topo is None:
                raise ValueError("FabricMininet needs a fabric or a topo")
            fabric = fabric_of_topo(topo, link_defaults(params.pop("link", None)))
        refuse_unknown(params)
        if options is None:
            options = (
                NetworkOptions(arrangement=arrangement(fabric)) if arrangement else NetworkOptions()
            )
        self.fabric = fabric
        self.network = Network(fabric, compute_routes(fabric), options)
        self._cut: frozenset[int] = frozenset()
        self._files: tempfile.TemporaryDirectory[str] | None = None
        params["controller"] = None
        super().__init__(topo=None, build=False, **params)
        self.topo = topo
        if build:
            self.build()

    @classmethod
    def init(cls) -> None:
        """Only asks for root. Stock Mininet raises a dozen limits of the whole machine here."""
        ensureRoot()

    def build(self) -> None:
        """Brings the fabric up and gives every part of it its Mininet object."""
        self.network.up()
        self._files = tempfile.TemporaryDirectory(prefix="groundwire-names-")
        names = [node.name for node in self.fabric.nodes]
        places = make_host_places(
            self.network, names, Path(self._files.name) / "names", own_temporary=False
        )
        nodes: dict[str, FabricNode] = {}
        for node in self.fabric.nodes:
            is_host = node.kind is NodeKind.HOST
            kind = FabricHost if is_host else FabricSwitch
            made = kind(node.name, self.network, places[node.name])
            nodes[node.name] = self.nameToNode[node.name] = made
            (self.hosts if is_host else self.switches).append(made)
        for link in self.fabric.links:
            a, b = (
                FabricIntf(
                    port,
                    nodes[port.node],
                    str(self.fabric.by_name[port.node].address),
                    self.network,
                )
                for port in (link.a, link.b)
            )
            self.links.append(FabricLink(link.index, a, b))
        self.built = True

    def stop(self) -> None:
        """Ends the shells and takes the fabric down."""
        for node in (*self.switches, *self.hosts):
            node.terminate()
        self.network.down()
        if self._files is not None:
            self._files.cleanup()

    def iperf(
        self,
        hosts: Sequence[FabricNode] | None = None,
        l4Type: str = "TCP",
        udpBw: str = "10M",
        fmt: str | None = None,
        seconds: int = 5,
        port: int = 5001,
    ) -> list[str]:
        """As Mininet's: [server's rate, client's rate], for UDP with the bandwidth in front; `fmt`
        is not used. Raises IperfFailed."""
        client, server = hosts or (self.hosts[0], self.hosts[-1])
        output(f"*** Iperf: testing {l4Type} bandwidth between {client} and {server}\n")
        udp = udpBw if l4Type == "UDP" else None
        result = list(iperf.measure(self.network, client, server, udp, seconds, port))
        result = [udpBw, *result] if udp else result
        output(f"*** Results: {result}\n")
        return result

    def configLinkStatus(self, src: str, dst: str, status: str) -> None:
        """Takes all links between two nodes up or down, and reconverges.

        Next hops over a link that is down are withdrawn everywhere, as a routing protocol would.
        """
        for name in (src, dst):
            if name not in self.nameToNode:
                error(f"no node {name} in the network\n")
                return
        if status not in ("up", "down"):
            error(f"a link is set up or down, not {status}\n")
            return
        links = [
            link.index for link in self.fabric.links if {link.a.node, link.b.node} == {src, dst}
        ]
        if not links:
            error(f"{src} and {dst} are not connected\n")
        for index in links:
            self.network.set_link(index, up=status == "up")
        self._cut = self._cut - set(links) if status == "up" else self._cut | set(links)
        self.network.set_routes(compute_routes(self.fabric, self._cut))

    def _refuse(self, *_args: Any, **_params: Any) -> None:
        raise FabricIsFixed("a live fabric cannot change: describe it whole in a Topo or a spec")

    addHost = addSwitch = addLink = addController = addNAT = delNode = delLink = _refuse
