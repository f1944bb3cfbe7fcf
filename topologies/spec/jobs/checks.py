"""Checks of a spec of several jobs: each job as a spec of its own, and what they have to share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from topologies.fabrics.build import build_fabric
from topologies.fabrics.placement import OPTIMIZE
from topologies.fabrics.wiring import FabricError
from topologies.plan import Misplaced, PlacedJob, place_jobs
from topologies.spec.errors import Problem, shown
from topologies.spec.jobs.beside import jobs_beside
from topologies.spec.jobs.section import JobSpec
from topologies.spec.run_sections import FaultSpec, ProcessFault
from topologies.spec.sections import Sections

_OF_JOB = ("workload", "placement", "compute", "collectives", "class")
"""Sections that a job has of its own."""


def check_jobs(spec: Sections, check_one: Callable[[Sections], list[Problem]]) -> list[Problem]:
    """Every mistake in a spec of jobs; `check_one` finds those of a spec with one workload."""
    problems = list(_shared_problems(spec))
    placed = _placed(spec)
    for number, job in enumerate(spec.jobs):
        faults = [i for i, fault in enumerate(spec.faults) if _meets(fault, job)]
        for problem in check_one(alone(spec, job, placed)):
            key = problem.key
            own = job.collectives is not None or key[:1] != ("collectives",)
            match key:
                case (section, *_) if section in _OF_JOB and own:
                    key = ("jobs", number, *key)
                case ("faults", int(index), *rest):
                    key = ("faults", faults[index], *rest)
            found = replace(problem, key=key)
            if found not in problems:
                problems.append(found)
    if not problems:
        problems += _misplaced(spec)
    return problems


def alone(spec: Sections, job: JobSpec, placed: Sequence[PlacedJob] = ()) -> Sections:
    """The sections of one job, as if it had the fabric to itself, but for slots of switches that
    aggregate, where the jobs are `placed`. They are not checked."""
    placement = spec.placement if job.placement is None else job.placement
    of_switches: dict[str, object] = {}
    if placed:
        placement = dict(enumerate(next(at.hosts for at in placed if at.name == job.name)))
    if spec.aggregation is not None and placed:
        quota = job.slots or spec.aggregation.quota
        of_switches = {
            "aggregation": spec.aggregation.model_copy(update={"quota": quota}),
            "beside": tuple(jobs_beside(spec, job, placed)),
        }
    return spec.model_copy(
        update={
            "only_workload": job.workload,
            "jobs": (),
            "placement": placement,
            **of_switches,
            "compute": job.compute or spec.compute,
            "collectives": job.collectives or spec.collectives,
            "traffic_class": (
                spec.traffic_class if job.traffic_class is None else job.traffic_class
            ),
            "faults": tuple(
                fault.model_copy(update={"job": None}) if isinstance(fault, ProcessFault) else fault
                for fault in spec.faults
                if _meets(fault, job)
            ),
        }
    )


def _meets(fault: FaultSpec, job: JobSpec) -> bool:
    """Whether a fault is to be checked with a job: what no job's rank counts is refused for all."""
    victim = fault.job if isinstance(fault, ProcessFault) else None
    return victim == job.name or (victim is None and fault.at_ns is not None)


