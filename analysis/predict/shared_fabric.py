"""Several jobs predicted together: every rank's steps, all iterations, on one fabric.

All messages of all jobs go through the same ports, so nothing is assumed about how jobs share
links. A job begins at its start; its iterations follow each other without a pause.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from analysis.predict.engines.acts import Compute, Pass, PostCall, WaitForCall
from analysis.predict.engines.joint_programs import GroupedCall, JointPrograms
from analysis.predict.interface import PredictorError, Setting
from analysis.predict.iteration import Costs, JointSteps, PredictedIteration, StepModel
from analysis.predict.link_load import LoadOfCalls, LoadsLinks
from analysis.predict.together import FollowsRuns, PredictsTogether
from collectives.settings import settings_of
from topologies.spec.spec import Spec
from topologies.spec.workload_section import ITEM_BYTES, CollectivesWorkload, ModelWorkload
from workloads.models.planned import planned_calls


@dataclass(frozen=True, slots=True)
class JobToPredict:
    """A job: its spec, with one workload; the number of its first rank among those of all jobs in
    the setting; and when it starts."""

    name: str
    spec: Spec
    first: int
    start_ns: int

    @property
    def ranks(self) -> range:
        """Their numbers among those of all jobs."""
        return range(self.first, self.first + self.spec.workload.ranks)


@dataclass(frozen=True, slots=True)
class PredictedJob:
    """From a job's start to its last rank's end, and each of its iterations."""

    duration_ns: int
    iterations: tuple[PredictedIteration, ...]


def predict_jobs(
    jobs: Sequence[JobToPredict], setting: Setting, predictor: object
) -> dict[str, PredictedJob]:
    """Predict jobs that share a fabric, by name.

    Raises PredictorError where the predictor cannot follow what all ranks do, for a job that is not
    predicted ahead (traces and programs of users), and for more messages than can be followed.
    """
    steps = JointSteps()
    for job in jobs:
        _add(steps, job, LoadOfCalls(setting, predictor))
    steps.calls = [_among_all(each, jobs, len(setting.hosts)) for each in steps.calls]
    knows_links = len(jobs) < 2 or isinstance(predictor, LoadsLinks | FollowsRuns)
    if not (
        isinstance(predictor, PredictsTogether)
        and knows_links
        and predictor.follows(setting, steps.calls)
    ):
        raise PredictorError(
            "jobs that share links have to be followed message by message, which flow does up to "
            "70,000 messages"
        )
    joint = steps.run(setting, predictor)
    return {job.name: _predicted(job, joint) for job in jobs}


def _among_all(grouped: GroupedCall, jobs: Sequence[JobToPredict], many: int) -> GroupedCall:
    """A call with switches numbered after so many ranks, those of all jobs."""
    schedule = grouped.call.schedule
    if not schedule.aggregators:
        return grouped
    mine = next(job for job in jobs if grouped.call.ranks[0] in job.ranks)
    beside = schedule.beside(many - len(mine.ranks))
    return replace(grouped, call=replace(grouped.call, schedule=beside))


def _add(steps: JointSteps, job: JobToPredict, loads: LoadOfCalls) -> None:
    workload = job.spec.workload
    for rank in job.ranks:
        steps.acts[rank].append(Compute(job.start_ns))
    add_iteration: Callable[[int], None]
    if isinstance(workload, ModelWorkload):
        item_bytes = ITEM_BYTES[workload.dtype]
        costs = Costs(loads, _unasked, item_bytes, settings_of(job.spec))
        model = StepModel(job.spec, workload, costs)

        def add_iteration(iteration: int) -> None:
            steps.add(model, job.first, job.name, iteration)

    elif isinstance(workload, CollectivesWorkload):
        calls = [
            replace(each.call, ranks=tuple(job.first + rank for rank in each.call.ranks))
            for each in planned_calls(job.spec)
        ]

        def add_iteration(iteration: int) -> None:
            for call in calls:
                steps.calls.append(GroupedCall(call, job.name))
                place = len(steps.calls) - 1
                for rank in call.ranks:
                    steps.acts[rank] += [PostCall(place), WaitForCall(place)]

    else:
        raise PredictorError(
            f"job {job.name}: workload.kind: {workload.kind} is not predicted ahead"
        )
    for iteration in range(workload.iterations):
        for rank in job.ranks:
            steps.acts[rank].append(Pass(2 * iteration))
        add_iteration(iteration)
        for rank in job.ranks:
            steps.acts[rank].append(Pass(2 * iteration + 1))


def _unasked(call: object) -> float:
    raise AssertionError("what is followed message by message is not priced one by one")


def _predicted(job: JobToPredict, joint: JointPrograms) -> PredictedJob:
    iterations = []
    for iteration in range(job.spec.workload.iterations):
        begun = [joint.passed_ns[rank, 2 * iteration] for rank in job.ranks]
        ended = [joint.passed_ns[rank, 2 * iteration + 1] for rank in job.ranks]
        took = [end[0] - begin[0] for begin, end in zip(begun, ended, strict=True)]
        waited = [end[1] - begin[1] for begin, end in zip(begun, ended, strict=True)]
        busy = [whole - idle for whole, idle in zip(took, waited, strict=True)]
        duration_ns = max(end[0] for end in ended) - min(begin[0] for begin in begun)
        iterations.append(
            PredictedIteration(round(duration_ns), round(max(busy)), round(max(waited)))
        )
    ended_ns = max(joint.ended_ns[rank] for rank in job.ranks)
    return PredictedJob(round(ended_ns - job.start_ns), tuple(iterations))
