"""Servers whose hosts have two ports: one to a scale-up switch, one to a rail or a leaf.

ZionEx and DGX clusters are built so: a host is a GPU, its second port a NIC of its own. With a
`bus` that port leads into the server's PCIe switches, and NICs are nodes of their own (`bus.py`).
So they are with `planes`: each has a port in each of several networks that nothing joins.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from ipaddress import IPv4Address

from topologies.fabrics.bus import LINK_CLASSES as BUS_CLASSES
from topologies.fabrics.bus import Bus
from topologies.fabrics.fabric import Fabric, Node, NodeKind
from topologies.fabrics.wiring import Wire, assemble, queue_of_nic
from topologies.spec.bus_section import BusSpec
from topologies.spec.fabric_section import LinkSpec, RailsSpec

SCALE_UP = "scale-up"
LINK_CLASSES = (SCALE_UP, "nic", "spine")
TO_NIC = "host-nic"
"""The class of a host's link to a NIC that is a node, with a port in each plane."""
LINK_COSTS = {"scale-up": 1, "nic": 2, "spine": 2}
"""Inside a server the scale-up switch is nearer than a leaf, and a neighbour's NIC (PXN: 6 in all)
is nearer than a spine (8). PXN begins in the sender's server, as the cheaper link goes first."""
_SERVERS, _LOWERS, _SPINES, _NICS = 200, 201, 202, 205
"""Second octets of switches' addresses; hosts' are below 128."""


def build(section: RailsSpec) -> Fabric:
    """Hosts h0.. server by server; local rank r of a server is on rail<r>, or on the leaf of its
    server. Coordinates: (server, local rank) of hosts, (number,) of switches.

    Addresses of hosts are 10.r.0.(2 + server) on rails and 10.0.server.(2 + r) on leaves, so that
    those on a switch of the scale-out network share a prefix. Raises FabricError.
    """
    fabric = _built(section)
    return replace(fabric, copied_class=SCALE_UP) if section.scale_up.kind == "copies" else fabric


def _built(section: RailsSpec) -> Fabric:
    lower = "rail" if section.servers_per_leaf is None else "leaf"
    hosts: list[Node] = []
    wires: list[Wire] = []
    for server in range(section.servers):
        for local in range(section.hosts_per_server):
            host = f"h{len(hosts)}"
            if section.servers_per_leaf is None:
                octets, number = (10, local, 0, 2 + server), local
            else:
                octets, number = (10, 0, server, 2 + local), server // section.servers_per_leaf
            address = IPv4Address(bytes(octets))
            hosts.append(Node(host, NodeKind.HOST, address, section.pxn, 0, (server, local)))
            wires.append(Wire(host, f"server{server}", "scale-up"))
            if section.bus is None and section.planes == 1:
                wires.append(Wire(host, f"{lower}{number}", "nic"))
    if section.bus is not None:
        return _with_bus(section, section.bus, hosts, wires)
    if section.planes > 1:
        return _in_planes(section, lower, hosts, wires)
    for number in range(section.lowers):
        wires += [Wire(f"{lower}{number}", f"spine{i}", "spine") for i in range(section.spines)]
    servers = _switches("server", section.servers, _SERVERS, 1)
    lowers = _switches(lower, section.lowers, _LOWERS, 1)
    spines = _switches("spine", section.spines, _SPINES, 2)
    nodes = [*hosts, *servers, *lowers, *spines]
    return assemble(section, nodes, wires, LINK_CLASSES, LINK_COSTS, cheapest_first=True)


def _with_bus(
    section: RailsSpec, bus_section: BusSpec, hosts: list[Node], scale_up: list[Wire]
) -> Fabric:
    """The fabric of servers whose insides are known, without spines."""
    names = [host.name for host in hosts]
    local = section.hosts_per_server
    bus = Bus(
        bus_section,
        section.queue,
        [names[first : first + local] for first in range(0, len(names), local)],
    )
    servers = _switches("server", section.servers, _SERVERS, 1)
    rails = _switches("rail", section.lowers, _LOWERS, 3)
    fabric = assemble(
        section,
        [*hosts, *servers, *bus.nodes(), *rails],
        [*scale_up, *bus.wires(), *bus.to_rails()],
        (*LINK_CLASSES[:2], *BUS_CLASSES),
        LINK_COSTS | dict.fromkeys(BUS_CLASSES, 2),
        cheapest_first=True,
    )
    return replace(fabric, own_routes=bus.routes(by_scale_up=section.pxn))


def _in_planes(section: RailsSpec, lower: str, hosts: list[Node], scale_up: list[Wire]) -> Fabric:
    """The fabric whose NICs have a port in each plane: a network of leaves, or rails, and spines of
    its own. NIC nic<s>-<r> is that of host r of server s; names of switches end with p<plane>.

    A NIC's link to its host carries as much as its ports together, and has no delay, unless
    `links` says otherwise. It holds back its host, and neither marks nor drops.
    """
    of_nic = queue_of_nic(section.queue)
    port = section.link.overridden(*(section.links[x] for x in ("nic",) if x in section.links))
    inside = None
    if TO_NIC not in section.links:
        whole = {"rate_bps": section.planes * port.rate_bps, "delay_ns": 0}
        inside = LinkSpec.model_copy(port, update=whole)
    nics: list[Node] = []
    wires = list(scale_up)
    for host in hosts:
        server, local = host.coordinates
        address = IPv4Address(bytes((10, _NICS, server, 1 + local)))
        name = f"nic{server}-{local}"
        nics.append(Node(name, NodeKind.SWITCH, address, True, 1, (server, local)))
        wires.append(Wire(host.name, name, TO_NIC, inside, of_nic))
    switches: list[Node] = []
    for plane in range(section.planes):
        for nic in nics:
            server, local = nic.coordinates
            at = local if section.servers_per_leaf is None else server // section.servers_per_leaf
            wires.append(Wire(nic.name, f"{lower}{at}p{plane}", "nic", queue_a=of_nic))
        for at in range(section.lowers):
            wires += [
                Wire(f"{lower}{at}p{plane}", f"spine{i}p{plane}", "spine")
                for i in range(section.spines)
            ]
        switches += _of_plane(lower, section.lowers, _LOWERS, 2, plane)
        switches += _of_plane("spine", section.spines, _SPINES, 3, plane)
    nodes = [*hosts, *_switches("server", section.servers, _SERVERS, 1), *nics, *switches]
    classes = (*LINK_CLASSES, TO_NIC)
    return assemble(section, nodes, wires, classes, LINK_COSTS, cheapest_first=True)


def _of_plane(name: str, count: int, octet: int, layer: int, plane: int) -> Iterator[Node]:
    for i in range(count):
        address = IPv4Address(bytes((10, octet, plane, 1 + i)))
        yield Node(f"{name}{i}p{plane}", NodeKind.SWITCH, address, True, layer, (plane, i))


def _switches(name: str, count: int, octet: int, layer: int) -> list[Node]:
    return [
        Node(
            f"{name}{i}",
            NodeKind.SWITCH,
            IPv4Address(bytes((10, octet, 0, 1 + i))),
            True,
            layer,
            (i,),
        )
        for i in range(count)
    ]
