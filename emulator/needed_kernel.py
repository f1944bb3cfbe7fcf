"""The parts of a fabric that the virtual kernel lacks."""

from __future__ import annotations

from topologies.fabrics.fabric import Fabric
from topologies.spec.routing_section import Srv6


def lacked_by_virtual(fabric: Fabric) -> str | None:
    """The part that it lacks, in words; None where it can make the fabric."""
    if isinstance(fabric.choice, Srv6):
        return (
            "the virtual kernel has no IPv6, which fabric.routing.kind: srv6 needs; allowed there: "
            "source, by which a packet says its path by its ports"
        )
    return None
