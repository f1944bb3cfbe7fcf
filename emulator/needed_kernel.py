"""Which virtual kernel a fabric needs."""

from __future__ import annotations

from emulator.virtual.building.variant import KernelVariant
from topologies.fabrics.fabric import Fabric
from topologies.spec.routing_section import Srv6


def needed_variant(fabric: Fabric) -> KernelVariant:
    """The usual kernel, or one that has more."""
    return KernelVariant.IPV6 if isinstance(fabric.choice, Srv6) else KernelVariant.USUAL