def _shared_problems(spec: Sections) -> Iterator[Problem]:
    if spec.only_workload is not None:
        yield Problem(("jobs",), "workload, too", "expected either workload or jobs")
    if not isinstance(spec.placement, str):
        expected = "expected a policy; with jobs, hosts for every rank are given in jobs[..]"
        yield Problem(("placement",), shown(dict(spec.placement)), expected)
    elif spec.placement == OPTIMIZE:
        expected = "expected another policy with jobs: hosts are searched for one workload alone"
        yield Problem(("placement",), OPTIMIZE, expected)
    sections = [job.collectives for job in spec.jobs if job.collectives is not None]
    if any(name is not None for one in (spec.collectives, *sections) for _, name in one.classes):
        expected = "expected one workload: a job has a class of its own"
        yield Problem(("collectives", "classes"), "with jobs", expected)
    between = {alone(spec, job).between_ranks for job in spec.jobs}
    if len(between) > 1:
        found = " and ".join(sorted(f"{one.count}" for one in between))
        expected = "expected as many connections of two ranks, going alike, in all jobs"
        yield Problem(("jobs",), f"{found} connections", expected)
    if spec.beside:
        yield Problem(("beside",), "with jobs", "expected none: it is of the spec of one job")
    if spec.aggregation is not None and spec.aggregation.middles is not None:
        expected = "expected none with jobs: the groups of one workload are routed"
        yield Problem(("aggregation", "middles"), str(spec.aggregation.middles), expected)
    for number, job in enumerate(spec.jobs):
        if job.slots is not None and spec.aggregation is None:
            expected = "expected none without aggregation: nobody has slots"
            yield Problem(("jobs", number, "slots"), str(job.slots), expected)
    for name, count in Counter(job.name for job in spec.jobs).items():
        if count > 1:
            yield Problem(("jobs",), f"{count} jobs named {name}", "expected each name once")
    for number, job in enumerate(spec.jobs):
        if job.workload.program is not None and job.repeat > 1:
            expected = "expected 0 or 1: a program repeats what it does by itself"
            yield Problem(("jobs", number, "repeat"), str(job.repeat), expected)
        device = (job.compute or spec.compute).device
        if device == "real":
            expected = "expected a modelled device, or none, with jobs"
            yield Problem(("jobs", number, "compute", "device"), device, expected)
        program = job.workload.program
        if program is not None and program.payload_share > 1:
            expected = "expected 1 with jobs: others share the links"
            key = ("jobs", number, "workload", "scale_payload")
            yield Problem(key, program.scale_payload, expected)
    if all(job.idle for job in spec.jobs):
        yield Problem(("jobs",), "jobs that all do nothing", "expected one that does something")
    programs = {job.name for job in spec.jobs if job.workload.program is not None}
    for index, fault in enumerate(spec.faults):
        victim = fault.job if isinstance(fault, ProcessFault) else None
        if fault.at_ns is None and victim not in programs:
            counted = "operation" if fault.iteration is None else "iteration"
            counts = fault.operation if fault.iteration is None else fault.iteration
            expected = f"expected at (a time): each job has {counted}s of its own"
            yield Problem(("faults", index, counted), str(counts), expected)
        if not isinstance(fault, ProcessFault):
            continue
        if fault.job is not None and fault.job not in {job.name for job in spec.jobs}:
            expected = f"expected a job: {', '.join(job.name for job in spec.jobs)}"
            yield Problem(("faults", index, "job"), fault.job, expected)
        elif fault.rank is not None and fault.job is None:
            expected = "expected the job of the rank: there are several"
            yield Problem(("faults", index, "job"), "nothing", expected)


def _placed(spec: Sections) -> tuple[PlacedJob, ...]:
    """The jobs on their hosts, where these matter to what a job can do; none where they cannot be
    placed, which is told elsewhere."""
    names = [job.name for job in spec.jobs]
    sections = [spec.collectives, *(job.collectives for job in spec.jobs)]
    hosts_matter = spec.aggregation is not None or any(
        one is not None and one.backend == "nccl" for one in sections
    )
    if not hosts_matter or len(set(names)) < len(names):
        return ()
    try:
        return tuple(place_jobs(spec, build_fabric(spec.fabric)))
    except (ValueError, KeyError):
        return ()


def _misplaced(spec: Sections) -> Iterator[Problem]:
    try:
        list(place_jobs(spec, build_fabric(spec.fabric)))
    except Misplaced as error:
        key = ("jobs", error.job, "workload", "ranks")
        ranks = spec.jobs[error.job].workload.ranks
        expected = f"expected fewer, or hosts given in placement: {error}"
        yield Problem(key, str(ranks), expected)
    except FabricError:  # told by the checks of each job
        return
