"""The places of a fabric's nodes in its drawing: tiers, a grid for a torus, or a ring of groups."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from math import cos, hypot, pi, sin

from topologies.fabrics.fabric import Fabric, Node

Place = tuple[float, float]

_TIER = 96.0
_WIDEST_RING = 820.0
_MARGIN = 26.0


@dataclass(frozen=True)
class Layout:
    """Coordinates by node, the drawing's height, and the radius at which nodes do not touch. `grid`
    and `rings` say which kind it is; a ring has the middle of each group by its name."""

    places: dict[str, Place]
    height: float
    radius: float
    grid: bool
    rings: dict[str, Place] = field(default_factory=dict)


def lay_out(fabric: Fabric, width: float) -> Layout:
    """A grid when every node is a host with two or three axes, a ring of groups for a dragonfly,
    else tiers by layer."""
    if fabric.kind in ("dragonfly", "dragonfly+"):
        return _rings(fabric, width)
    axes = {len(node.coordinates) for node in fabric.nodes}
    if not fabric.switches and len(axes) == 1 and axes <= {1, 2, 3}:
        return _grid(fabric, width)
    return _tiers(fabric, width)


def _grid(fabric: Fabric, width: float) -> Layout:
    """Last axis to the right, the one before it down, the first of three obliquely back."""
    padded = {n.name: (0,) * (3 - len(n.coordinates)) + n.coordinates for n in fabric.nodes}
    planes, rows, columns = (max(p[axis] for p in padded.values()) + 1 for axis in range(3))
    cell = min(150.0, (width - 2 * 60) / max(columns - 1 + 0.7, 1), 560 / max(rows, 1))
    cell = max(cell, 14.0 * planes)
    step_x = 0.62 * cell / planes if planes > 1 else 0.0
    step_y = 0.5 * cell / planes if planes > 1 else 0.0
    used = (columns - 1) * cell + (planes - 1) * step_x
    left = max(60.0, (width - used) / 2)
    top = 50.0 + (planes - 1) * step_y
    places = {
        name: (left + c * cell + p * step_x, top + r * cell - p * step_y)
        for name, (p, r, c) in padded.items()
    }
    radius = min(11.0, 0.3 * cell if planes == 1 else 0.22 * min(cell, 3 * step_x))
    return Layout(places, top + (rows - 1) * cell + 50, radius, True)


def _rings(fabric: Fabric, width: float) -> Layout:
    """Groups in a circle, each of them a ring of its switches with its hosts around it. Those of a
    leaf-spine have their spines on the side of the other groups, and their leaves outside."""
    groups: dict[int, list[Node]] = defaultdict(list)
    for node in fabric.nodes:
        groups[node.coordinates[0]].append(node)
    half = min(width, _WIDEST_RING) / 2
    sine = sin(pi / max(len(groups), 2))
    outer = (half - _MARGIN) / (1 + 1.15 / sine)
    inner, far = 0.58 * outer, half - _MARGIN - outer
    places: dict[str, Place] = {}
    middles: dict[str, Place] = {}
    for number, (group, nodes) in enumerate(sorted(groups.items())):
        turn = 2 * pi * number / len(groups) - pi / 2
        x, y = width / 2 + far * cos(turn), half + far * sin(turn)
        middles[f"group {group}"] = x, y
        spines = [node for node in nodes if node.layer == 2]
        above = spines or [node for node in nodes if node.layer == 1]
        for i, node in enumerate(above):
            spread, begin = (0.8 * pi, turn + 0.6 * pi) if spines else (2 * pi, turn)
            places[node.name] = _around(x, y, inner, begin + spread * (i + 0.5) / len(above))
        span, begin = (1.15 * pi, turn - 0.575 * pi) if spines else (2 * pi, turn)
        for layer, distance in ((0, outer), (1, inner if spines else None)):
            members = [node for node in nodes if node.layer == layer]
            for i, node in enumerate(members if distance is not None else ()):
                angle = begin + span * (i + 0.5) / len(members)
                places[node.name] = _around(x, y, distance or 0.0, angle)
    closest = min(
        (hypot(a[0] - b[0], a[1] - b[1]) for nodes in groups.values()
         for a, b in combinations([places[node.name] for node in nodes], 2)),
        default=width,
    )  # fmt: skip
    return Layout(places, 2 * half, max(1.5, min(9.0, 0.36 * closest)), False, middles)


def _around(x: float, y: float, distance: float, angle: float) -> Place:
    return x + distance * cos(angle), y + distance * sin(angle)


def _tiers(fabric: Fabric, width: float) -> Layout:
    tiers: dict[int, list[Node]] = defaultdict(list)
    for node in fabric.nodes:
        tiers[node.layer].append(node)
    layers = sorted(tiers)
    top_layer = len(layers) - 1
    places: dict[str, Place] = {}
    usable = width - 2 * _MARGIN
    closest = usable
    for depth, layer in enumerate(layers):
        y = 34 + (top_layer - depth) * _TIER
        nodes = tiers[layer]
        xs = _tier_positions(fabric, nodes, places, usable)
        for node, x in zip(nodes, xs, strict=True):
            places[node.name] = (_MARGIN + x, y)
        ordered = sorted(xs)
        gaps = [b - a for a, b in pairwise(ordered)]
        closest = min([closest, *gaps])
    radius = max(1.5, min(9.0, 0.36 * closest))
    return Layout(places, 34 + top_layer * _TIER + 46, radius, False)


def _tier_positions(
    fabric: Fabric, nodes: list[Node], below: dict[str, Place], usable: float
) -> list[float]:
    """Each node above the middle of its neighbours below; those with the same middle side by side;
    then pushed apart where they would touch."""
    if not below:
        return [usable * (i + 0.5) / len(nodes) for i in range(len(nodes))]
    middles = []
    for node in nodes:
        xs = [
            below[link.other(node.name).node][0] - _MARGIN
            for link in fabric.links_of[node.name]
            if link.other(node.name).node in below
        ]
        middles.append(sum(xs) / len(xs) if xs else usable / 2)
    if max(middles) - min(middles) < usable / 2:
        # Everybody's middle is the middle: the order is all that the middles tell.
        order = sorted(range(len(nodes)), key=lambda i: (round(middles[i] / usable * 8), i))
        spread = [0.0] * len(nodes)
        for place, index in enumerate(order):
            spread[index] = usable * (place + 0.5) / len(nodes)
        return spread
    groups: dict[int, list[int]] = defaultdict(list)
    for index, middle in enumerate(middles):
        groups[round(middle / usable * 200)].append(index)
    found = [0.0] * len(nodes)
    room = usable / len(groups)
    for members in groups.values():
        middle = sum(middles[index] for index in members) / len(members)
        step = room / len(members)
        for i, index in enumerate(members):
            found[index] = middle + (i - (len(members) - 1) / 2) * step
    return _apart(found, usable)


def _apart(xs: list[float], usable: float) -> list[float]:
    """The same order from left to right, inside [0, usable], no two nearer than even spacing would
    put them by half."""
    order = sorted(range(len(xs)), key=lambda i: (xs[i], i))
    least = 0.5 * usable / len(xs)
    placed = [0.0] * len(xs)
    at = -least
    for i in order:
        at = max(xs[i], at + least, least / 2)
        placed[i] = at
    limit = usable - least / 2
    for i in reversed(order):
        placed[i] = min(placed[i], limit)
        limit = placed[i] - least
    return placed
