"""Training steps with real Gloo: kernels take their time, collectives and messages go out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from topologies.step import Action, Collective, GroupName, Kernel, Message, Wait
from topologies.workload_spec import ITEM_BYTES, ModelWorkload
from topologies.workload_spec import Collective as CollectiveSpec
from workloads.clock import now_ns
from workloads.communicator import Communicator
from workloads.compute_model import Compute
from workloads.events import EventLog
from workloads.message import post_message
from workloads.operations import Operation
from workloads.pending import Pending


def run_steps(
    workload: ModelWorkload,
    step: Iterable[Action],
    groups: Mapping[GroupName, Communicator],
    compute: Compute,
    log: EventLog,
    on_iteration: Callable[[int], None],
) -> None:
    """Run this rank's step in every iteration.

    Raises payload.WrongResult when a collective delivered wrong numbers.
    """
    actions = tuple(step)
    for iteration in range(workload.iterations):
        groups["world"].align(iteration)
        on_iteration(iteration)
        start_ns = now_ns()
        _Step(workload, groups, compute, iteration).run(actions)
        log.iteration(iteration, start_ns, now_ns())


class _Step:
    """One iteration of one rank."""

    def __init__(
        self,
        workload: ModelWorkload,
        groups: Mapping[GroupName, Communicator],
        compute: Compute,
        iteration: int,
    ) -> None:
        self._dtype = workload.dtype
        self._item_bytes = ITEM_BYTES[workload.dtype]
        self._groups = groups
        self._compute = compute
        self._iteration = iteration
        self._posted: dict[str, tuple[Communicator, Pending]] = {}

    def run(self, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case Kernel():
                    self._compute.run(
                        action.name,
                        action.phase,
                        self._iteration,
                        action.flops,
                        action.moved_bytes,
                        self._item_bytes,
                    )
                case Collective():
                    group = self._groups[action.group]
                    self._posted[action.name] = group, self._collective(action, group)
                case Message():
                    world = self._groups["world"]
                    self._posted[action.name] = world, self._message(action, world)
                case Wait():
                    self._wait(*self._posted.pop(action.name))

    def _wait(self, communicator: Communicator, pending: Pending) -> None:
        """Nobody else has `pending`, so its tensors are gone before the next action."""
        communicator.wait(pending)

    def _collective(self, action: Collective, group: Communicator) -> Pending:
        size_bytes = action.elements * self._item_bytes
        return Operation(
            group,
            f"i{self._iteration}.{action.name}",
            CollectiveSpec.model_validate({"kind": action.kind, "size": size_bytes}),
            self._dtype,
            self._iteration,
            seed=0,
            phase=action.phase,
        ).start()

    def _message(self, action: Message, world: Communicator) -> Pending:
        return post_message(
            world,
            f"i{self._iteration}.{action.name}",
            action.phase,
            self._iteration,
            (action.source, action.destination),
            action.elements * self._item_bytes,
            self._dtype,
        )
