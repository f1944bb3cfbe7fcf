"""An aggregation node's life: reach its neighbours, reduce what they send, leave."""

from __future__ import annotations

import torch

from collectives.kinds import Kind, Shape
from collectives.settings import plan_of
from workloads.execution.aggregation.engines import TreeEngines
from workloads.execution.aggregation.links import TreeLinks
from workloads.execution.aggregation.node_plan import NodePlan
from workloads.execution.aggregation.requests import Requests, heard
from workloads.execution.aggregation.unit import ReductionUnit
from workloads.execution.clock import set_minimal_timer_slack
from workloads.execution.payload.tensors import tensors_of


def run_node(plan: NodePlan) -> None:
    """Run an aggregation node until all below it have left. Raises what torch raises when the
    fabric fails."""
    set_minimal_timer_slack()
    above = Requests(plan.place)
    links = TreeLinks(plan.place)
    links.say_ready(plan.place.me)
    engines = TreeEngines(
        plan.place.me, links, tensors_of(plan.payload), ReductionUnit(plan.node).take
    )
    under_way = []
    for request in heard(plan.place):
        above.tell(request)
        shape = Shape(
            Kind(request.kind),
            request.size_bytes,
            plan.ranks,
            request.element_bytes,
            request.root,
        )
        found = plan_of(plan.collectives, shape, request.entry)
        assert found is not None
        nothing = torch.empty(0, dtype=getattr(torch, request.dtype))
        under_way.append(engines.start(found, nothing, nothing, request.first_slot, request.op))
        under_way = [work for work in under_way if not work.is_over()]
    for work in under_way:
        work.wait()
    above.leave()
