"""Checks of a spec of several jobs: each job as a spec of its own, and what they have to share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

from topologies.fabrics.build import build_fabric
from topologies.fabrics.wiring import FabricError
from topologies.plan import Misplaced, place_jobs
from topologies.spec.errors import Problem, shown
from topologies.spec.jobs.section import JobSpec
from topologies.spec.sections import Sections
from topologies.spec.workload_section import CommandWorkload

_OF_JOB = ("workload", "placement", "compute", "class")
"""Sections that a job has of its own."""


def check_jobs(spec: Sections, check_one: Callable[[Sections], list[Problem]]) -> list[Problem]:
    """Every mistake in a spec of jobs; `check_one` finds those of a spec with one workload."""
    problems = list(_shared_problems(spec))
    for number, job in enumerate(spec.jobs):
        for problem in check_one(alone(spec, job)):
            of_job = problem.key[:1] and problem.key[0] in _OF_JOB
            key = ("jobs", number, *problem.key) if of_job else problem.key
            found = replace(problem, key=key)
            if found not in problems:
                problems.append(found)
    if not problems:
        problems += _misplaced(spec)
    return problems


def alone(spec: Sections, job: JobSpec) -> Sections:
    """The sections of one job, as if it had the fabric to itself. They are not checked."""
    return spec.model_copy(
        update={
            "only_workload": job.workload,
            "jobs": (),
            "placement": spec.placement if job.placement is None else job.placement,
            "compute": job.compute or spec.compute,
            "traffic_class": (
                spec.traffic_class if job.traffic_class is None else job.traffic_class
            ),
            # Faults of an iteration are refused for all jobs together.
            "faults": tuple(fault for fault in spec.faults if fault.iteration is None),
        }
    )


def _shared_problems(spec: Sections) -> Iterator[Problem]:
    if spec.only_workload is not None:
        yield Problem(("jobs",), "workload, too", "expected either workload or jobs")
    if not isinstance(spec.placement, str):
        expected = "expected a policy; with jobs, hosts for every rank are given in jobs[..]"
        yield Problem(("placement",), shown(dict(spec.placement)), expected)
    if spec.aggregation is not None:
        expected = "expected one workload: the tree of switches is that of all ranks"
        yield Problem(("aggregation",), "with jobs", expected)
    if any(name is not None for _, name in spec.collectives.classes):
        expected = "expected one workload: a job has a class of its own"
        yield Problem(("collectives", "classes"), "with jobs", expected)
    for name, count in Counter(job.name for job in spec.jobs).items():
        if count > 1:
            yield Problem(("jobs",), f"{count} jobs named {name}", "expected each name once")
    for number, job in enumerate(spec.jobs):
        if isinstance(job.workload, CommandWorkload) and job.repeat > 1:
            expected = "expected 0 or 1: a program repeats what it does by itself"
            yield Problem(("jobs", number, "repeat"), str(job.repeat), expected)
        device = (job.compute or spec.compute).device
        if device == "real":
            expected = "expected a modelled device, or none, with jobs"
            yield Problem(("jobs", number, "compute", "device"), device, expected)
    if all(job.idle for job in spec.jobs):
        yield Problem(("jobs",), "jobs that all do nothing", "expected one that does something")
    for index, fault in enumerate(spec.faults):
        if fault.iteration is not None:
            expected = "expected at (a time): each job has iterations of its own"
            yield Problem(("faults", index, "iteration"), str(fault.iteration), expected)


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
