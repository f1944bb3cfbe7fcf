from __future__ import annotations

from itertools import combinations
from math import dist

import pytest

from analysis.report.charts.fabric_layout import lay_out
from topologies.fabrics.build import build_fabric
from topologies.fabrics.fabric import NodeKind
from topologies.spec.spec import parse_spec


@pytest.mark.parametrize(
    "fabric",
    [
        "kind: fat-tree, k: 4",
        "kind: fat-tree, k: 8",
        "kind: leaf-spine, leaves: 4, spines: 2, hosts_per_leaf: 4",
        "kind: flat, hosts: 64",
        "kind: hierarchical, groups: 4, hosts_per_group: 8",
        "kind: torus, dims: [8, 8]",
        "kind: torus, dims: [4, 4, 4]",
        "kind: torus, dims: [3, 2, 5]",
        "kind: dragonfly, routers_per_group: 4, hosts_per_router: 2, global_links: 2",
        "kind: dragonfly+, leaves_per_group: 4, spines_per_group: 4, hosts_per_leaf: 4, "
        "global_links: 1",
    ],
)
def test_nodes_stand_apart_inside_the_drawing(fabric: str) -> None:
    spec = parse_spec(
        f"name: x\nfabric: {{{fabric}}}\nworkload: {{kind: collectives, ranks: 2, "
        "operations: [{kind: all_reduce, size: 8MB}]}\n"
    )
    built = build_fabric(spec.fabric)
    layout = lay_out(built, 1080)
    assert set(layout.places) == {node.name for node in built.nodes}
    for x, y in layout.places.values():
        assert 0 <= x <= 1080 and 0 <= y <= layout.height
    nearest = min(
        ((ax - bx) ** 2 + (ay - by) ** 2) ** 0.5
        for (ax, ay), (bx, by) in combinations(layout.places.values(), 2)
    )
    assert nearest >= 2 * layout.radius * 0.85 * 0.99
    if not layout.grid and not layout.rings:
        for link in built.links:
            a, b = built.by_name[link.a.node], built.by_name[link.b.node]
            higher, lower = (a, b) if a.layer > b.layer else (b, a)
            assert layout.places[higher.name][1] < layout.places[lower.name][1]


@pytest.mark.parametrize(
    "fabric",
    [
        "kind: dragonfly, routers_per_group: 4, hosts_per_router: 2, global_links: 2",
        "kind: dragonfly+, leaves_per_group: 2, spines_per_group: 4, hosts_per_leaf: 4, "
        "global_links: 1",
    ],
)
def test_groups_of_a_dragonfly_are_rings_apart(fabric: str) -> None:
    """A node is nearer to the middle of its own group than to any other's, and hosts are further
    from it than switches."""
    spec = parse_spec(
        f"name: x\nfabric: {{{fabric}}}\nworkload: {{kind: collectives, ranks: 2, "
        "operations: [{kind: all_reduce, size: 8MB}]}\n"
    )
    built = build_fabric(spec.fabric)
    layout = lay_out(built, 1080)
    far: dict[tuple[int, bool], set[float]] = {}
    for node in built.nodes:
        away = {name: dist(layout.places[node.name], at) for name, at in layout.rings.items()}
        own = f"group {node.coordinates[0]}"
        assert min(away, key=lambda name: away[name]) == own
        far.setdefault((node.coordinates[0], node.kind is NodeKind.HOST), set()).add(away[own])
    for group in range(len(layout.rings)):
        assert max(far[group, False]) < min(far[group, True])
