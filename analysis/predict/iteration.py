"""A whole iteration predicted: every rank's step, with collectives in flight together.

Ranks run their step's actions (`workloads.models.step`): a computation takes the roofline's time, a
collective begins when its last rank has posted it, a rank waits where its step waits. A process
group runs as many collectives at once as it has worker threads; those that run share the links as
in `link_load`. A collective's time alone is a predictor's. A predictor that can follows all ranks
message by message instead (`engines.joint_programs`).

Not modelled: what a message or a thread costs a rank's processor, and what windows remember of the
collective before.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

from analysis.predict.engines.acts import Act, Compute, PostCall, WaitForCall
from analysis.predict.engines.joint_programs import GroupedCall, JointPrograms
from analysis.predict.interface import PredictorError, Setting
from analysis.predict.link_load import LinkLoad, LoadOfCalls, slowdowns
from analysis.predict.overlap import WORKERS
from analysis.predict.together import PredictsTogether
from collectives.call import CollectiveCall
from collectives.groups import groups_of
from collectives.kinds import Kind
from collectives.settings import schedule_of, settings_of
from topologies.spec.collectives_section import CollectivesSection
from topologies.spec.spec import Spec
from topologies.spec.workload_section import (
    ITEM_BYTES,
    ChakraWorkload,
    CollectivesWorkload,
    CommandWorkload,
    ModelWorkload,
)
from workloads.models.build import step_of
from workloads.models.planned import planned_calls
from workloads.models.step import (
    Action,
    ComputeKernel,
    Pause,
    StartCollective,
    StartMessage,
    WaitFor,
)

_FINISHED_NS = 1e-6
"""The rest of a transfer that has come to its end, but for rounding."""


@dataclass(frozen=True, slots=True)
class PredictedIteration:
    """An iteration: from the common start to the last rank's end; the computation and the blocked
    time of the rank that has most of it."""

    duration_ns: int
    compute_ns: int
    exposed_comm_ns: int


Members = Callable[[StartCollective | StartMessage, int], tuple[int, ...]]

Alone = Callable[[CollectiveCall], float]
"""A predictor's answer for a collective on an idle fabric, in nanoseconds."""


def predict_iteration(
    spec: Spec,
    setting: Setting,
    alone: Alone,
    predictor: object = None,
    *,
    follow: bool = True,
) -> PredictedIteration:
    """Predict one iteration of a spec's workload. `predictor` is whose word `alone` is: it is asked
    which links collectives load (`link_load.LoadsLinks`), and unless `follow` is false about the
    whole, where it can follow it (`together.PredictsTogether`).

    A benchmark's collectives run one after another, each from a common start. Raises PredictorError
    for a traced workload, whose dependencies only a replay follows, and for a program; and
    CollectiveError for a collective that the predictor refuses.
    """
    workload = spec.workload
    if isinstance(workload, ChakraWorkload | CommandWorkload):
        raise PredictorError(f"workload.kind: {workload.kind} is not predicted as a whole")
    if isinstance(workload, CollectivesWorkload):
        total = round(sum(alone(planned.call) for planned in planned_calls(spec)))
        return PredictedIteration(total, 0, total)
    costs = Costs(
        LoadOfCalls(setting, predictor), alone, ITEM_BYTES[workload.dtype], settings_of(spec)
    )
    model = StepModel(spec, workload, costs)
    if follow and isinstance(predictor, PredictsTogether):
        try:
            followed = _followed(model, setting, predictor)
        except PredictorError:
            followed = None  # too many messages to follow
        if followed is not None:
            return followed
    return _Iteration(model.steps, model.members, model.time_ns, model.costs).run()


class StepModel:
    """The work of a model's ranks in an iteration, and its cost."""

    def __init__(self, spec: Spec, workload: ModelWorkload, costs: Costs) -> None:
        self._spec = spec
        self._groups = groups_of(workload)
        self._item_bytes = ITEM_BYTES[workload.dtype]
        self.costs = costs
        self.steps = [tuple(step_of(workload, rank)) for rank in range(workload.ranks)]

    def members(self, action: StartCollective | StartMessage, rank: int) -> tuple[int, ...]:
        """The ranks that take part in what a rank posts."""
        if isinstance(action, StartMessage):
            return action.source, action.destination
        return next(tuple(group) for group in self._groups[action.group] if rank in group)

    def time_ns(self, kernel: ComputeKernel | Pause) -> int:
        """The time of a computation."""
        if isinstance(kernel, Pause):
            return kernel.duration_ns * self._spec.compute.slowdown
        return self._spec.compute.time_ns(kernel.flops, kernel.moved_bytes, self._item_bytes)


