"""An aggregation node's life: reach its neighbours, reduce what they send, leave."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import torch

from collectives.kinds import Kind, Shape
from collectives.schedule.program import ProgramSchedule
from collectives.settings import schedule_of
from topologies.spec.collectives_section import CollectivesSection
from workloads.execution.aggregation.engines import TreeEngines
from workloads.execution.aggregation.given import GivenTrees, ask_pipe, node_pipe, tell, told
from workloads.execution.aggregation.links import TreeLinks
from workloads.execution.aggregation.node_plan import NodePlan
from workloads.execution.aggregation.place import TreePlace
from workloads.execution.aggregation.requests import Requests, heard
from workloads.execution.aggregation.slot_log import SlotLog
from workloads.execution.aggregation.stream_locks import StreamLocks
from workloads.execution.aggregation.unit import ReductionUnit
from workloads.execution.clock import set_minimal_timer_slack
from workloads.execution.payload.tensors import tensors_of


def run_node(plan: NodePlan) -> None:
    """Run an aggregation node until all below it, in all its trees, have left. A node that is told
    of its trees runs until it is told that there are no more. Raises what torch raises when the
    fabric fails."""
    set_minimal_timer_slack()
    node = _Node(plan, ReductionUnit(plan.node, plan.shared_unit), SlotLog(plan.log))
    if plan.directory is not None:
        node.take_parts_as_told(plan.directory)
    elif len(plan.places) == 1:
        node.take_part(0, plan.collectives, *plan.places[0])
    else:
        node.take_parts()
    node.log.write()


@dataclass(frozen=True, slots=True)
class _Node:
    """A node with what all its trees share."""

    plan: NodePlan
    unit: ReductionUnit
    log: SlotLog

    def take_parts(self) -> None:
        """Run the parts of all trees that are known before."""
        # Not as a context: where one tree fails, nobody waits for the others, and the process ends.
        many = len(self.plan.places)
        trees = ThreadPoolExecutor(many, initializer=set_minimal_timer_slack)
        parts = [
            trees.submit(self.take_part, number, self.plan.collectives, members, place)
            for number, (members, place) in enumerate(self.plan.places)
        ]
        for part in as_completed(parts):
            part.result()

    def take_parts_as_told(self, directory: Path) -> None:
        """Run the part of each tree from when it is told of. Collectives that are under way at the
        end are left: their ranks have ended."""
        pipe = node_pipe(directory, self.plan.node.name)
        failures: dict[int, BaseException] = {}

        def run(number: int, line: Mapping[str, Any]) -> None:
            try:
                set_minimal_timer_slack()
                self._take_given_part(number, line, directory)
            except BaseException as error:
                failures[number] = error
                tell(pipe, {"failed": number})

        for number, line in enumerate(told(pipe)):
            if "failed" in line:
                raise failures[line["failed"]]
            Thread(target=run, args=(number, line), daemon=True).start()

    def _take_given_part(self, number: int, line: Mapping[str, Any], directory: Path) -> None:
        given = GivenTrees.from_json(Path(line["given"]).read_text())
        collectives = given.collectives
        assert collectives.aggregation is not None
        tree = collectives.aggregation.trees[line["tree"]]
        place = given.place(line["tree"], tree, line["participant"], at_switch=True)

        def over() -> None:
            if place.parent is None:
                tell(ask_pipe(directory), {"over": line["number"]})

        self.take_part(number, collectives, tree.members, place, over)

    def take_part(
        self,
        number: int,
        collectives: CollectivesSection,
        members: tuple[int, ...],
        place: TreePlace,
        over: Callable[[], None] = lambda: None,
    ) -> None:
        """Run the part of the node's `number`th tree, until all below have left. `over` is called
        then, before the connections are closed, which takes time."""
        above = Requests(place)
        links = TreeLinks(place)
        links.say_ready(place.me)
        tensors = tensors_of(self.plan.payload)
        locks = StreamLocks(self.plan.locks)
        engines = TreeEngines(place.me, links, tensors, self.unit.take, locks)
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
            found = schedule_of(collectives, shape, request.entry, members)
            assert isinstance(found, ProgramSchedule)
            found = found.part(place.part, place.parts)
            if not found.chunks:
                continue
            nothing = torch.empty(0, dtype=getattr(torch, request.dtype))
            report = partial(self.log.operation, number, request.number)
            under_way.append(
                engines.start(found, nothing, nothing, request.first_slot, request.op, report)
            )
            under_way = [work for work in under_way if not work.is_over()]
        for work in under_way:
            work.wait()
        above.leave()
        over()
