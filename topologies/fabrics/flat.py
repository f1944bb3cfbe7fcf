"""A flat fabric: one switch, all hosts on it."""

from __future__ import annotations

from ipaddress import IPv4Address

from topologies.fabrics.fabric import Fabric, Node, NodeKind
from topologies.fabrics.servers import assemble_servers
from topologies.fabrics.wiring import Wire
from topologies.spec.fabric_section import FlatSpec

LINK_CLASSES = ("host",)


def build(section: FlatSpec) -> Fabric:
    """Switch s0 at 10.0.0.1, hosts h0.. from 10.0.0.2 on. Raises FabricError."""
    first = IPv4Address("10.0.0.2")
    hosts = [Node(f"h{i}", NodeKind.HOST, first + i, False, 0, (i,)) for i in range(section.hosts)]
    switch = Node("s0", NodeKind.SWITCH, IPv4Address("10.0.0.1"), True, 1)
    wires = [Wire(host.name, switch.name, "host") for host in hosts]
    return assemble_servers(section, [*hosts, switch], wires, LINK_CLASSES)
