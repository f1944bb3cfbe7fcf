"""A collective of switches as hosts would do it, with tags that are taken when it is posted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from collectives.kinds import Kind, Shape
from collectives.schedule.program import ProgramSchedule
from collectives.settings import by_hosts
from topologies.spec.collectives_section import CollectivesSection
from workloads.execution.programs.engine import ProgramWork

Post = Callable[[ProgramSchedule, Mapping[str, Any], int, torch.Tensor], ProgramWork]
"""Posts a program: what the spec says of it, the first of its tags, and its data."""


class HostWay:
    """To be made by all ranks of a group, for each collective that they post on its trees."""

    def __init__(
        self,
        settings: CollectivesSection,
        shape: Shape,
        members: Sequence[int],
        take_slots: Callable[[ProgramSchedule], int],
        post: Post,
    ) -> None:
        """Raises DoesNotFit."""
        self._settings, self._shape, self._members = settings, shape, members
        self._post = post
        self.entry, self.schedule = by_hosts(settings, shape, members)
        self.first_slot = take_slots(self.schedule)
        if shape.kind is Kind.ALL_REDUCE:
            self._first_of_spread = take_slots(self._spread(0)[1])
        self._details: dict[str, object] = {}

    @property
    def kind(self) -> Kind:
        return self._shape.kind

    def again(self, data: torch.Tensor) -> ProgramWork:
        """All of it, from the inputs, in place."""
        return self._post(self.schedule, self.entry, self.first_slot, data)

    def spread(self, root: int, data: torch.Tensor) -> ProgramWork:
        """The result of one member to all, in place."""
        entry, schedule = self._spread(root)
        return self._post(schedule, entry, self._first_of_spread, data)

    def _spread(self, root: int) -> tuple[Mapping[str, Any], ProgramSchedule]:
        shape = replace(self._shape, kind=Kind.BROADCAST, root=root)
        return by_hosts(self._settings, shape, self._members)

    def note_in(self, details: dict[str, object]) -> None:
        """Add what was noted so far to `details`, the log line of the collective, and note in it
        from now on."""
        details |= self._details
        self._details = details

    def fell_back(self) -> None:
        """Note that the switches did not complete it everywhere."""
        self._details["fell_back"] = True
