"""Dragonfly (Kim, Dally, Scott, Abts: Technology-Driven, Highly-Scalable Dragonfly Topology, ISCA
2008) and Dragonfly+ (Shpiner et al.: Dragonfly+: Low Cost Topology for Scaling Datacenters, HiPINEB
2017): groups of switches, each pair of which is joined by as many global links.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address
from itertools import combinations

from topologies.fabrics.fabric import Fabric, Node, NodeKind
from topologies.fabrics.wiring import Wire, assemble
from topologies.spec.fabric_section import DragonflyPlusSpec, DragonflySpec

LINK_CLASSES = ("host", "local", "global")
LINK_COSTS = {"global": 3}
"""A minimal way has one global link (section 4.1 of Kim et al.), at most 5 in all with a local link
at each end. Two global links are 6, though they may be fewer hops."""


def build(section: DragonflySpec) -> Fabric:
    """Routers r<group>-<i>, those of a group each with a link to every other, and hosts h0.. on
    them. Coordinates: (group, router, i) of hosts, (group, router). Raises FabricError."""
    hosts: list[Node] = []
    routers: list[Node] = []
    below: list[Wire] = []
    local: list[Wire] = []
    for group in range(section.groups):
        names = [f"r{group}-{i}" for i in range(section.routers_per_group)]
        for number, name in enumerate(names):
            routers.append(_switch(name, 1, group, number, number))
            below += _hosts_of(name, group, number, section.hosts_per_router, hosts)
        local += [Wire(a, b, "local") for a, b in combinations(names, 2)]
    between = [Wire(f"r{a}-{i}", f"r{b}-{j}", "global") for a, i, b, j in _global_links(section)]
    wires = below + local + between
    return assemble(section, hosts + routers, wires, LINK_CLASSES, LINK_COSTS)


def build_plus(section: DragonflyPlusSpec) -> Fabric:
    """Leaves l<group>-<i> with hosts h0.., each with a link to all spines s<group>-<i> of its
    group, which have the global links. Coordinates: (group, leaf, i) of hosts, (group, i). Ways
    with one global link are the shortest. Raises FabricError."""
    hosts: list[Node] = []
    leaves: list[Node] = []
    spines: list[Node] = []
    below: list[Wire] = []
    local: list[Wire] = []
    per_group = section.leaves_per_group
    for group in range(section.groups):
        above = [f"s{group}-{i}" for i in range(section.spines_per_group)]
        for number in range(per_group):
            leaf = f"l{group}-{number}"
            leaves.append(_switch(leaf, 1, group, number, number))
            below += _hosts_of(leaf, group, number, section.hosts_per_leaf, hosts)
            local += [Wire(leaf, spine, "local") for spine in above]
        for number, spine in enumerate(above):
            spines.append(_switch(spine, 2, group, number, per_group + number))
    between = [Wire(f"s{a}-{i}", f"s{b}-{j}", "global") for a, i, b, j in _global_links(section)]
    return assemble(section, hosts + leaves + spines, below + local + between, LINK_CLASSES)


def _global_links(
    section: DragonflySpec | DragonflyPlusSpec,
) -> Iterator[tuple[int, int, int, int]]:
    """Group, switch, group, switch of each global link, each once.

    Port p of group i goes to group i + p + 1, round and round: the relative arrangement of Hastings
    et al. (Comparing Global Link Arrangements for Dragonfly Networks, CLUSTER 2015). A switch has
    `global_links` ports in a row.
    """
    others, each = section.groups - 1, section.global_links
    for group in range(section.groups):
        for port in range(section.global_ports):
            turn, offset = divmod(port, others)
            peer = (group + offset + 1) % section.groups
            if group < peer:
                back = turn * others + others - 1 - offset
                yield group, port // each, peer, back // each


def _hosts_of(
    switch: str, group: int, number: int, count: int, hosts: list[Node]
) -> Iterator[Wire]:
    """Adds a switch's hosts to `hosts`; their wires. Addresses: 10.group.switch.(2 + i)."""
    for i in range(count):
        name = f"h{len(hosts)}"
        address = IPv4Address(bytes((10, group, number, 2 + i)))
        hosts.append(Node(name, NodeKind.HOST, address, False, 0, (group, number, i)))
        yield Wire(name, switch, "host")


def _switch(name: str, layer: int, group: int, number: int, octet: int) -> Node:
    address = IPv4Address(bytes((10, group, octet, 1)))
    return Node(name, NodeKind.SWITCH, address, True, layer, (group, number))
