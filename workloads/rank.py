"""A rank's life: join the process group, run the workload, leave."""

from __future__ import annotations

from collections.abc import Callable

import torch.distributed as dist

from topologies.workload_spec import (
    ChakraWorkload,
    CollectivesWorkload,
    DlrmWorkload,
    TrainingWorkload,
)
from workloads.chakra_replay import run_replay
from workloads.clock import sharpen_timers
from workloads.collectives import run_collectives
from workloads.communicator import Communicator, join
from workloads.compute_model import Compute
from workloads.connections import ports_to_later_ranks
from workloads.dlrm import run_dlrm
from workloads.events import EventLog
from workloads.plan import RankPlan
from workloads.replay_program import DIRECTORY
from workloads.training import run_training


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
    elif isinstance(workload, DlrmWorkload):
        run_dlrm(workload, world, compute, log, on_iteration)
    elif isinstance(workload, TrainingWorkload):
        run_training(workload, world, compute, log, on_iteration)
    elif isinstance(workload, ChakraWorkload):
        program = plan.events.parent.parent / DIRECTORY
        run_replay(workload, program, world, compute, log, on_iteration)
