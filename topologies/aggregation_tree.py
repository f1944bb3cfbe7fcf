"""Aggregation trees, computed from the fabric: the switches that reduce, and what each reduces.

As SHARP's aggregation manager does, a tree follows the links of the fabric: each node's parent is a
neighbour, so that a contribution takes every link once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from topologies.fabrics.fabric import Fabric
from topologies.spec.aggregation.section import is_selected

ROOT, OUTSIDE = -1, -2
"""The parents of a tree's root, and of a switch that is in another tree of the same group."""


class NoTree(ValueError):
    """The switches that aggregate do not join the hosts; the message says which."""


@dataclass(frozen=True, slots=True)
class AggregationTree:
    """Participants are the ranks, then `switches`. `parents` has the participant above each."""

    switches: tuple[str, ...]
    parents: tuple[int, ...]


def way_up(parents: Sequence[int], participant: int) -> tuple[int, ...]:
    """A participant and those above it, the root last."""
    found = []
    while participant >= 0:
        found.append(participant)
        participant = parents[participant]
    return tuple(found)


def children(parents: Sequence[int], participant: int) -> tuple[int, ...]:
    """Those right below a participant, in order."""
    return tuple(i for i, parent in enumerate(parents) if parent == participant)


def aggregating_switches(fabric: Fabric, selectors: tuple[str, ...]) -> tuple[str, ...]:
    """The switches with an aggregation node, in the fabric's order."""
    return tuple(node.name for node in fabric.routers if is_selected(node.name, selectors))


def aggregation_tree(
    fabric: Fabric,
    hosts: Sequence[str],
    switches: Collection[str],
    root: str | None = None,
    turn: int = 0,
) -> AggregationTree:
    """The tree over the hosts of ranks, by these switches.

    Its root is the switch from which the farthest host is nearest, or the one that is given. Among
    equals it is the first one, or with a `turn` as many further on, so that trees of several groups
    have different roots. Nodes take the nearest way to it, over switches that the tree has already
    where there is one. Raises NoTree."""
    next_to = _next_to(fabric, hosts, switches)
    candidates = [root] if root is not None else [s.name for s in fabric.routers]
    best: list[tuple[int, str, dict[str, int]]] = []
    missing = hosts[0]
    for candidate in candidates:
        if candidate not in switches:
            continue
        found = _distances(fabric, candidate, switches)
        unreached = [host for host in hosts if not any(s in found for s in next_to[host])]
        if unreached:
            missing = unreached[0]
            continue
        depth = max(min(found[s] for s in next_to[host] if s in found) for host in hosts)
        if best and depth < best[0][0]:
            best.clear()
        if not best or depth == best[0][0]:
            best.append((depth, candidate, found))
    if not best:
        top = "no switch that aggregates" if root is None else f"{root}, the root,"
        raise NoTree(f"{top} reaches all hosts by switches that aggregate: {missing} is cut off")
    _, top, distance = best[turn % len(best)]
    parent_of: dict[str, str] = {top: ""}
    above: dict[str, str] = {}
    for host in hosts:
        near = [s for s in next_to[host] if s in distance]
        least = min(distance[s] for s in near)
        nearest = [s for s in near if distance[s] == least]
        node = above[host] = next((s for s in nearest if s in parent_of), nearest[0])
        while node not in parent_of:
            around = (link.other(node).node for link in fabric.links_of[node])
            nearer = [n for n in around if distance.get(n, -1) == distance[node] - 1]
            parent_of[node] = next((n for n in nearer if n in parent_of), nearer[0])
            node = parent_of[node]
    return _numbered(fabric, hosts, above, parent_of)


def given_root(fabric: Fabric, parents: Mapping[str, str]) -> str:
    """The root of a tree that is given by the switch above each of its switches. Raises NoTree for
    what is no switch or no neighbour, for circles, and for several roots."""
    known = {node.name for node in fabric.routers}
    for child, parent in parents.items():
        for name in (child, parent):
            if name not in known:
                raise NoTree(f"{name} is no switch of this fabric")
        if parent not in {link.other(child).node for link in fabric.links_of[child]}:
            raise NoTree(f"no link joins {child} and {parent}, its parent")
    for child in parents:
        way = [child]
        while way[-1] in parents:
            way.append(parents[way[-1]])
            if way[-1] in way[:-1]:
                circle = way[way.index(way[-1]) :]
                raise NoTree(f"{' below '.join(circle)} is a circle")
    roots = list(dict.fromkeys(parent for parent in parents.values() if parent not in parents))
    if len(roots) > 1:
        raise NoTree(f"{' and '.join(roots)} are roots, and a tree has one")
    return roots[0]


def given_tree(
    fabric: Fabric, hosts: Sequence[str], switches: Collection[str], parents: Mapping[str, str]
) -> AggregationTree:
    """The part of a given tree that the hosts of ranks need: from their switches up to the lowest
    one that is above all of them. Raises NoTree."""
    given_root(fabric, parents)
    inside = {*parents, *parents.values()}
    next_to = _next_to(fabric, hosts, inside)
    above: dict[str, str] = {}
    ways = []
    for host in hosts:
        if not next_to[host]:
            around = " or ".join(_around(fabric, host)) or "no switch"
            raise NoTree(f"parents is no spanning tree: {host} is at {around}, which is not in it")
        above[host] = next_to[host][0]
        way = [above[host]]
        while way[-1] in parents:
            way.append(parents[way[-1]])
        ways.append(way)
    common = [s for s in ways[0] if all(s in way for way in ways)]
    top = common[0]
    parent_of = {top: ""}
    for way in ways:
        for child, parent in pairwise(way[: way.index(top) + 1]):
            parent_of[child] = parent
    for name in parent_of:
        if name not in switches:
            raise NoTree(f"{name} of parents does not aggregate")
    return _numbered(fabric, hosts, above, parent_of)


def _next_to(
    fabric: Fabric, hosts: Sequence[str], switches: Collection[str]
) -> dict[str, list[str]]:
    """The switches next to each host; of a host that forwards, itself. Raises NoTree where ranks
    share a host."""
    if len(set(hosts)) < len(hosts):
        raise NoTree("ranks share a host")
    return {host: [s for s in _around(fabric, host) if s in switches] for host in hosts}


def _around(fabric: Fabric, host: str) -> list[str]:
    """The nodes to which a rank's contribution can go first."""
    if fabric.by_name[host] in fabric.routers:
        return [host]
    return [link.other(host).node for link in fabric.links_of[host]]


def _numbered(
    fabric: Fabric, hosts: Sequence[str], above: Mapping[str, str], parent_of: Mapping[str, str]
) -> AggregationTree:
    """A tree by names, the root's parent being "", with its participants numbered."""
    used = tuple(node.name for node in fabric.routers if node.name in parent_of)
    number = {name: len(hosts) + i for i, name in enumerate(used)}
    ranks = [number[above[host]] for host in hosts]
    return AggregationTree(used, (*ranks, *(number.get(parent_of[name], ROOT) for name in used)))


def _distances(fabric: Fabric, root: str, switches: Collection[str]) -> dict[str, int]:
    """Links to the root, of switches that aggregate and over these."""
    found = {root: 0}
    pending = deque([root])
    while pending:
        here = pending.popleft()
        for link in fabric.links_of[here]:
            peer = link.other(here).node
            if peer in switches and peer not in found:
                found[peer] = found[here] + 1
                pending.append(peer)
    return found
