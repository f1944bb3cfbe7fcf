"""Selectors: how a spec names ports (`capture.points`, `counters.ports`)."""

from __future__ import annotations

import re

from topologies.fabrics.fabric import Fabric, Link, NodeKind, Port

SELECTOR_HELP = (
    "all, hosts, switches, a link class, a node (edge0-0), a port (edge0-0:h0), "
    "an interface (h0-eth0), or the hosts of a group (host:pod0)"
)
_GROUP = re.compile(r"host:(pod|leaf|group|server)([0-9]+)")
_GROUP_WORD = {"fat-tree": "pod", "leaf-spine": "leaf", "hierarchical": "group", "rails": "server"}


def select_ports(fabric: Fabric, selector: str) -> tuple[Port, ...]:
    """The ports that a selector names, in order of link index, end a first.

    `all`; `hosts` and `switches` (the ports of all such nodes); a link class (both ends of its
    links); a node (all its ports); `node:peer` (its ports towards that peer); an interface;
    `host:podN`, `host:leafN`, `host:groupN`, `host:serverN` (the ports of the hosts in it). Raises
    ValueError when it names no port.
    """
    wanted_kind = {"hosts": NodeKind.HOST, "switches": NodeKind.SWITCH}.get(selector)
    group = _GROUP.fullmatch(selector)
    if group is not None and _GROUP_WORD.get(fabric.kind) != group.group(1):
        group = None
    found: list[Port] = []
    for link in fabric.links:
        for port, peer in ((link.a, link.b), (link.b, link.a)):
            node = fabric.by_name[port.node]
            if group is not None:
                chosen = node.kind is NodeKind.HOST and node.coordinates[0] == int(group.group(2))
            elif wanted_kind is not None:
                chosen = node.kind is wanted_kind
            else:
                chosen = selector in (
                    "all",
                    link.link_class,
                    port.node,
                    port.interface,
                    f"{port.node}:{peer.node}",
                )
            if chosen:
                found.append(port)
    if not found:
        raise ValueError(f"expected {SELECTOR_HELP} of this fabric")
    return tuple(found)


def links_between(fabric: Fabric, text: str) -> tuple[Link, ...]:
    """The links (parallel ones all) that `a-b` names by its two nodes, in either order.

    Node names may contain a dash themselves. Raises ValueError when there is none.
    """
    parts = text.split("-")
    for cut in range(1, len(parts)):
        a, b = "-".join(parts[:cut]), "-".join(parts[cut:])
        if a in fabric.by_name and b in fabric.by_name:
            found = tuple(link for link in fabric.links_of[a] if link.other(a).node == b)
            if found:
                return found
    example = fabric.links[0]
    raise ValueError(
        f"expected two nodes with a link between them, such as {example.a.node}-{example.b.node}"
    )
