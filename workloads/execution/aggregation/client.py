"""A rank's end of an aggregation tree."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from collectives.schedule.program import ProgramSchedule
from topologies.aggregation_tree import OUTSIDE
from topologies.spec.workload_types import ReduceOp
from workloads.execution.aggregation.engines import TreeEngines
from workloads.execution.aggregation.links import TreeLinks
from workloads.execution.aggregation.place import TreePlace
from workloads.execution.aggregation.requests import Request, Requests
from workloads.execution.aggregation.rescue import ByHosts, Rescue
from workloads.execution.copies.links import CopyEnds
from workloads.execution.payload.tensors import OWN_TENSORS, Tensors
from workloads.execution.programs.engine import ChunkTimes, ProgramWork


class AggregationClient:
    """Starts collectives at a rank, and has the switches above it start them. To be made once the
    rank is in its network namespace."""

    def __init__(
        self,
        places: Sequence[TreePlace],
        tensors: Tensors = OWN_TENSORS,
        ends: CopyEnds | None = None,
    ) -> None:
        """Waits for the whole of all trees of a group, at which these are the rank's `places`;
        `ends` are those of its copies. Raises RuntimeError when no switch above can be reached."""
        self._ways = [_Way(place, tensors, ends) for place in places]
        self._count = 0
        members = sum(parent != OUTSIDE for parent in places[0].parents) - len(places[0].switches)
        self.rescue = Rescue(places[0], members) if places[0].losable else None

    def start(
        self,
        schedule: ProgramSchedule,
        source: torch.Tensor,
        target: torch.Tensor,
        first_slot: int,
        report: Callable[[ChunkTimes], None],
        entry: Any,
        op: ReduceOp,
        number: int = 0,
        by_hosts: ByHosts | None = None,
        among_ranks: Any = None,
    ) -> ProgramWork:
        """Start a collective, which all ranks do in the same order; `entry` is what the spec says
        of it. Where nodes may be lost, it has the `number` that `rescue` gave it, and hosts may do
        it. `among_ranks` carries messages between two ranks."""
        for way in self._ways:
            way.links.among_ranks = among_ranks
        if self.rescue is None or by_hosts is None:
            return self._start(schedule, source, target, first_slot, report, entry, op)

        def start(data: torch.Tensor) -> ProgramWork:
            return self._start(schedule, data, data, first_slot, report, entry, op)

        return self.rescue.start(number, by_hosts, source, target, start)

    def _start(
        self,
        schedule: ProgramSchedule,
        source: torch.Tensor,
        target: torch.Tensor,
        first_slot: int,
        report: Callable[[ChunkTimes], None],
        entry: Any,
        op: ReduceOp,
    ) -> ProgramWork:
        shape = schedule.shape
        request = Request(
            self._count,
            str(shape.kind),
            shape.size_bytes,
            shape.element_bytes,
            shape.root,
            str(source.dtype).removeprefix("torch."),
            op,
            first_slot,
            dict(entry),
        )
        self._count += 1
        parts = [way.start(schedule, request, source, target, report) for way in self._ways]
        return ProgramWork.of_all([part for part in parts if part is not None])

    def leave(self) -> None:
        """Say that nothing comes any more."""
        for way in self._ways:
            way.leave()


class _Way:
    """A rank's way up one of its group's trees."""

    def __init__(self, place: TreePlace, tensors: Tensors, ends: CopyEnds | None) -> None:
        self._place = place
        self._requests = Requests(place)
        self.links = TreeLinks(place, ends)
        self.links.await_ready(place.switches)
        self._engines = TreeEngines(place.me, self.links, tensors)

    def start(
        self,
        schedule: ProgramSchedule,
        request: Request,
        source: torch.Tensor,
        target: torch.Tensor,
        report: Callable[[ChunkTimes], None],
    ) -> ProgramWork | None:
        """Start the chunks that are this tree's; None where it has none."""
        part = schedule.part(self._place.part, self._place.parts)
        self._requests.tell(request)
        if not part.chunks:
            return None
        return self._engines.start(part, source, target, request.first_slot, request.op, report)

    def leave(self) -> None:
        self._requests.leave()


class Trees:
    """The trees of a rank's groups, joined as the groups are made."""

    def __init__(
        self,
        places: Mapping[tuple[int, ...], Sequence[TreePlace]],
        tensors: Tensors = OWN_TENSORS,
        ends: CopyEnds | None = None,
    ) -> None:
        """`ends` are those of the rank's copies."""
        self._places = places
        self._tensors = tensors
        self._ends = ends
        self._joined: dict[tuple[int, ...], AggregationClient] = {}

    def join(self, ranks: Sequence[int]) -> AggregationClient | None:
        """The rank's end of the trees of a group; None where it has none. Raises as
        AggregationClient does."""
        members = tuple(ranks)
        if members in self._places and members not in self._joined:
            self._joined[members] = AggregationClient(
                self._places[members], self._tensors, self._ends
            )
        return self._joined.get(members)

    def leave(self) -> None:
        """Tell all switches that nothing comes any more."""
        for client in self._joined.values():
            client.leave()
