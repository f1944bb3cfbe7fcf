"""An aggregation node's life: reach its neighbours, reduce what they send, leave."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial

import torch

from collectives.kinds import Kind, Shape
from collectives.schedule.program import ProgramSchedule
from collectives.settings import schedule_of
from workloads.execution.aggregation.engines import TreeEngines
from workloads.execution.aggregation.links import TreeLinks
from workloads.execution.aggregation.node_plan import NodePlan
from workloads.execution.aggregation.requests import Requests, heard
from workloads.execution.aggregation.slot_log import SlotLog
from workloads.execution.aggregation.stream_locks import StreamLocks
from workloads.execution.aggregation.unit import ReductionUnit
from workloads.execution.clock import set_minimal_timer_slack
from workloads.execution.payload.tensors import tensors_of


def run_node(plan: NodePlan) -> None:
    """Run an aggregation node until all below it, in all its trees, have left. Raises what torch
    raises when the fabric fails."""
    set_minimal_timer_slack()
    unit = ReductionUnit(plan.node, plan.shared_unit)
    log = SlotLog(plan.log)
    if len(plan.places) == 1:
        _take_part(plan, 0, unit, log)
    else:
        _take_parts(plan, unit, log)
    log.write()


def _take_parts(plan: NodePlan, unit: ReductionUnit, log: SlotLog) -> None:
    # Not as a context: where one tree fails, nobody waits for the others, and the process ends.
    trees = ThreadPoolExecutor(len(plan.places), initializer=set_minimal_timer_slack)
    parts = [trees.submit(_take_part, plan, n, unit, log) for n in range(len(plan.places))]
    for part in as_completed(parts):
        part.result()


def _take_part(plan: NodePlan, tree: int, unit: ReductionUnit, log: SlotLog) -> None:
    """Run a tree's part at this node. The unit is that of all its trees."""
    members, place = plan.places[tree]
    above = Requests(place)
    links = TreeLinks(place)
    links.say_ready(place.me)
    tensors = tensors_of(plan.payload)
    engines = TreeEngines(place.me, links, tensors, unit.take, StreamLocks(plan.locks))
    under_way = []
    for request in heard(place):
        above.tell(request)
        shape = Shape(
            Kind(request.kind),
            request.size_bytes,
            len(members),
            request.element_bytes,
            request.root,
        )
        found = schedule_of(plan.collectives, shape, request.entry, members)
        assert isinstance(found, ProgramSchedule)
        found = found.part(place.part, place.parts)
        if not found.chunks:
            continue
        nothing = torch.empty(0, dtype=getattr(torch, request.dtype))
        report = partial(log.operation, tree, request.number)
        under_way.append(
            engines.start(found, nothing, nothing, request.first_slot, request.op, report)
        )
        under_way = [work for work in under_way if not work.is_over()]
    for work in under_way:
        work.wait()
    above.leave()
