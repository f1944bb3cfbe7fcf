"""The collectives benchmark: each operation once per iteration, all ranks starting together."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from topologies.spec.workload_section import CollectivesWorkload
from workloads.execution.communicator import Communicator
from workloads.execution.operations import RankOperation
from workloads.execution.rank_work import RankWork, Seat


def run_collectives(
    spec: CollectivesWorkload,
    world: Communicator,
    seed: int,
    on_iteration: Callable[[int], None],
) -> None:
    """Run all operations of all iterations. Raises numbers.WrongResult for wrong numbers.

    No iteration is logged: what lies between the operations is alignment, so an iteration takes
    what its operations take together. Ranks align when their tensors are there: in real time, some
    would otherwise post while others still make theirs.
    """

    def begin(iteration: int, index: int) -> None:
        world.align(iteration)
        if index == 0:
            on_iteration(iteration)

    for iteration in range(spec.iterations):
        for index, operation in enumerate(spec.operations):
            pending = RankOperation(
                world,
                f"i{iteration}.{operation.kind}.{index}",
                operation,
                spec.dtype,
                iteration,
                seed,
                begin=partial(begin, iteration, index),
            ).start()
            world.wait(pending)
            del pending  # and its buffers, before those of the next one


class _Listed(RankWork):
    def run(self, seat: Seat) -> None:
        assert seat.plan.workload.listed is not None
        run_collectives(seat.plan.workload.listed, seat.world, seat.plan.seed, seat.on_iteration)


PART = _Listed()
"""The part of workloads that are a list of collectives."""
