"""A run predicted from its spec: jobs, their iterations and collectives, on one fabric.

A run has jobs; a spec with one workload has one, without a name. Ranks do what they do in a run. A
job's iterations follow each other without a pause from its start on; those of a spec with one
workload each begin at a common time that ranks agree on, as do the operations of a benchmark.

Connections remember: earlier collectives made their windows. A simulator that follows
them is asked about the run as a whole, and any about several jobs. Else one iteration stands for
all, as each begins on an idle fabric.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import mean
from typing import assert_never

from analysis.predict.added_up import Adapted
from analysis.predict.interface import Predictor, PredictorError, Setting
from analysis.predict.scenario import (
    Act,
    Begin,
    Compute,
    GroupedCall,
    Meet,
    Pass,
    PostCall,
    Propose,
    Scenario,
    Timeline,
    WaitForCall,
)
from collectives.call import CollectiveCall
from collectives.groups import groups_of
from collectives.kinds import Kind
from collectives.settings import schedule_of, settings_of
from topologies.spec.spec import Spec
from topologies.spec.workload_section import WorkloadSpec
from workloads.models.build import has_actions, step_of
from workloads.models.planned import PlannedCall, planned_calls
from workloads.models.step import (
    ComputeKernel,
    Pause,
    StartCollective,
    StartMessage,
    WaitFor,
)

ALIGN_MARGIN_NS, ALIGN_GRID_NS = 1_000_000, 10_000_000
"""How far ahead ranks agree to start, and on which grid (`workloads.execution.communicator`)."""

_ALIGN_BYTES = 8

Ranks = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PredictedIteration:
    """An iteration: from the common start to the last rank's end; the computation and the blocked
    time of the rank that has most of it. `error_ns`, by predictors that leap: how far off it may
    be where all leaps of a rank are off the same way."""

    duration_ns: int
    compute_ns: int
    exposed_comm_ns: int
    error_ns: int | None = None


@dataclass(frozen=True, slots=True)
class JobToPredict:
    """A job: its spec, with one workload; the number of its first rank among those of all jobs in
    the setting; and when it starts."""

    name: str
    spec: Spec
    first: int = 0
    start_ns: int = 0

    @property
    def ranks(self) -> range:
        """Their numbers among those of all jobs."""
        return range(self.first, self.first + self.spec.workload.ranks)


def jobs_of(spec: Spec) -> list[JobToPredict]:
    """The jobs of a spec that are not idle; of a spec with one workload, that one."""
    if not spec.jobs:
        return [JobToPredict("", spec)]
    return [
        JobToPredict(job.name, spec.parts[job.name], spec.plan.job(job.name).first, job.start_ns)
        for job in spec.jobs
        if not job.idle
    ]


@dataclass(frozen=True, slots=True)
class PredictedCollective:
    """How long a collective takes as a run measures it, and when its last rank posts it, from its
    iteration's begin; 0 in a benchmark, whose operations each begin together. `error_ns`, by
    predictors that leap: how far off its duration may be. Nanoseconds."""

    duration_ns: float
    start_ns: float
    error_ns: float | None = None


@dataclass(frozen=True, slots=True)
class PredictedJob:
    """From a job's start to its last rank's end, and each of its iterations. `collectives` has, by
    iteration, id without the iteration, and members, those that were followed in the run."""

    duration_ns: int
    iterations: tuple[PredictedIteration, ...]
    collectives: Mapping[tuple[int, str, Ranks], PredictedCollective] = field(default_factory=dict)


def mean_of(iterations: Sequence[PredictedIteration]) -> PredictedIteration:
    """The mean of some iterations, one at least."""
    errors = [one.error_ns for one in iterations if one.error_ns is not None]
    return PredictedIteration(
        round(mean(one.duration_ns for one in iterations)),
        round(mean(one.compute_ns for one in iterations)),
        round(mean(one.exposed_comm_ns for one in iterations)),
        round(mean(errors)) if errors else None,
    )


def predict_workload(spec: Spec, setting: Setting, predictor: Predictor) -> PredictedJob:
    """As `predict_run`, of a spec with one workload."""
    return predict_run(jobs_of(spec), setting, predictor)[""]


def predict_run(
    jobs: Sequence[JobToPredict], setting: Setting, predictor: Predictor
) -> dict[str, PredictedJob]:
    """Predict jobs that share a fabric, by name.

    Raises PredictorError for workloads that are not predicted ahead (traces and programs of users),
    for several jobs where the predictor does not follow what all ranks do, for what happens to a
    run from outside, and for more than is followed; CollectiveError for a collective that the
    predictor refuses.
    """
    simulator = predictor if isinstance(predictor, Adapted) else Adapted(predictor)
    unnamed = len(jobs) == 1 and not jobs[0].name
    if simulator.remembers:
        for job in jobs:
            if job.spec.faults and not unnamed:
                raise PredictorError("faults are not followed beside several jobs")
    elif unnamed:
        return {"": _repeated(jobs[0], setting, simulator)}
    elif len(jobs) > 1 and not simulator.knows_links:
        raise PredictorError(
            "jobs that share links have to be followed message by message, which flow does up to "
            "70,000 messages"
        )
    plan = _Plan(jobs, setting, aligned=unnamed)
    if unnamed or len(jobs) > 1:
        return plan.read(simulator.follow(plan.scenario))
    return plan.read(simulator.run(plan.scenario))


def planned_scenario(
    jobs: Sequence[JobToPredict], setting: Setting
) -> tuple[Scenario, frozenset[int]]:
    """The acts of jobs' ranks, all iterations, and which of the scenario's calls are their own:
    by the others ranks agree when to begin. Raises PredictorError for workloads that are not
    predicted ahead."""
    plan = _Plan(jobs, setting, aligned=len(jobs) == 1 and not jobs[0].name)
    return plan.scenario, frozenset(plan.places)


def _repeated(job: JobToPredict, setting: Setting, simulator: Adapted) -> PredictedJob:
    """A spec's one workload, one iteration of which stands for all."""
    count = job.spec.workload.iterations
    if job.spec.workload.listed is not None:
        # Each begins on an idle fabric.
        calls = [planned.call for planned in planned_calls(job.spec)]
        total = sum(round(simulator.predict(setting, call)) for call in calls)
        one = PredictedIteration(total, 0, total)
    else:
        plan = _Plan([job], setting, iterations=1)
        (one,) = plan.read(simulator.run(plan.scenario))[""].iterations
    return PredictedJob(count * one.duration_ns, count * (one,))


