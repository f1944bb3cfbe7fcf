"""A validated fabric section -> a `Fabric`."""

from __future__ import annotations

from typing import assert_never

from topologies import fat_tree, flat, graph, torus, two_tier
from topologies.fabric import Fabric
from topologies.fabric_spec import (
    FabricSpec,
    FatTreeSpec,
    FlatSpec,
    GraphSpec,
    HierarchicalSpec,
    LeafSpineSpec,
    TorusSpec,
)


def build_fabric(section: FabricSpec) -> Fabric:
    """The fabric that a section describes; the same section gives an equal fabric.

    Raises topologies.wiring.FabricError (a ValueError) when an override, a selector or a link names
    something that the fabric does not have.
    """
    match section:
        case FatTreeSpec():
            return fat_tree.build(section)
        case TorusSpec():
            return torus.build(section)
        case LeafSpineSpec():
            return two_tier.build_leaf_spine(section)
        case HierarchicalSpec():
            return two_tier.build_hierarchical(section)
        case FlatSpec():
            return flat.build(section)
        case GraphSpec():
            return graph.build(section)
        case _:
            assert_never(section)
