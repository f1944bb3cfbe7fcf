"""Aggregation trees: which switch reduces what of which, computed from the fabric.

As SHARP's aggregation manager does, a tree follows the links of the fabric: each node's parent is a
neighbour, so that a contribution takes every link once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from topologies.fabrics.fabric import Fabric, NodeKind
from topologies.spec.aggregation.section import is_selected


class NoTree(ValueError):
    """The switches that aggregate do not join the hosts; the message says which."""


@dataclass(frozen=True, slots=True)
class AggregationTree:
    """Participants are the ranks, then `switches`. `parents` has the participant above each, the
    root's is -1."""

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
    return tuple(node.name for node in fabric.switches if is_selected(node.name, selectors))


def aggregation_tree(
    fabric: Fabric,
    hosts: Sequence[str],
    switches: Collection[str],
    root: str | None = None,
    turn: int = 0,
) -> AggregationTree:
    """The tree over the hosts of ranks, by these switches.

    Its root is the switch from which the farthest host is nearest, or the one that is given. Of
    several it is the first one, or with a `turn` as many further on, so that trees of several
    groups have different roots. Nodes take the nearest way to it, over switches that the tree has
    already where there is one. Raises NoTree.
    """
    if len(set(hosts)) < len(hosts):
        raise NoTree("ranks share a host")
    candidates = [root] if root is not None else [s.name for s in fabric.switches]
    best: list[tuple[int, str, dict[str, int]]] = []
    missing = hosts[0]
    for candidate in candidates:
        if candidate not in switches:
            continue
        found = _distances(fabric, candidate, switches)
        unreached = [host for host in hosts if host not in found]
        if unreached:
            missing = unreached[0]
            continue
        depth = max(found[host] for host in hosts)
        if best and depth < best[0][0]:
            best.clear()
        if not best or depth == best[0][0]:
            best.append((depth, candidate, found))
    if not best:
        top = "no switch that aggregates" if root is None else f"{root}, the root,"
        raise NoTree(f"{top} reaches all hosts by switches that aggregate: {missing} is cut off")
    _, top, distance = best[turn % len(best)]
    parent_of: dict[str, str] = {top: ""}
    for host in hosts:
        node = host
        while node not in parent_of:
            around = [link.other(node).node for link in fabric.links_of[node]]
            nearer = [
                n for n in around if n in switches and distance.get(n, -1) == distance[node] - 1
            ]
            parent_of[node] = next((n for n in nearer if n in parent_of), nearer[0])
            node = parent_of[node]
    used = tuple(node.name for node in fabric.switches if node.name in parent_of)
    number = {name: i for i, name in enumerate((*hosts, *used))}
    return AggregationTree(used, tuple(number.get(parent_of[name], -1) for name in number))


def _distances(fabric: Fabric, root: str, switches: Collection[str]) -> dict[str, int]:
    """Links to the root over switches that aggregate; hosts are no transit."""
    found = {root: 0}
    pending = deque([root])
    while pending:
        here = pending.popleft()
        for link in fabric.links_of[here]:
            peer = link.other(here).node
            if peer in found:
                continue
            if fabric.by_name[peer].kind is NodeKind.HOST:
                found[peer] = found[here] + 1
            elif peer in switches:
                found[peer] = found[here] + 1
                pending.append(peer)
    return found
