"""A spec resolved: the fabric that it describes, its routes, and the host of every rank."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from topologies.fabrics.build import build_fabric
from topologies.fabrics.fabric import Fabric
from topologies.fabrics.placement import place
from topologies.routing.routes import Routes, compute_routes
from topologies.spec.workload_section import ranks_per_host

if TYPE_CHECKING:
    from topologies.spec.spec import Spec


@dataclass(frozen=True, eq=False)
class Plan:
    """What follows from a spec before anything runs. `Spec.plan` has it, made once.

    `hosts[rank]` is the name of the host that runs `rank`. Routes are computed when asked for.
    """

    fabric: Fabric
    hosts: tuple[str, ...]

    @classmethod
    def of(cls, spec: Spec) -> Plan:
        """The plan of a spec, which has been checked."""
        fabric = build_fabric(spec.fabric)
        together = ranks_per_host(spec.workload)
        return cls(fabric, place(spec.placement, fabric, spec.workload.ranks, spec.seed, together))

    @cached_property
    def routes(self) -> Routes:
        return compute_routes(self.fabric)
