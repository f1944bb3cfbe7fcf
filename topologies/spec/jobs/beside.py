"""The other jobs of a spec, as one of them has to know them where switches aggregate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from topologies.plan import PlacedJob
from topologies.spec.jobs.section import JobBeside, JobSpec
from topologies.spec.sections import Sections


def jobs_beside(spec: Sections, job: JobSpec, placed: Sequence[PlacedJob]) -> Iterator[JobBeside]:
    """The jobs of a spec but one, in order. Idle ones are among them: they have their trees, too.
    `placed` are all jobs on their hosts."""
    ahead = True
    for other, at in zip(spec.jobs, placed, strict=True):
        if other.name == job.name:
            ahead = False
            continue
        yield JobBeside(
            name=other.name,
            workload=other.workload,
            hosts=at.hosts,
            slots=other.slots,
            ahead=ahead,
        )
