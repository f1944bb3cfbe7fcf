"""Steps of models with real Gloo: kernels take their time, collectives and messages go out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Thread
from typing import Protocol, assert_never

import torch

from collectives.kinds import Kind
from topologies.spec.workload_section import (
    CollectiveOperation,
    RootedCollective,
    WorkloadSpec,
)
from topologies.spec.workload_types import GroupName
from workloads.execution.clock import now_ns
from workloads.execution.communicator import Communicator
from workloads.execution.compute_model import ComputeModel
from workloads.execution.events import EventLog, Pending
from workloads.execution.operations import RankOperation, post_message, post_tensor
from workloads.models.step import (
    Action,
    ComputeKernel,
    Pause,
    StartCollective,
    StartMessage,
    WaitFor,
)

_WATCHERS = 1024
"""At most so many messages with contents are under way; a thread is made when there is none."""


class Contents(Protocol):
    """The contents of a step's kernels and messages, where these are more than time and known
    numbers."""

    def begin(self) -> None:
        """An iteration begins."""

    def work(self, kernel: ComputeKernel) -> None:
        """Compute what a kernel stands for."""

    def buffer(self, message: StartMessage) -> torch.Tensor:
        """The tensor that this rank sends, or receives into."""

    def check(self, message: StartMessage, id: str) -> None:
        """A message has arrived. Raises numbers.WrongResult for wrong numbers."""

    def end(self, id: str) -> None:
        """An iteration is over. Raises numbers.WrongResult for wrong numbers."""


def run_steps(
    workload: WorkloadSpec,
    step: Iterable[Action],
    groups: Mapping[GroupName, Communicator],
    compute: ComputeModel,
    log: EventLog,
    on_iteration: Callable[[int], None],
    contents: Contents | None = None,
) -> None:
    """Run this rank's step in every iteration. Without `contents` messages hold numbers that the
    other end knows.

    Raises numbers.WrongResult when a collective delivered wrong numbers.
    """
    actions = tuple(step)
    with ThreadPoolExecutor(_WATCHERS) as watchers:
        for iteration in range(workload.iterations):
            groups["world"].align(iteration)
            on_iteration(iteration)
            if contents is not None:
                contents.begin()
            start_ns = now_ns()
            _Step(workload, groups, compute, iteration, contents, watchers).run(actions)
            log.iteration(iteration, start_ns, now_ns())
            if contents is not None:
                contents.end(f"i{iteration}")
                log.check(f"i{iteration}.outputs")


class _Awaited:
    """A message that a thread of its own waits for, from now on."""

    def __init__(self, communicator: Communicator, pending: Pending) -> None:
        self._communicator = communicator
        self._pending: Pending | None = pending
        self._failure: BaseException | None = None
        self._thread = Thread(target=self._wait)
        self._thread.start()

    def _wait(self) -> None:
        assert self._pending is not None
        try:
            self._communicator.wait(self._pending, waited_ns=0)
        except BaseException as error:
            self._failure = error
        self._pending = None

    def join(self) -> None:
        """Wait for it. Raises what the thread raised."""
        self._thread.join()
        if self._failure is not None:
            raise self._failure


class _Step:
    """One iteration of one rank."""

    def __init__(
        self,
        workload: WorkloadSpec,
        groups: Mapping[GroupName, Communicator],
        compute: ComputeModel,
        iteration: int,
        contents: Contents | None,
        watchers: ThreadPoolExecutor,
    ) -> None:
        self._watchers = watchers
        self._contents = contents
        self._dtype = workload.dtype
        self._item_bytes = workload.item_bytes
        self._groups = groups
        self._compute = compute
        self._iteration = iteration
        self._posted: dict[str, tuple[Communicator, Pending]] = {}
        # A flow's end is when it is over, not when somebody waits for it.
        self._awaits_at_once = workload.awaits_at_once
        self._awaited: dict[str, _Awaited] = {}

    def run(self, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case ComputeKernel():
                    self._compute.run(
                        action.name,
                        action.phase,
                        self._iteration,
                        action.flops,
                        action.moved_bytes,
                        self._item_bytes,
                        self._work(action),
                    )
                case Pause():
                    self._compute.pause(
                        action.name, action.phase, self._iteration, action.duration_ns
                    )
                case StartCollective():
                    group = self._groups[action.group]
                    self._posted[action.name] = group, self._collective(action, group)
                case StartMessage():
                    world = self._groups["world"]
                    posted = world, self._message(action, world)
                    if self._awaits_at_once:
                        self._awaited[action.name] = _Awaited(*posted)
                    else:
                        self._posted[action.name] = posted
                case WaitFor():
                    if self._awaits_at_once:
                        self._awaited.pop(action.name).join()
                    else:
                        self._wait(*self._posted.pop(action.name))
                case _:
                    assert_never(action)

    def _wait(self, communicator: Communicator, pending: Pending) -> None:
        """Nobody else has `pending`, so its tensors are gone before the next action."""
        communicator.wait(pending)

    def _collective(self, action: StartCollective, group: Communicator) -> Pending:
        size_bytes = action.elements * self._item_bytes
        rooted = action.kind in (Kind.BROADCAST, Kind.REDUCE)
        operation = RootedCollective if rooted else CollectiveOperation
        return RankOperation(
            group,
            f"i{self._iteration}.{action.name}",
            operation.model_validate({"kind": action.kind, "size": size_bytes}),
            self._dtype,
            self._iteration,
            seed=0,
            phase=action.phase,
        ).start()

    def _work(self, kernel: ComputeKernel) -> Callable[[], None] | None:
        return None if self._contents is None else partial(self._contents.work, kernel)

    def _message(self, action: StartMessage, world: Communicator) -> Pending:
        id = f"i{self._iteration}.{action.name}"
        if self._contents is not None:
            return post_tensor(
                world,
                id,
                action.phase,
                self._iteration,
                (action.source, action.destination),
                action.elements * self._item_bytes,
                self._contents.buffer(action),
                partial(self._contents.check, action, id),
                watchers=self._watchers,
            )
        return post_message(
            world,
            id,
            action.phase,
            self._iteration,
            (action.source, action.destination),
            action.elements * self._item_bytes,
            self._dtype,
        )