def _followed(
    model: StepModel, setting: Setting, predictor: PredictsTogether
) -> PredictedIteration | None:
    """All ranks followed message by message to their ends; None where the predictor does not, or
    nothing is sent. Raises PredictorError for too many messages, and when ranks wait for each
    other."""
    whole = JointSteps()
    whole.add(model)
    if not whole.calls or not predictor.follows(setting, whole.calls):
        return None
    joint = whole.run(setting, predictor)
    return PredictedIteration(
        round(max(joint.ended_ns.values())),
        whole.compute_ns,
        round(max(joint.waited_ns.values(), default=0.0)),
    )


@dataclass(frozen=True, slots=True)
class _Cost:
    """The time of a transfer alone, and how it loads its links meanwhile."""

    alone_ns: float
    load: LinkLoad


class Costs:
    """A predictor's answers, asked once for each distinct call."""

    def __init__(
        self, loads: LoadOfCalls, alone: Alone, item_bytes: int, settings: CollectivesSection
    ) -> None:
        self._settings = settings
        self._loads = loads
        self._alone = alone
        self._item_bytes = item_bytes
        self._known: dict[CollectiveCall, _Cost] = {}

    def call(
        self, action: StartCollective | StartMessage, ranks: tuple[int, ...]
    ) -> CollectiveCall:
        """The call that is posted, with its schedule."""
        size_bytes = action.elements * self._item_bytes
        if isinstance(action, StartMessage):
            return CollectiveCall(Kind.SEND_RECV, size_bytes, ranks, self._item_bytes, peer=1)
        call = CollectiveCall(action.kind, size_bytes, ranks, self._item_bytes)
        return replace(call, schedule=schedule_of(self._settings, call.shape, members=ranks))

    def of(self, action: StartCollective | StartMessage, ranks: tuple[int, ...]) -> _Cost:
        """The time that it takes alone."""
        call = self.call(action, ranks)
        if call not in self._known:
            alone_ns = self._alone(call)
            self._known[call] = _Cost(alone_ns, self._loads.of(call, alone_ns))
        return self._known[call]


class JointSteps:
    """Steps of ranks, of one job or several, as what is followed message by message. Ranks of
    several jobs are numbered through."""

    def __init__(self) -> None:
        self.calls: list[GroupedCall] = []
        self.acts: dict[int, list[Act]] = defaultdict(list)
        self.compute_ns = 0
        """The computing of a step, at the rank that computes most."""
        self.places: dict[tuple[str, int, str, tuple[int, ...]], int] = {}

    def add(self, model: StepModel, first: int = 0, job: str = "", iteration: int = 0) -> None:
        """An iteration of a job whose first rank has this number."""
        everybody = str(tuple(range(first, first + len(model.steps))))
        for rank, step in enumerate(model.steps):
            acts = self.acts[first + rank]
            mine: dict[str, int] = {}
            computed_ns = 0
            for action in step:
                match action:
                    case ComputeKernel() | Pause():
                        acts.append(Compute(model.time_ns(action)))
                        computed_ns += model.time_ns(action)
                    case StartCollective() | StartMessage():
                        ranks = model.members(action, rank)
                        key = job, iteration, action.name, ranks
                        if key not in self.places:
                            # A group of the same ranks is the same process group; messages are
                            # that of all ranks.
                            moved = tuple(first + member for member in ranks)
                            message = isinstance(action, StartMessage)
                            call = replace(model.costs.call(action, ranks), ranks=moved)
                            group = everybody if message else str(moved)
                            self.places[key] = len(self.calls)
                            self.calls.append(GroupedCall(call, group))
                        mine[action.name] = self.places[key]
                        acts.append(PostCall(mine[action.name]))
                    case WaitFor(name):
                        acts.append(WaitForCall(mine[name]))
                    case _:
                        assert_never(action)
            self.compute_ns = max(self.compute_ns, computed_ns)

    def run(self, setting: Setting, predictor: PredictsTogether) -> JointPrograms:
        """Follow all ranks to their ends. Raises PredictorError for too many messages, and when
        ranks wait for each other."""
        joint = JointPrograms(self.calls, self.acts, setting.seed)
        predictor.run_together(setting, joint)
        joint.durations_ns()
        return joint


