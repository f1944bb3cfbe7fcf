"""What a fabric's nodes and links carry when every host sends as much to every other one."""

from __future__ import annotations

import heapq
from collections.abc import Collection
from dataclasses import dataclass, replace

from topologies.fabric import Fabric, NodeKind
from topologies.routing import compute_routes

PACKET = 1 << 32
"""What a host sends in all, in the units of `Traffic`."""


@dataclass(frozen=True)
class Traffic:
    """`forwarded`: node name -> what it passes on, which it neither sends nor receives itself.
    `carried`: link index -> what it carries, both directions together. In units of which a host
    sends `PACKET`, rounded down where ways part."""

    forwarded: dict[str, int]
    carried: dict[int, int]


def uniform_traffic(fabric: Fabric, hosts: Collection[str]) -> Traffic:
    """Each of `hosts` sends one `PACKET`, in equal parts to the others.

    Over all shortest paths, in equal shares per next hop, whatever the fabric's routing is: its
    other modes spread traffic over the same paths or, on a torus, over as many.
    """
    forwarded = dict.fromkeys((node.name for node in fabric.nodes), 0)
    carried = dict.fromkeys((link.index for link in fabric.links), 0)
    routes = compute_routes(replace(fabric, routing="ecmp"))
    # Hosts with one link count as what their switch sends and receives.
    behind: dict[str, list[str]] = {}
    for host in fabric.hosts:
        if host.name not in hosts:
            continue
        links = fabric.links_of[host.name]
        alone = not host.forwards and len(links) == 1
        at = links[0].other(host.name) if alone else None
        if at is not None and fabric.by_name[at.node].forwards:
            carried[links[0].index] += 2 * PACKET
            behind.setdefault(at.node, []).append(host.name)
        else:
            behind.setdefault(host.name, []).append(host.name)
    share = PACKET // max(1, len(hosts) - 1)
    for root, targets in behind.items():
        distance = {root: 0}

        def hops(node: str, target: str = targets[0], known: dict[str, int] = distance) -> int:
            if node not in known:
                known[node] = 1 + hops(routes.next_hops(node, target)[0].node)
            return known[node]

        own = {
            source: len(senders) * len(targets) * share
            for source, senders in behind.items()
            if source != root
        }
        if root != targets[0]:
            own[root] = len(targets) * (len(targets) - 1) * share
        arrived = dict.fromkeys(own, 0)
        # Farther nodes first: a node passes on when it has everything.
        queue = [(-hops(node), node) for node in own]
        heapq.heapify(queue)
        while queue:
            _, node = heapq.heappop(queue)
            passed, sent = arrived[node], own.get(node, 0)
            if node == root and root == targets[0]:
                continue
            is_host = fabric.by_name[node].kind is NodeKind.HOST
            forwarded[node] += passed if is_host else passed + sent
            next_hops = routes.next_hops(node, targets[0]) if node != root else ()
            for hop in next_hops:
                part = (passed + sent) // len(next_hops)
                carried[hop.link] += part
                if hop.node not in arrived:
                    arrived[hop.node] = 0
                    heapq.heappush(queue, (-hops(hop.node), hop.node))
                arrived[hop.node] += part
    return Traffic(forwarded, carried)
