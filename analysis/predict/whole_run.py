"""A whole run predicted from its spec: all iterations, alignments and collectives, on one fabric.

Connections remember: windows are what earlier collectives made of them. So a predictor that follows
them is asked about the run as a whole, and not about a collective at a time. Ranks do what they do
in a run: they agree on a common start before each iteration, or before each operation of a
benchmark, and post, compute and wait as their steps say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from analysis.predict.engines.acts import Meet, Pass, PostCall, Propose, WaitForCall
from analysis.predict.engines.joint_programs import GroupedCall, JointPrograms
from analysis.predict.interface import PredictorError, Setting
from analysis.predict.iteration import Costs, JointSteps, PredictedIteration, StepModel
from analysis.predict.link_load import LoadOfCalls
from analysis.predict.together import FollowsRuns
from collectives.call import CollectiveCall
from collectives.kinds import Kind
from collectives.settings import settings_of
from topologies.spec.spec import Spec
from topologies.spec.workload_section import ITEM_BYTES, CollectivesWorkload, ModelWorkload
from workloads.models.planned import planned_calls

ALIGN_MARGIN_NS, ALIGN_GRID_NS = 1_000_000, 10_000_000
"""How far ahead ranks agree to start, and on which grid (`workloads.execution.communicator`)."""

_ALIGN_BYTES = 8


@dataclass(frozen=True, slots=True)
class PredictedRun:
    """Iterations in their order, and collectives by id and members, in nanoseconds as a run
    measures them: how long each takes, and when its last rank posts it, from its iteration's begin;
    0 in a benchmark, whose operations each begin together."""

    iterations: tuple[PredictedIteration, ...]
    collectives: Mapping[tuple[str, tuple[int, ...]], float]
    starts_ns: Mapping[tuple[str, tuple[int, ...]], float]


def predict_run(spec: Spec, setting: Setting, predictor: FollowsRuns) -> PredictedRun:
    """Follow a spec's run from its first alignment to its end. Raises PredictorError for workloads
    that are not predicted ahead, for what happens to a run from outside or is held back by its
    ports, and for more than the predictor follows."""
    if spec.faults:
        raise PredictorError("faults are not followed")
    if spec.virtual.receive_coalescing_ns:
        raise PredictorError("virtual.receive_coalescing is not followed")
    plan = _RunPlan(spec, setting, predictor)
    workload = spec.workload
    if isinstance(workload, CollectivesWorkload):
        plan.add_benchmark(workload)
    elif isinstance(workload, ModelWorkload):
        plan.add_steps(workload)
    else:
        raise PredictorError(f"workload.kind: {workload.kind} is not predicted ahead")
    return plan.run()


class _RunPlan:
    """The work of all ranks in a run."""

    def __init__(self, spec: Spec, setting: Setting, predictor: FollowsRuns) -> None:
        self._spec = spec
        self._setting = setting
        self._predictor = predictor
        self._steps = JointSteps()
        self._ranks = tuple(range(spec.workload.ranks))
        self._meetings = 0
        self._named: dict[int, tuple[str, tuple[int, ...]]] = {}
        self._sums: list[list[int]] = []

    def add_benchmark(self, workload: CollectivesWorkload) -> None:
        """Each operation of each iteration after an alignment."""
        planned = planned_calls(self._spec)
        for iteration in range(workload.iterations):
            self._sums.append([])
            for each in planned:
                self._align()
                place = self._add(each.call)
                self._named[place] = f"i{iteration}.{each.name}", each.call.ranks
                self._sums[-1].append(place)
                for rank in self._ranks:
                    self._steps.acts[rank] += [PostCall(place), WaitForCall(place)]

    def add_steps(self, workload: ModelWorkload) -> None:
        """All iterations of a model's step, each after an alignment."""
        costs = Costs(
            LoadOfCalls(self._setting, None),
            _unasked,
            ITEM_BYTES[workload.dtype],
            settings_of(self._spec),
        )
        model = StepModel(self._spec, workload, costs)
        for iteration in range(workload.iterations):
            self._align()
            self._pass(2 * iteration)
            self._steps.add(model, iteration=iteration)
            self._pass(2 * iteration + 1)
        for (_, iteration, name, ranks), place in self._steps.places.items():
            self._named[place] = f"i{iteration}.{name}", ranks

    def _align(self) -> None:
        call = CollectiveCall(Kind.ALL_REDUCE, _ALIGN_BYTES, self._ranks, _ALIGN_BYTES)
        place = self._add(call)
        propose = Propose(self._meetings, ALIGN_MARGIN_NS, ALIGN_GRID_NS)
        for rank in self._ranks:
            self._steps.acts[rank] += [
                propose,
                PostCall(place),
                WaitForCall(place),
                Meet(self._meetings),
            ]
        self._meetings += 1

    def _add(self, call: CollectiveCall) -> int:
        self._steps.calls.append(GroupedCall(call, str(self._ranks)))
        return len(self._steps.calls) - 1

    def _pass(self, number: int) -> None:
        for rank in self._ranks:
            self._steps.acts[rank].append(Pass(number))

    def run(self) -> PredictedRun:
        """Follow it."""
        joint = JointPrograms(self._steps.calls, self._steps.acts, self._setting.seed)
        self._predictor.follow_run(self._setting, joint)
        measured = joint.measured_ns()
        found = {self._named[place]: measured[place] for place in self._named}
        if self._sums:
            sums = [round(sum(measured[place] for place in own)) for own in self._sums]
            at_once = dict.fromkeys(found, 0.0)
            return PredictedRun(tuple(PredictedIteration(s, 0, s) for s in sums), found, at_once)
        count = self._spec.workload.iterations
        iterations = tuple(self._iteration(joint, i) for i in range(count))
        return PredictedRun(iterations, found, self._starts(joint))

    def _starts(self, joint: JointPrograms) -> dict[tuple[str, tuple[int, ...]], float]:
        found = {}
        for (_, iteration, _, _), place in self._steps.places.items():
            begun = min(joint.passed_ns[rank, 2 * iteration][0] for rank in self._ranks)
            found[self._named[place]] = max(joint.posted_ns[place].values()) - begun
        return found

    def _iteration(self, joint: JointPrograms, iteration: int) -> PredictedIteration:
        begun = [joint.passed_ns[rank, 2 * iteration] for rank in self._ranks]
        ended = [joint.passed_ns[rank, 2 * iteration + 1] for rank in self._ranks]
        waited = [end[1] - begin[1] for begin, end in zip(begun, ended, strict=True)]
        duration_ns = max(end[0] for end in ended) - min(begin[0] for begin in begun)
        return PredictedIteration(
            round(duration_ns), self._steps.compute_ns, round(max(waited, default=0.0))
        )


def _unasked(call: object) -> float:
    raise AssertionError("what is followed message by message is not priced one by one")
