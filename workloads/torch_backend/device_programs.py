"""The programs of a virtual GPU's process group: what its threads hand over as tensors of the CPU
(workloads/virtual_gpu/extension/carried.cpp) goes by the spec's algorithm over Gloo's messages."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from collectives.algorithms import algorithms
from collectives.carried import CarriedSection
from collectives.kinds import Kind, Shape
from collectives.schedule.program import ProgramSchedule
from collectives.shared_schedules import planner_of_process
from workloads.execution.payload.tensors import OWN_TENSORS, tensors_of
from workloads.execution.programs.engine import ProgramEngine, ProgramWork
from workloads.torch_backend.configuration import VARIABLE
from workloads.torch_backend.own_links import own_links
from workloads.torch_backend.reductions import combine_by_name


def import_all() -> None:
    """Import what collectives of any kind take: in virtual time an import takes some."""
    algorithms()


class DevicePrograms:
    """Those of one group, whose collectives come one after the other. Raises what
    `own_links` raises."""

    def __init__(
        self,
        gloo: Any,
        store: dist.Store,
        ranks: Sequence[int],
        rank: int,
        timeout: timedelta,
        name: str,
    ) -> None:
        """`rank` is the one in the group, `ranks` are those of its members in the run; all of them
        make theirs together."""
        self._ranks = tuple(ranks)
        self._section = CarriedSection.from_json(os.environ[VARIABLE])
        self._links = own_links(store, name, self._ranks, rank, timeout, gloo)
        self._planner = planner_of_process(rank)
        self._engine = ProgramEngine(rank, self._section.section.in_flight)

    def run(
        self,
        kind: str,
        source: torch.Tensor,
        target: torch.Tensor,
        root: int,
        op: str,
        has_contents: bool,
    ) -> tuple[ProgramWork | None, str]:
        """Start a collective, and how it runs, as JSON for its record. None: it is Gloo's. Tensors
        without contents are only as large as they are: others are sent in their place."""
        count, item_bytes = max(source.numel(), target.numel()), source.element_size()
        shape = Shape(Kind(kind), count * item_bytes, len(self._ranks), item_bytes, root)
        found = self._section.collective(shape, self._ranks, self._planner)
        schedule, told = found.schedule, found.told
        if not isinstance(schedule, ProgramSchedule):
            return None, json.dumps(told) if told else ""
        slot = self._engine.take_slots(schedule)
        told["slots"] = [slot, schedule.slots]
        tensors = OWN_TENSORS if has_contents else tensors_of("timing")
        combine = combine_by_name(op)
        source, target = source.view(-1), target.view(-1)
        if not has_contents:
            combine = tensors.combine("sum")
            source = tensors.empty(source.numel(), source.dtype)
            target = tensors.empty(target.numel(), target.dtype)
        work = self._engine.start(
            schedule,
            self._links,
            source,
            target,
            slot,
            agree=_agree,
            combine=combine,
            tensors=tensors,
        )
        return work, json.dumps(told)


def _agree(proposal: int, agreed: object) -> None:
    """First in, first out needs no agreement."""
    raise AssertionError("an order that ranks agree on, among collectives that come one by one")
