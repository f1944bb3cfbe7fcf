"""k-ary fat-tree (Al-Fares, Loukissas, Vahdat: A Scalable, Commodity Data Center Network
Architecture, SIGCOMM 2008)."""

from __future__ import annotations

from ipaddress import IPv4Address

from topologies.fabrics.fabric import Fabric, Node, NodeKind
from topologies.fabrics.servers import assemble_servers
from topologies.fabrics.wiring import Wire
from topologies.spec.fabric_section import FatTreeSpec

LINK_CLASSES = ("host", "edge-agg", "agg-core")


def build(section: FatTreeSpec) -> Fabric:
    """k pods of k/2 edge and k/2 aggregation switches, (k/2)^2 cores, k/2 hosts per edge.

    Addresses are those of the paper (section 3.2): 10.pod.switch.1 for a pod's switches,
    10.pod.edge.(2 + i) for hosts, 10.k.j.i for cores. Core j * k/2 + i is on aggregation switch j
    of every pod. Coordinates: (pod, edge, i), (pod, switch), (j, i). Raises FabricError.
    """
    k, half = section.k, section.k // 2
    hosts: list[Node] = []
    edges: list[Node] = []
    aggs: list[Node] = []
    cores: list[Node] = []
    host_wires: list[Wire] = []
    pod_wires: list[Wire] = []
    core_wires: list[Wire] = []
    for pod in range(k):
        for e in range(half):
            edge = f"edge{pod}-{e}"
            edges.append(_switch(edge, (10, pod, e, 1), 1, (pod, e)))
            for i in range(half):
                host = f"h{len(hosts)}"
                address = IPv4Address(bytes((10, pod, e, 2 + i)))
                hosts.append(Node(host, NodeKind.HOST, address, False, 0, (pod, e, i)))
                host_wires.append(Wire(host, edge, "host"))
            for a in range(half):
                pod_wires.append(Wire(edge, f"agg{pod}-{a}", "edge-agg"))
        for a in range(half):
            aggs.append(_switch(f"agg{pod}-{a}", (10, pod, half + a, 1), 2, (pod, a)))
            for i in range(half):
                core_wires.append(Wire(f"agg{pod}-{a}", f"core{a * half + i}", "agg-core"))
    for j in range(half):
        for i in range(half):
            cores.append(_switch(f"core{j * half + i}", (10, k, j + 1, i + 1), 3, (j, i)))
    return assemble_servers(
        section, hosts + edges + aggs + cores, host_wires + pod_wires + core_wires, LINK_CLASSES
    )


def _switch(name: str, octets: tuple[int, int, int, int], layer: int, at: tuple[int, ...]) -> Node:
    return Node(name, NodeKind.SWITCH, IPv4Address(bytes(octets)), True, layer, at)
