"""Leaf-spine: a two-level folded Clos network."""

from __future__ import annotations

from ipaddress import IPv4Address

from topologies.fabric import Fabric, Node, NodeKind
from topologies.fabric_spec import LeafSpineSpec
from topologies.wiring import Wire, assemble

LINK_CLASSES = ("host", "leaf-spine")


def build(section: LeafSpineSpec) -> Fabric:
    """Hosts h0.. on leaf0.., one link from each leaf to each spine.

    Addresses: 10.0.leaf.(2 + i) for hosts, 10.0.leaf.1 for leaves, 10.1.0.(1 + i) for spines.
    Coordinates: (leaf, i), (leaf,), (spine,). Raises FabricError.
    """
    hosts: list[Node] = []
    leaves: list[Node] = []
    host_wires: list[Wire] = []
    spine_wires: list[Wire] = []
    for leaf in range(section.leaves):
        name = f"leaf{leaf}"
        leaves.append(
            Node(name, NodeKind.SWITCH, IPv4Address(bytes((10, 0, leaf, 1))), True, 1, (leaf,))
        )
        for i in range(section.hosts_per_leaf):
            host = f"h{len(hosts)}"
            address = IPv4Address(bytes((10, 0, leaf, 2 + i)))
            hosts.append(Node(host, NodeKind.HOST, address, False, 0, (leaf, i)))
            host_wires.append(Wire(host, name, "host"))
        for spine in range(section.spines):
            spine_wires.append(Wire(name, f"spine{spine}", "leaf-spine"))
    spines = [
        Node(f"spine{i}", NodeKind.SWITCH, IPv4Address(bytes((10, 1, 0, 1 + i))), True, 2, (i,))
        for i in range(section.spines)
    ]
    return assemble(
        section,
        section.kind,
        section.routing,
        hosts + leaves + spines,
        host_wires + spine_wires,
        LINK_CLASSES,
    )