@dataclass(slots=True)
class _Place:
    """A collective of a job."""

    job: str
    iteration: int
    name: str
    ranks: Ranks


class _Plan:
    """The work of all ranks of jobs, with the places of its collectives and iterations.

    An iteration begins with the `Pass` of twice its number, and ends with the one after that. With
    `aligned`, ranks agree on when it begins. `iterations` is how many there are (None: all).
    """

    def __init__(
        self,
        jobs: Sequence[JobToPredict],
        setting: Setting,
        aligned: bool = False,
        iterations: int | None = None,
    ) -> None:
        self._jobs = jobs
        self._setting = setting
        self._aligned = aligned
        self._iterations = iterations
        self._calls: list[GroupedCall] = []
        self._acts: dict[int, list[Act]] = defaultdict(list)
        self.places: dict[int, _Place] = {}
        """By the number of the call, those that are the jobs' own."""
        self._computed_ns: dict[str, int] = defaultdict(int)
        self._meetings = 0
        for job in jobs:
            self._add(job)

    @property
    def scenario(self) -> Scenario:
        """The question to a simulator. Faults are timed by iterations that ranks begin together."""
        faults = [fault for job in self._jobs for fault in job.spec.faults if self._aligned]
        return Scenario(self._setting, self._calls, self._acts, faults)

    def _count(self, job: JobToPredict) -> int:
        return job.spec.workload.iterations if self._iterations is None else self._iterations

    def _add(self, job: JobToPredict) -> None:
        workload = job.spec.workload
        for rank in job.ranks:
            self._acts[rank].append(Compute(job.start_ns))
        if workload.listed is not None:
            planned = planned_calls(job.spec)
            for iteration in range(self._count(job)):
                self._pass(job, 2 * iteration)
                self._add_benchmark(job, planned, iteration)
                self._pass(job, 2 * iteration + 1)
        elif has_actions(workload):
            model = _Model(job.spec, workload)
            for iteration in range(self._count(job)):
                if self._aligned:
                    self._align(job)
                self._begin(job, iteration)
                self._pass(job, 2 * iteration)
                self._add_steps(job, model, iteration)
                self._pass(job, 2 * iteration + 1)
        else:
            whose = f"job {job.name}: " if job.name else ""
            raise PredictorError(
                f"{whose}workload.kind: {workload.kind} is not predicted as a whole; nobody knows "
                "ahead what it does between its collectives"
            )
        self._pass(job, 2 * self._count(job))
        if self._aligned:  # a rank that is done tells the others
            self._align(job)

    def _add_benchmark(
        self, job: JobToPredict, calls: Sequence[PlannedCall], iteration: int
    ) -> None:
        """An iteration of a benchmark: each operation, when the one before is over."""
        for number, planned in enumerate(calls):
            if self._aligned:
                self._align(job)
            if not number:
                self._begin(job, iteration)
            place = self._post(job, planned.call, str(tuple(job.ranks)))
            self.places[place] = _Place(job.name, iteration, planned.name, planned.call.ranks)
            for rank in self._calls[place].call.ranks:
                self._acts[rank] += [PostCall(place), WaitForCall(place)]

    def _add_steps(self, job: JobToPredict, model: _Model, iteration: int) -> None:
        """An iteration of a model, whose ranks share what they post by the name that it has."""
        known: dict[tuple[str, Ranks], int] = {}
        for rank, step in enumerate(model.steps):
            acts = self._acts[job.first + rank]
            mine: dict[str, int] = {}
            computed_ns = 0
            for action in step:
                match action:
                    case ComputeKernel() | Pause():
                        acts.append(Compute(model.time_ns(action)))
                        computed_ns += model.time_ns(action)
                    case StartCollective() | StartMessage():
                        ranks = model.members(action, rank)
                        key = action.name, ranks
                        if key not in known:
                            # A group of the same ranks is the same process group; messages are
                            # that of all ranks.
                            message = isinstance(action, StartMessage)
                            group = tuple(job.ranks)
                            if not message:
                                group = tuple(job.first + member for member in ranks)
                            known[key] = self._post(job, model.call(action, ranks), str(group))
                            place = _Place(job.name, iteration, action.name, ranks)
                            self.places[known[key]] = place
                        mine[action.name] = known[key]
                        acts.append(PostCall(known[key]))
                    case WaitFor(name):
                        acts.append(WaitForCall(mine[name]))
                    case _:
                        assert_never(action)
            self._computed_ns[job.name] = max(self._computed_ns[job.name], computed_ns)

    def _post(self, job: JobToPredict, call: CollectiveCall, group: str) -> int:
        """The place of a call of a job, by its ranks' numbers in the job. Switches are numbered
        after the ranks of all jobs."""
        schedule = call.schedule
        if schedule.aggregators:
            schedule = schedule.beside(len(self._setting.hosts) - len(job.ranks))
        ranks = tuple(job.first + rank for rank in call.ranks)
        self._calls.append(GroupedCall(replace(call, ranks=ranks, schedule=schedule), group))
        return len(self._calls) - 1

    def _align(self, job: JobToPredict) -> None:
        ranks = tuple(range(len(job.ranks)))
        call = CollectiveCall(Kind.ALL_REDUCE, _ALIGN_BYTES, ranks, _ALIGN_BYTES)
        place = self._post(job, call, str(tuple(job.ranks)))
        propose = Propose(self._meetings, ALIGN_MARGIN_NS, ALIGN_GRID_NS)
        meet = Meet(self._meetings)
        for rank in job.ranks:
            self._acts[rank] += [propose, PostCall(place), WaitForCall(place), meet]
        self._meetings += 1

    def _begin(self, job: JobToPredict, iteration: int) -> None:
        if job.spec.faults:
            self._acts[job.first].append(Begin(iteration))

    def _pass(self, job: JobToPredict, number: int) -> None:
        for rank in job.ranks:
            self._acts[rank].append(Pass(number))

    def read(self, timeline: Timeline) -> dict[str, PredictedJob]:
        """The timeline of the scenario, by job."""
        return {job.name: self._read(job, timeline) for job in self._jobs}

    def _read(self, job: JobToPredict, timeline: Timeline) -> PredictedJob:
        last = 2 * self._count(job)
        ended_ns = max(timeline.passed_ns[rank, last][0] for rank in job.ranks)
        collectives = dict(self._collectives(job, timeline))
        iterations = [self._iteration(job, i, timeline) for i in range(self._count(job))]
        if self._aligned and job.spec.workload.listed is not None:
            sums = [0.0] * len(iterations)
            for (iteration, _, _), found in collectives.items():
                sums[iteration] += found.duration_ns
            iterations = [
                PredictedIteration(round(s), 0, round(s), one.error_ns)
                for s, one in zip(sums, iterations, strict=True)
            ]
        duration_ns = round(ended_ns - job.start_ns)
        return PredictedJob(duration_ns, tuple(iterations), collectives)

    def _collectives(
        self, job: JobToPredict, timeline: Timeline
    ) -> Iterator[tuple[tuple[int, str, Ranks], PredictedCollective]]:
        measured_ns = timeline.measured_ns()
        at_once = self._aligned and job.spec.workload.listed is not None
        for number, place in self.places.items():
            if place.job == job.name:
                start_ns = 0.0
                if not at_once:
                    begun = (timeline.passed_ns[r, 2 * place.iteration][0] for r in job.ranks)
                    start_ns = max(timeline.posted_ns[number].values()) - min(begun)
                key = place.iteration, place.name, place.ranks
                error_ns = timeline.error_ns(number)
                yield key, PredictedCollective(measured_ns[number], start_ns, error_ns)

    def _iteration(
        self, job: JobToPredict, iteration: int, timeline: Timeline
    ) -> PredictedIteration:
        begun = [timeline.passed_ns[rank, 2 * iteration] for rank in job.ranks]
        ended = [timeline.passed_ns[rank, 2 * iteration + 1] for rank in job.ranks]
        waited = [end[1] - begin[1] for begin, end in zip(begun, ended, strict=True)]
        duration_ns = max(end[0] for end in ended) - min(begin[0] for begin in begun)
        return PredictedIteration(
            round(duration_ns),
            self._computed_ns[job.name],
            round(max(waited)),
            self._error_ns(job, iteration, timeline),
        )

    def _error_ns(self, job: JobToPredict, iteration: int, timeline: Timeline) -> int | None:
        """How far off an iteration may be: as the calls of one rank are together, at most."""
        if not timeline.errors_ns:
            return None
        of_rank: dict[int, list[int]] = defaultdict(list)
        for number, place in self.places.items():
            if place.job == job.name and place.iteration == iteration:
                for rank in timeline.calls[number].call.ranks:
                    of_rank[rank].append(number)
        return round(max(map(timeline.error_together_ns, of_rank.values()), default=0.0))


