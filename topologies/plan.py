"""A spec resolved: the fabric that it describes, its routes, and the host of every rank."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from topologies.fabrics.build import build_fabric
from topologies.fabrics.fabric import Fabric
from topologies.fabrics.placement import place
from topologies.routing.routes import Routes, compute_routes
from topologies.spec.workload_section import ranks_per_host

if TYPE_CHECKING:
    from topologies.spec.sections import Sections
    from topologies.spec.spec import Spec


@dataclass(frozen=True, slots=True)
class PlacedJob:
    """A job and the hosts of its ranks, which are numbered from `first` on among those of all."""

    name: str
    first: int
    hosts: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Plan:
    """What follows from a spec before anything runs. `Spec.plan` has it, made once.

    `hosts[rank]` is the name of the host that runs `rank`; of several jobs, first all ranks of the
    first one. Routes are computed when asked for.
    """

    fabric: Fabric
    hosts: tuple[str, ...]
    jobs: tuple[PlacedJob, ...] = ()
    """Where the jobs of a spec of several are; empty for one workload."""

    @classmethod
    def of(cls, spec: Spec) -> Plan:
        """The plan of a spec, which has been checked."""
        fabric = build_fabric(spec.fabric)
        if spec.jobs:
            jobs = tuple(place_jobs(spec, fabric))
            return cls(fabric, tuple(host for job in jobs for host in job.hosts), jobs)
        together = ranks_per_host(spec.workload)
        return cls(fabric, place(spec.placement, fabric, spec.workload.ranks, spec.seed, together))

    def job(self, name: str) -> PlacedJob:
        """The job of this name."""
        return next(job for job in self.jobs if job.name == name)

    @cached_property
    def routes(self) -> Routes:
        return compute_routes(self.fabric)


class Misplaced(ValueError):
    """A job, by its place among the jobs, for which hosts are lacking."""

    def __init__(self, job: int, reason: str) -> None:
        self.job = job
        super().__init__(reason)


def place_jobs(spec: Sections, fabric: Fabric) -> Iterator[PlacedJob]:
    """The jobs of a spec, in order: by a policy, on hosts that no job before has. Raises
    Misplaced."""
    taken: set[str] = set()
    first = 0
    for number, job in enumerate(spec.jobs):
        together = ranks_per_host(job.workload)
        policy = spec.placement if job.placement is None else job.placement
        try:
            hosts = place(policy, fabric, job.workload.ranks, spec.seed, together, taken)
        except ValueError as error:
            raise Misplaced(number, str(error)) from error
        yield PlacedJob(job.name, first, hosts)
        taken |= set(hosts)
        first += len(hosts)
