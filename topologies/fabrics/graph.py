"""A fabric of explicit nodes and links."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address

from topologies.fabrics.fabric import Fabric, Node, NodeKind
from topologies.fabrics.wiring import FabricError, Wire, assemble
from topologies.routing.routes import compute_routes
from topologies.spec.fabric_section import GraphSpec


def build(section: GraphSpec) -> Fabric:
    """The graph as written. Hosts get 10.0.0.2 and on, switches 10.128.0.1 and on, in their order.

    Raises FabricError for a name used twice, a link to an unknown node or to itself, a host that
    another host cannot reach (hosts that do not forward are no transit), and routes that are none
    or lead in a circle.
    """
    nodes: dict[str, Node] = {}
    next_address = {"host": IPv4Address("10.0.0.2"), "switch": IPv4Address("10.128.0.1")}
    for index, entry in enumerate(section.nodes):
        if entry.name in nodes:
            raise FabricError(("nodes", index, "name"), entry.name, "a name that no other node has")
        kind = NodeKind(entry.kind)
        layer = 0 if kind is NodeKind.HOST else 1
        nodes[entry.name] = Node(entry.name, kind, next_address[entry.kind], entry.forwards, layer)
        next_address[entry.kind] += 1
    wires = []
    for index, link in enumerate(section.links):
        for name in link.ends:
            if name not in nodes:
                raise FabricError(
                    ("links", index, "ends"), name, "a node: " + ", ".join(list(nodes)[:12])
                )
        a, b = link.ends
        if a == b:
            raise FabricError(("links", index, "ends"), f"[{a}, {b}]", "two different nodes")
        wires.append(Wire(a, b, link.link_class, section.link.overridden(link), link.queue))
    _check_reachable(nodes, wires)
    hosts = [n for n in nodes.values() if n.kind is NodeKind.HOST]
    switches = [n for n in nodes.values() if n.kind is NodeKind.SWITCH]
    classes = sorted({wire.link_class for wire in wires})
    fabric = assemble(section, hosts + switches, wires, classes)
    if not section.routes:
        return fabric
    _check_routes_are_links(section, fabric)
    routed = replace(fabric, own_routes=section.routes)
    _check_routes_arrive(section, routed)
    return routed


def _check_routes_are_links(section: GraphSpec, fabric: Fabric) -> None:
    hosts = [host.name for host in fabric.hosts]
    for node, towards in section.routes.items():
        if node not in fabric.by_name:
            allowed = "a node: " + ", ".join(list(fabric.by_name)[:12])
            raise FabricError(("routes", node), node, allowed)
        around = [link.other(node).node for link in fabric.links_of[node]]
        for host, peer in towards.items():
            if host not in hosts or host == node:
                allowed = "another host: " + ", ".join(hosts[:12])
                raise FabricError(("routes", node, host), host, allowed)
            if peer not in around or not (peer == host or fabric.by_name[peer].forwards):
                allowed = f"a neighbour of {node} that forwards: {', '.join(around)}"
                raise FabricError(("routes", node, host), peer, allowed)


def _check_routes_arrive(section: GraphSpec, fabric: Fabric) -> None:
    """Shortest ways lead to no circle, and neither may what routes make of them."""
    import networkx as nx

    routes = compute_routes(fabric)
    for node, towards in section.routes.items():
        for host in towards:
            ways: nx.DiGraph[str] = nx.DiGraph()
            waiting = [node]
            while waiting:
                here = waiting.pop()
                for hop in routes.next_hops(here, host):
                    if hop.node not in ways:
                        waiting.append(hop.node)
                    ways.add_edge(here, hop.node)
            if not nx.is_directed_acyclic_graph(ways):
                circle = [edge[0] for edge in nx.find_cycle(ways)]
                found = " -> ".join((*circle, circle[0]))
                allowed = f"routes towards {host} that do not come back to where they were"
                raise FabricError(("routes", node, host), found, allowed)


def _check_reachable(nodes: dict[str, Node], wires: list[Wire]) -> None:
    import networkx as nx

    hosts = [n.name for n in nodes.values() if n.kind is NodeKind.HOST]
    if len(hosts) < 2:
        raise FabricError(("nodes",), f"{len(hosts)} hosts", "at least 2 nodes of kind host")
    graph: nx.Graph[str] = nx.Graph()
    graph.add_nodes_from(hosts)
    graph.add_edges_from((w.a, w.b) for w in wires)
    core = graph.subgraph([n for n in graph if nodes[n].forwards])
    part = {name: i for i, names in enumerate(nx.connected_components(core)) for name in names}

    def reach(host: str) -> set[int]:
        if host in part:
            return {part[host]}
        return {part[n] for n in graph[host] if n in part}

    first = hosts[0]
    for host in hosts[1:]:
        if not reach(first) & reach(host) and not graph.has_edge(first, host):
            raise FabricError(
                ("links",), f"no path from {first} to {host}", "hosts that all reach each other"
            )
