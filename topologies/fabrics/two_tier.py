"""Networks of two tiers: hosts on lower switches, each of which has a link to every upper switch.

Leaf-spine, a two-level folded Clos network, and hierarchical systems: fast groups (a server's
scale-up network) joined by a scale-out network.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address

from topologies.fabrics.fabric import Fabric, Node, NodeKind
from topologies.fabrics.servers import assemble_servers
from topologies.fabrics.wiring import Wire, assemble
from topologies.spec.fabric_section import HierarchicalSpec, LeafSpineSpec


@dataclass(frozen=True)
class _Tiers:
    """Names and numbers of switches, and the classes of the links below and between them."""

    lower: str
    lowers: int
    hosts_per_lower: int
    upper: str
    uppers: int
    link_classes: tuple[str, str]


def build_leaf_spine(section: LeafSpineSpec) -> Fabric:
    """Hosts h0.. on leaf0.., one link from each leaf to each of spine0... Raises FabricError."""
    return _build(
        section,
        _Tiers(
            "leaf",
            section.leaves,
            section.hosts_per_leaf,
            "spine",
            section.spines,
            ("host", "leaf-spine"),
        ),
    )


def build_hierarchical(section: HierarchicalSpec) -> Fabric:
    """Hosts h0.. on the inner switches group0.., each of which has a link to every one of the outer
    switches outer0... Raises FabricError."""
    return _build(
        section,
        _Tiers(
            "group",
            section.groups,
            section.hosts_per_group,
            "outer",
            section.outer_switches,
            ("inner", "outer"),
        ),
    )


def _build(section: LeafSpineSpec | HierarchicalSpec, tiers: _Tiers) -> Fabric:
    """Addresses: 10.0.l.(2 + i) for host i of lower switch l, 10.0.l.1 for that switch, and
    10.1.0.(1 + u) for upper switch u. Coordinates: (l, i), (l,), (u,)."""
    hosts: list[Node] = []
    lower: list[Node] = []
    below: list[Wire] = []
    between: list[Wire] = []
    host_class, switch_class = tiers.link_classes
    for number in range(tiers.lowers):
        name = f"{tiers.lower}{number}"
        address = IPv4Address(bytes((10, 0, number, 1)))
        lower.append(Node(name, NodeKind.SWITCH, address, True, 1, (number,)))
        for i in range(tiers.hosts_per_lower):
            host = f"h{len(hosts)}"
            address = IPv4Address(bytes((10, 0, number, 2 + i)))
            hosts.append(Node(host, NodeKind.HOST, address, False, 0, (number, i)))
            below.append(Wire(host, name, host_class))
        between += [Wire(name, f"{tiers.upper}{i}", switch_class) for i in range(tiers.uppers)]
    upper = [
        Node(
            f"{tiers.upper}{i}",
            NodeKind.SWITCH,
            IPv4Address(bytes((10, 1, 0, 1 + i))),
            True,
            2,
            (i,),
        )
        for i in range(tiers.uppers)
    ]
    nodes, wires = hosts + lower + upper, below + between
    if isinstance(section, LeafSpineSpec):
        return assemble_servers(section, nodes, wires, tiers.link_classes)
    return assemble(section, nodes, wires, tiers.link_classes)
