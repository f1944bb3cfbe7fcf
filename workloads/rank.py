"""A rank's life: join the process group, run the workload, leave."""

from __future__ import annotations

from collections.abc import Callable

import torch.distributed as dist

from topologies.step import GroupName
from topologies.workload_spec import ChakraWorkload, CollectivesWorkload, ModelWorkload
from topologies.workload_step import groups_of, step_of
from workloads.chakra_replay import run_replay
from workloads.clock import sharpen_timers
from workloads.collectives import run_collectives
from workloads.communicator import Communicator, join, subgroups
from workloads.compute_model import Compute
from workloads.connections import ports_to_later_ranks
from workloads.events import EventLog
from workloads.plan import RankPlan
from workloads.replay_program import DIRECTORY
from workloads.step import run_steps


def run_rank(plan: RankPlan, on_iteration: Callable[[int], None]) -> None:
    """Run one rank to its end and write its event log, also when it fails.

    `on_iteration(i)` is called by rank 0 only. Raises what torch raises when the fabric fails, and
    payload.WrongResult when a collective delivered wrong numbers.
    """
    sharpen_timers()
    log = EventLog(plan.events)
    log.rank(plan.rank, plan.hosts[plan.rank], plan.addresses[plan.rank])
    try:
        store = join(plan.addresses[0], plan.store_port, plan.interface, plan.rank, plan.world_size)
        ports = ports_to_later_ranks(plan.rank, dict(enumerate(plan.addresses)), plan.store_port)
        log.connections("default", ports)
        world = Communicator(log, "default", range(plan.world_size), plan.rank, plan.world_size)
        compute = Compute(plan.compute, log)
        tell = on_iteration if plan.rank == 0 else lambda iteration: None
        _workload(plan, world, compute, log, tell)
        # Nobody closes connections, and rank 0 its store, while others still use them.
        world.align(-1)
        dist.destroy_process_group()
        del store
    finally:
        log.write()


def _workload(
    plan: RankPlan,
    world: Communicator,
    compute: Compute,
    log: EventLog,
    on_iteration: Callable[[int], None],
) -> None:
    workload = plan.workload
    if isinstance(workload, CollectivesWorkload):
        run_collectives(workload, world, plan.seed, on_iteration)
    elif isinstance(workload, ChakraWorkload):
        program = plan.events.parent.parent / DIRECTORY
        run_replay(workload, program, world, compute, log, on_iteration)
    else:
        step, groups = step_of(workload, plan.rank), _groups(workload, world, log)
        run_steps(workload, step, groups, compute, log, on_iteration)


def _groups(
    workload: ModelWorkload, world: Communicator, log: EventLog
) -> dict[GroupName, Communicator]:
    groups: dict[GroupName, Communicator] = {"world": world}
    for name, partition in groups_of(workload).items():
        if name not in groups and len(partition[0]) > 1:
            mine = subgroups(log, name, partition, world.rank, world.size)
            assert mine is not None  # the parts cover all ranks
            groups[name] = mine
    return groups