class _Model:
    """A model's workload: the steps of its ranks, who takes part in what a rank posts, and what
    it costs."""

    def __init__(self, spec: Spec, workload: WorkloadSpec) -> None:
        self._spec = spec
        self._groups = groups_of(workload)
        self._item_bytes = workload.item_bytes
        self.steps = [tuple(step_of(workload, rank)) for rank in range(workload.ranks)]

    def members(self, action: StartCollective | StartMessage, rank: int) -> Ranks:
        """The ranks that take part in what a rank posts."""
        if isinstance(action, StartMessage):
            return action.source, action.destination
        return next(tuple(group) for group in self._groups[action.group] if rank in group)

    def time_ns(self, kernel: ComputeKernel | Pause) -> int:
        """The time of a computation."""
        if isinstance(kernel, Pause):
            return kernel.duration_ns * self._spec.compute.slowdown
        return self._spec.compute.time_ns(kernel.flops, kernel.moved_bytes, self._item_bytes)

    def call(self, action: StartCollective | StartMessage, ranks: Ranks) -> CollectiveCall:
        """The call that is posted, with its schedule."""
        size_bytes = action.elements * self._item_bytes
        if isinstance(action, StartMessage):
            return CollectiveCall(Kind.SEND_RECV, size_bytes, ranks, self._item_bytes, peer=1)
        call = CollectiveCall(action.kind, size_bytes, ranks, self._item_bytes)
        schedule = schedule_of(settings_of(self._spec), call.shape, members=ranks)
        return replace(call, schedule=schedule)
