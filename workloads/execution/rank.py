"""A rank's life: join the process group, run the workload, leave."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from topologies.spec.workloads import named_parts
from workloads.execution.aggregation.client import Trees
from workloads.execution.clock import now_ns, set_minimal_timer_slack, sleep_until_ns
from workloads.execution.communicator import AT_THE_END, Communicator, further_meshes
from workloads.execution.compute_model import ComputeModel
from workloads.execution.copies.links import CopyEnds, RankCopies
from workloads.execution.events import EventLog
from workloads.execution.payload.tensors import tensors_of
from workloads.execution.process_groups import WORLD, DefaultGroups, ProcessGroups
from workloads.execution.rank_plan import RankPlan
from workloads.execution.rank_work import RankWork, Seat

_RANK_WORKS = named_parts("ranks", RankWork)
_SETTLES_NS = 500_000
"""How long after a rank others have aligned as well: less than they agree on a time ahead."""


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
        log.handshakes(WORLD, groups.handshakes(WORLD))
    everybody = range(plan.world_size)
    meshes = further_meshes(
        groups, log, WORLD, everybody, plan.rank, plan.connections, lazy=plan.lazy
    )
    ends = None if plan.place is None else plan.place.open()
    tensors = tensors_of(plan.payload)
    copies = None
    if plan.copies is not None:
        copies = RankCopies(CopyEnds(plan.copies), plan.hosts)
    trees = Trees(plan.trees, tensors, None if copies is None else copies.ends)
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
        connections=plan.connections,
        meshes=meshes,
        copies=copies,
        aligned=lambda: _has_aligned(groups, log),
    )
    compute = ComputeModel(plan.compute, log)
    tell = on_iteration if plan.rank == 0 else lambda iteration: None
    seat = Seat(plan, groups, world, compute, log, tell, ends, trees, copies)
    _RANK_WORKS[plan.workload.kind].run(seat)
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


def _has_aligned(groups: ProcessGroups, log: EventLog) -> None:
    """Called once ranks have agreed on the time of their first collective, before it has come."""
    for name, by_peer in groups.late_greetings().items():
        log.handshakes(name, by_peer)
    # Nothing else is under way then.
    sleep_until_ns(now_ns() + _SETTLES_NS)
    groups.acknowledge_store()
