"""A spec resolved: the fabric that it describes, its routes, and the host of every rank."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from topologies.fabrics.build import build_fabric
from topologies.fabrics.fabric import Fabric
from topologies.fabrics.placement import place
from topologies.routing.routes import Routes, compute_routes
from topologies.spec.workload_section import WorkloadSpec

if TYPE_CHECKING:
    from topologies.spec.sections import Sections
    from topologies.spec.spec import Spec


MODEL_STAGE_DATA = "model-stage-data"
"""A policy that knows the workload's groups."""


@dataclass(frozen=True, slots=True)
class PlacedJob:
    """A job and the hosts of its ranks, which are numbered from `first` on among those of all."""

    name: str
    first: int
    hosts: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Plan:
    """The plan of a spec, known before anything runs. `Spec.plan` has it, made once.

    `hosts[rank]` is the name of the host that runs `rank`; of several jobs, first all ranks of the
    first one. Routes are computed when asked for.
    """

    fabric: Fabric
    hosts: tuple[str, ...]
    jobs: tuple[PlacedJob, ...] = ()
    """The hosts of each job of a spec of several; empty for one workload."""

    @classmethod
    def of(cls, spec: Spec) -> Plan:
        """The plan of a spec, which has been checked."""
        fabric = build_fabric(spec.fabric)
        if spec.jobs:
            jobs = tuple(place_jobs(spec, fabric))
            return cls(fabric, tuple(host for job in jobs for host in job.hosts), jobs)
        return cls(fabric, _hosts(spec.placement, fabric, spec.workload, spec.seed))

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
        policy = spec.placement if job.placement is None else job.placement
        try:
            hosts = _hosts(policy, fabric, job.workload, spec.seed, taken)
        except ValueError as error:
            raise Misplaced(number, str(error)) from error
        yield PlacedJob(job.name, first, hosts)
        taken |= set(hosts)
        first += len(hosts)


def _hosts(
    placement: str | Mapping[int, str],
    fabric: Fabric,
    workload: WorkloadSpec,
    seed: int,
    taken: Collection[str] = (),
) -> tuple[str, ...]:
    """The host of each rank of a workload. Raises ValueError."""
    together = workload.ranks_on_host
    if placement != MODEL_STAGE_DATA:
        return place(placement, fabric, workload.ranks, seed, together, taken)
    hosts = place("linear", fabric, workload.ranks, seed, together, taken)
    return tuple(hosts[at] for at in _model_stage_data(workload))


def _model_stage_data(workload: WorkloadSpec) -> Iterator[int]:
    """By rank its place where model-parallel ranks are neighbours, then the stages of a pipeline,
    then the data-parallel groups, as FRED has them (Rashidi et al., ISCA 2025). Ranks themselves
    are numbered by stage, data, model."""
    shape = workload.degrees
    if shape is None:
        raise ValueError(f"{MODEL_STAGE_DATA}: expected a workload with model-parallel groups")
    model, stages, data = shape
    for rank in range(workload.ranks):
        outer, inner = divmod(rank, model)
        stage, replica = divmod(outer, data)
        yield (replica * stages + stage) * model + inner
