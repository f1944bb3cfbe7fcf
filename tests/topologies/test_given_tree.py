"""Aggregation trees that a spec gives, switch by switch."""

from __future__ import annotations

from typing import Any

import pytest

from collectives.settings import settings_of
from topologies.aggregation_tree import NoTree, given_tree
from topologies.fabrics.build import build_fabric
from topologies.spec.spec import SpecError, parse_dict

# A switch a host, on a 2x3 mesh; hosts of a grid are its switches.
GRID = {"h0": "h1", "h2": "h1", "h3": "h4", "h4": "h1", "h5": "h4"}


def raw_spec(parents: dict[str, str], fabric: dict[str, Any], **more: object) -> dict[str, Any]:
    return {
        "name": "given",
        "fabric": fabric,
        "workload": {
            "kind": "collectives",
            "ranks": 6,
            "operations": [{"kind": "all_reduce", "size": 4096}],
        },
        "aggregation": {"parents": parents, **more},
        "collectives": {"backend": "programs", "all_reduce": {"algorithm": "aggregation"}},
    }


def refusal(parents: dict[str, str], **more: object) -> str:
    mesh = {"kind": "mesh", "dims": [2, 3]}
    with pytest.raises(SpecError) as failure:
        parse_dict(raw_spec(parents, mesh, **more), "given.yaml")
    return str(failure.value)


@pytest.mark.parametrize("kind", ["mesh", "torus"])
def test_a_grid_has_the_tree_that_is_given(kind: str) -> None:
    spec = parse_dict(raw_spec(GRID, {"kind": kind, "dims": [2, 3]}), "given.yaml")
    found = settings_of(spec).aggregation
    assert found is not None
    (tree,) = found.trees
    assert tree.switches == ("h0", "h1", "h2", "h3", "h4", "h5")
    # A rank is below the switch on its own host, and that below who is given.
    assert tree.parents == (6, 7, 8, 9, 10, 11, 7, -1, 7, 10, 7, 10)


def test_a_group_has_the_part_of_the_tree_that_it_needs() -> None:
    fabric = build_fabric(parse_dict(raw_spec({}, {"kind": "mesh", "dims": [2, 3]})).fabric)
    everywhere = {node.name for node in fabric.nodes}
    tree = given_tree(fabric, ["h3", "h5"], everywhere, GRID)
    assert tree.switches == ("h3", "h4", "h5")
    assert tree.parents == (2, 4, 3, -1, 3)
    assert given_tree(fabric, ["h3", "h4"], everywhere, GRID).switches == ("h3", "h4")
    with pytest.raises(NoTree, match="h4 of parents does not aggregate"):
        given_tree(fabric, ["h3", "h5"], everywhere - {"h4"}, GRID)


def test_switches_of_any_fabric_can_have_a_given_tree() -> None:
    leaf_spine = {"kind": "leaf-spine", "leaves": 2, "spines": 2, "hosts_per_leaf": 3}
    parents = {"leaf0": "spine1", "leaf1": "spine1"}
    found = settings_of(parse_dict(raw_spec(parents, leaf_spine), "given.yaml")).aggregation
    assert found is not None
    assert found.trees[0].switches == ("leaf0", "leaf1", "spine1")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"h0": "h2"}, "no link joins h0 and h2, its parent"),
        ({"h0": "s9"}, "s9 is no switch of this fabric"),
        ({"h1": "h0"}, "h0 below h1 below h0 is a circle"),
        ({"h4": "h7"}, "h7 is no switch of this fabric"),
    ],
)
def test_what_is_no_tree_is_refused_with_the_reason(changed: dict[str, str], said: str) -> None:
    assert said in refusal(GRID | changed)


def test_a_tree_that_does_not_span_the_hosts_switches_is_refused() -> None:
    without = {child: parent for child, parent in GRID.items() if child != "h5"}
    said = "parents is no spanning tree: h5 is at h5, which is not in it"
    assert said in refusal(without)
    two = {child: parent for child, parent in GRID.items() if child != "h4"}
    assert "h1 and h4 are roots, and a tree has one" in refusal(two)
    assert "expected h1, the root of parents, or none" in refusal(GRID, root="h0")
