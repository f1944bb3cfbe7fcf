"""Servers of several GPUs on a fabric whose hosts have one port: what a host was is a server.

A server's GPUs, which are the fabric's hosts, have a port to its scale-up switch and one to its
NIC. The NIC, which they share, is a node with the port that the host had.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from ipaddress import IPv4Address

from topologies.fabrics.fabric import Fabric, Node, NodeKind
from topologies.fabrics.rails import TO_NIC
from topologies.fabrics.wiring import Wire, assemble, queue_of_nic
from topologies.spec.fabric_section import (
    SCALE_UP_CLASS,
    FatTreeSpec,
    FlatSpec,
    LeafSpineSpec,
)

_COSTS = {TO_NIC: 2}
"""Inside a server the scale-up switch is nearer than the NIC."""
_GPUS = IPv4Address("10.64.0.64")
"""Below it are the addresses of the kinds of fabric that have servers, up to a fat-tree's 10.26."""
_SWITCHES, _NICS = IPv4Address("10.200.0.0"), IPv4Address("10.205.0.0")


def assemble_servers(
    section: FatTreeSpec | LeafSpineSpec | FlatSpec,
    nodes: Sequence[Node],
    wires: Sequence[Wire],
    link_classes: Sequence[str],
) -> Fabric:
    """The fabric of these nodes and wires, each of whose hosts is a server of
    `section.gpus_per_host` GPUs; with one GPU it is the host itself.

    GPUs are h0.., server by server, with the coordinates of their host and their number in it;
    server<n> is the scale-up switch of host n and nic<n> its NIC. GPU r of host n has the address
    10.64.0.64 + n * 2^b + r, with 2^b the least power of two that is no less than their number, so
    that those of a server share a prefix. A GPU's link to the NIC has the rate of the NIC's port
    and no delay, unless `links` says otherwise; like the NIC's own port, it holds back and neither
    marks nor drops. Raises FabricError.
    """
    gpus = section.gpus_per_host
    if gpus == 1:
        return assemble(section, nodes, wires, link_classes)
    of_nic = queue_of_nic(section.queue)
    inside = None
    if TO_NIC not in section.links:
        port = (section.links[name] for name in link_classes[:1] if name in section.links)
        inside = section.link.overridden(*port).model_copy(update={"delay_ns": 0})
    hosts = [node for node in nodes if node.kind is NodeKind.HOST]
    stride = 1 << (gpus - 1).bit_length()
    made: list[Node] = []
    switches: list[Node] = []
    nics: dict[str, Node] = {}
    within: list[Wire] = []
    for number, host in enumerate(hosts):
        server, nic = f"server{number}", f"nic{number}"
        at = (number,)
        switches.append(Node(server, NodeKind.SWITCH, _SWITCHES + 1 + number, True, 1, at))
        nics[host.name] = Node(nic, NodeKind.SWITCH, _NICS + 1 + number, True, 1, at)
        for local in range(gpus):
            name = f"h{len(made)}"
            place = (*host.coordinates, local)
            address = _GPUS + number * stride + local
            made.append(Node(name, NodeKind.HOST, address, False, 0, place))
            within.append(Wire(name, server, SCALE_UP_CLASS))
            within.append(Wire(name, nic, TO_NIC, inside, of_nic))
    outside = [
        Wire(nics[wire.a].name, wire.b, wire.link_class, wire.link, wire.queue, of_nic)
        if wire.a in nics
        else wire
        for wire in wires
    ]
    above = [replace(node, layer=node.layer + 1) for node in nodes if node.kind is NodeKind.SWITCH]
    return assemble(
        section,
        [*made, *switches, *nics.values(), *above],
        [*within, *outside],
        (SCALE_UP_CLASS, TO_NIC, *link_classes),
        _COSTS,
    )
