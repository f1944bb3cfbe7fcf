"""Hierarchical systems: fast groups (a server's scale-up network) joined by a scale-out network."""

from __future__ import annotations

from ipaddress import IPv4Address

from topologies.fabric import Fabric, Node, NodeKind
from topologies.fabric_spec import HierarchicalSpec
from topologies.wiring import Wire, assemble

LINK_CLASSES = ("inner", "outer")


def build(section: HierarchicalSpec) -> Fabric:
    """Hosts h0.. on the inner switches group0.., each of which has a link to every outer switch.

    Addresses: 10.0.group.(2 + i) for hosts, 10.0.group.1 for inner, 10.1.0.(1 + i) for outer
    switches. Coordinates: (group, i), (group,), (outer,). Raises FabricError.
    """
    hosts: list[Node] = []
    inner: list[Node] = []
    inner_wires: list[Wire] = []
    outer_wires: list[Wire] = []
    for group in range(section.groups):
        name = f"group{group}"
        inner.append(
            Node(name, NodeKind.SWITCH, IPv4Address(bytes((10, 0, group, 1))), True, 1, (group,))
        )
        for i in range(section.hosts_per_group):
            host = f"h{len(hosts)}"
            address = IPv4Address(bytes((10, 0, group, 2 + i)))
            hosts.append(Node(host, NodeKind.HOST, address, False, 0, (group, i)))
            inner_wires.append(Wire(host, name, "inner"))
        for i in range(section.outer_switches):
            outer_wires.append(Wire(name, f"outer{i}", "outer"))
    outer = [
        Node(f"outer{i}", NodeKind.SWITCH, IPv4Address(bytes((10, 1, 0, 1 + i))), True, 2, (i,))
        for i in range(section.outer_switches)
    ]
    return assemble(
        section,
        section.kind,
        section.routing,
        hosts + inner + outer,
        inner_wires + outer_wires,
        LINK_CLASSES,
    )
