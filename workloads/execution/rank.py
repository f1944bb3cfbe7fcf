"""A rank's life: join the process group, run the workload, leave."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from collectives.groups import GroupName, groups_of
from topologies.spec.partition.section import PartitionedInferenceWorkload
from topologies.spec.workload_section import (
    ChakraWorkload,
    CollectivesWorkload,
    CommandWorkload,
    ModelWorkload,
)
from workloads.execution.aggregation.client import Trees
from workloads.execution.benchmark import run_collectives
from workloads.execution.chakra_replay import run_replay
from workloads.execution.clock import set_minimal_timer_slack
from workloads.execution.communicator import AT_THE_END, Communicator, subgroups
from workloads.execution.compute_model import ComputeModel
from workloads.execution.events import EventLog
from workloads.execution.inference import InferenceShare
from workloads.execution.payload.tensors import tensors_of
from workloads.execution.process_groups import WORLD, DefaultGroups, ProcessGroups
from workloads.execution.rank_plan import RankPlan
from workloads.execution.step_runner import run_steps
from workloads.execution.transports.interface import RankEnds
from workloads.models.build import step_of
from workloads.models.partition.split_file import read_split
from workloads.models.partition.step import inference_step
from workloads.models.replay import DIRECTORY


def run_rank(
    plan: RankPlan,
    on_iteration: Callable[[int], None],
    join: Callable[[RankPlan], ProcessGroups] = DefaultGroups,
    begin: Callable[[], None] = lambda: None,
    posts: Path | None = None,
) -> None:
    """Run one rank to its end and write its event log, also when it fails. `posts` is the file in
    which it says what it waits for, where it is to.

    For one of several jobs, `begin` is called when the rank is connected, and returns when the
    workload is to begin.

    `on_iteration(i)` is called by rank 0 only. `join` is ThreadGroups for ranks that are threads of
    one process. Raises what torch raises when the fabric fails, and numbers.WrongResult when a
    collective delivered wrong numbers.
    """
    set_minimal_timer_slack()
    log = EventLog(plan.events, posts)
    log.rank(plan.rank, plan.hosts[plan.rank], plan.addresses[plan.rank])
    try:
        groups = join(plan)
        _take_part(plan, groups, log, on_iteration, begin)
        groups.leave()
    finally:
        log.write()


def _take_part(
    plan: RankPlan,
    groups: ProcessGroups,
    log: EventLog,
    on_iteration: Callable[[int], None],
    begin: Callable[[], None],
) -> None:
    if not plan.lazy:
        log.connections(WORLD, groups.ports(WORLD))
    everybody = range(plan.world_size)
    ends = None if plan.place is None else plan.place.open()
    tensors = tensors_of(plan.payload)
    trees = Trees(plan.trees, tensors)
    world = Communicator(
        log,
        WORLD,
        everybody,
        plan.rank,
        plan.world_size,
        groups.world,
        plan.collectives,
        None if plan.aligned else begin,
        trees.join(everybody),
        ends,
        tensors,
        real_time=plan.real_time,
    )
    compute = ComputeModel(plan.compute, log)
    tell = on_iteration if plan.rank == 0 else lambda iteration: None
    _workload(plan, groups, world, compute, log, tell, ends, trees)
    world.begin()
    # Nobody closes connections, and rank 0 its store, while others still use them.
    world.align(AT_THE_END)
    trees.leave()
    if ends is not None:
        ends.finish(log)
    if plan.lazy:
        # Looked up in rank 0's store, when all have done their work and before anybody leaves.
        for name in groups.names:
            log.connections(name, groups.ports(name))
        world.align(AT_THE_END)


def _workload(
    plan: RankPlan,
    process_groups: ProcessGroups,
    world: Communicator,
    compute: ComputeModel,
    log: EventLog,
    on_iteration: Callable[[int], None],
    ends: RankEnds | None,
    trees: Trees,
) -> None:
    workload = plan.workload
    if isinstance(workload, CollectivesWorkload):
        run_collectives(workload, world, plan.seed, on_iteration)
    elif isinstance(workload, ChakraWorkload):
        program = plan.events.parent.parent / DIRECTORY
        run_replay(
            workload, program, process_groups, world, compute, log, on_iteration, lazy=plan.lazy
        )
    elif isinstance(workload, CommandWorkload):
        raise TypeError("programs are not ranks of ours")
    elif isinstance(workload, PartitionedInferenceWorkload):
        split, inputs = read_split(plan.events.parent.parent)
        step = inference_step(workload, split, plan.rank)
        share = InferenceShare(split, plan.rank, inputs, workload.dtype)
        run_steps(workload, step, {"world": world}, compute, log, on_iteration, share)
    else:
        step = step_of(workload, plan.rank)
        groups = _groups(plan, workload, process_groups, world, log, ends, trees)
        run_steps(workload, step, groups, compute, log, on_iteration)


def _groups(
    plan: RankPlan,
    workload: ModelWorkload,
    process_groups: ProcessGroups,
    world: Communicator,
    log: EventLog,
    ends: RankEnds | None,
    trees: Trees,
) -> dict[GroupName, Communicator]:
    groups: dict[GroupName, Communicator] = {"world": world}
    for name, partition in groups_of(workload).items():
        if name not in groups and len(partition[0]) > 1:
            mine = subgroups(
                process_groups,
                log,
                name,
                partition,
                world.rank,
                world.size,
                plan.collectives,
                ends,
                world.tensors,
                trees,
                plan.classes,
                lazy=plan.lazy,
            )
            assert mine is not None  # the parts cover all ranks
            groups[name] = mine
    return groups