@dataclass(eq=False, slots=True)
class _Transfer:
    """A collective or a message: posted by some of its ranks, queued, running or done."""

    ranks: tuple[int, ...]
    workers: float
    """How many of its group's run at once: messages need no worker thread."""
    cost: _Cost
    left_ns: float
    posted: int = 0
    done: bool = False


@dataclass(slots=True)
class _Rank:
    """A rank's main thread: what it does next, and until when it computes."""

    number: int
    actions: Iterator[Action]
    busy_until_ns: float = 0.0
    blocked_on: _Transfer | None = None
    blocked_since_ns: float = 0.0
    compute_ns: float = 0.0
    exposed_ns: float = 0.0
    mine: dict[str, _Transfer] = field(default_factory=dict)
    ended: bool = False


class _Iteration:
    def __init__(
        self,
        steps: Sequence[Iterable[Action]],
        members: Members,
        time_ns: Callable[[ComputeKernel | Pause], int],
        costs: Costs,
    ) -> None:
        self._ranks = [_Rank(number, iter(step)) for number, step in enumerate(steps)]
        self._members = members
        self._time_ns = time_ns
        self._costs = costs
        self._transfers: dict[tuple[str, tuple[int, ...]], _Transfer] = {}
        self._queued: list[_Transfer] = []
        self._running: list[_Transfer] = []
        self._now_ns = 0.0

    def run(self) -> PredictedIteration:
        """Follow all ranks to their ends. Raises PredictorError when they wait for each other."""
        running: list[_Transfer] = []
        slower: list[float] = []
        while True:
            for rank in self._ranks:
                self._advance(rank)
            self._admit()
            if running != self._running:
                running = list(self._running)
                slower = slowdowns([transfer.cost.load for transfer in running])
            ends = [self._now_ns + t.left_ns * s for t, s in zip(running, slower, strict=True)]
            computing = [r.busy_until_ns for r in self._ranks if r.busy_until_ns > self._now_ns]
            upcoming = min([*ends, *computing], default=math.inf)
            if math.isinf(upcoming):
                break
            self._pass_to(upcoming, slower)
        if not all(rank.ended for rank in self._ranks):
            waiting = next(rank.number for rank in self._ranks if not rank.ended)
            raise PredictorError(f"rank {waiting} waits for what no other rank posts")
        return PredictedIteration(
            round(self._now_ns),
            round(max(rank.compute_ns for rank in self._ranks)),
            round(max(rank.exposed_ns for rank in self._ranks)),
        )

    def _advance(self, rank: _Rank) -> None:
        """Have a rank act until it computes, is blocked, or has come to its end."""
        while not rank.ended and rank.busy_until_ns <= self._now_ns:
            if rank.blocked_on is not None:
                if not rank.blocked_on.done:
                    return
                rank.exposed_ns += self._now_ns - rank.blocked_since_ns
                rank.blocked_on = None
            action = next(rank.actions, None)
            match action:
                case None:
                    rank.ended = True
                case ComputeKernel() | Pause():
                    took_ns = self._time_ns(action)
                    rank.busy_until_ns = self._now_ns + took_ns
                    rank.compute_ns += took_ns
                case StartCollective() | StartMessage():
                    self._post(rank, action)
                case WaitFor(name):
                    rank.blocked_on, rank.blocked_since_ns = rank.mine.pop(name), self._now_ns

    def _post(self, rank: _Rank, action: StartCollective | StartMessage) -> None:
        ranks = self._members(action, rank.number)
        transfer = self._transfers.get((action.name, ranks))
        if transfer is None:
            cost = self._costs.of(action, ranks)
            workers = math.inf if isinstance(action, StartMessage) else WORKERS
            transfer = _Transfer(ranks, workers, cost, cost.alone_ns)
            self._transfers[action.name, ranks] = transfer
        rank.mine[action.name] = transfer
        transfer.posted += 1
        if transfer.posted == len(ranks):
            self._queued.append(transfer)

    def _admit(self) -> None:
        """Let run what its group has a worker thread for, in order of posting."""
        for transfer in list(self._queued):
            busy = sum(t.ranks == transfer.ranks and t.workers == WORKERS for t in self._running)
            if busy < transfer.workers:
                self._queued.remove(transfer)
                self._running.append(transfer)

    def _pass_to(self, time_ns: float, slower: Sequence[float]) -> None:
        passed_ns = time_ns - self._now_ns
        self._now_ns = time_ns
        for transfer, slowdown in zip(list(self._running), slower, strict=True):
            transfer.left_ns -= passed_ns / slowdown
            if transfer.left_ns <= _FINISHED_NS:
                transfer.done = True
                self._running.remove(transfer)
