"""A validated fabric section -> a `Fabric`."""

from __future__ import annotations

from collections import OrderedDict
from typing import assert_never

from topologies.fabrics import dragonfly, fat_tree, flat, graph, grid, rails, two_tier
from topologies.fabrics.fabric import Fabric
from topologies.spec.fabric_section import (
    DragonflyPlusSpec,
    DragonflySpec,
    FabricSpec,
    FatTreeSpec,
    FlatSpec,
    GraphSpec,
    HierarchicalSpec,
    LeafSpineSpec,
    MeshSpec,
    RailsSpec,
    TorusSpec,
)

_KEPT = 8
_built: OrderedDict[str, Fabric] = OrderedDict()


def build_fabric(section: FabricSpec) -> Fabric:
    """The fabric that a section describes. Equal sections share one, which nothing can change.

    Raises FabricError (a ValueError) when an override, a selector or a link names something that
    the fabric does not have.
    """
    key = section.model_dump_json()
    if key not in _built:
        _built[key] = _build(section)
        while len(_built) > _KEPT:
            _built.popitem(last=False)
    _built.move_to_end(key)
    return _built[key]


def _build(section: FabricSpec) -> Fabric:
    match section:
        case FatTreeSpec():
            return fat_tree.build(section)
        case TorusSpec() | MeshSpec():
            return grid.build(section)
        case LeafSpineSpec():
            return two_tier.build_leaf_spine(section)
        case HierarchicalSpec():
            return two_tier.build_hierarchical(section)
        case RailsSpec():
            return rails.build(section)
        case DragonflySpec():
            return dragonfly.build(section)
        case DragonflyPlusSpec():
            return dragonfly.build_plus(section)
        case FlatSpec():
            return flat.build(section)
        case GraphSpec():
            return graph.build(section)
        case _:
            assert_never(section)
