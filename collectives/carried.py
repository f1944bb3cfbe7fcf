"""The schedules of virtual GPUs' collectives: the spec's programs, Gloo's own for the rest, and a
ring for a reduce-scatter that has none, which Gloo itself would do as an all-reduce."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from collectives.algorithms.base import DoesNotFit
from collectives.kinds import Kind, Shape
from collectives.msccl.elements import MscclError
from collectives.schedule.gloo import GLOO
from collectives.schedule.program import ProgramSchedule
from collectives.schedule.schedule import Schedule
from collectives.settings import Planner, entry_of, schedule_of, settings_of
from topologies.spec.collectives_section import CollectivesOfRun
from topologies.spec.sections import Sections

RING: Final[Mapping[str, Any]] = {"algorithm": "ring"}
"""How a reduce-scatter runs that the spec has no algorithm for. Without a spec's programs the
compiled part of virtual GPUs does it by itself (workloads/virtual_gpu/extension/ring.cpp)."""

OF_ITS_OWN: Final = {"backend": "programs"}
"""The section by which that is planned where the spec has no programs: nothing but defaults."""


@dataclass(frozen=True, slots=True)
class CarriedCollective:
    """How a collective runs: its messages, and the keys of its record in a rank's log that say so
    (docs/formats.md); none for Gloo's own. `fell_back` says why the spec's algorithm does not run
    it, where it has one."""

    schedule: Schedule
    record: dict[str, Any]
    fell_back: str = ""

    @property
    def told(self) -> dict[str, Any]:
        """All of it that the log is told."""
        return self.record | ({"fell_back": self.fell_back} if self.fell_back else {})


@dataclass(frozen=True, slots=True)
class CarriedSection:
    """The section by which virtual GPUs' collectives run. `is_spec_s` says that it is the spec's,
    which records then need not repeat."""

    section: CollectivesOfRun
    is_spec_s: bool

    @classmethod
    def of_run(cls, section: CollectivesOfRun) -> CarriedSection:
        """That of a run's section (`collectives.settings.settings_of`)."""
        if section.backend == "gloo":
            return cls(CollectivesOfRun.model_validate(OF_ITS_OWN), False)
        return cls(section, True)

    @classmethod
    def of_spec(cls, spec: Sections) -> CarriedSection:
        """That of a spec. Raises DoesNotFit for what NCCL refuses."""
        return cls.of_run(settings_of(spec))

    @classmethod
    def from_json(cls, text: str) -> CarriedSection:
        """The one that `as_json` has written."""
        return cls.of_run(CollectivesOfRun.model_validate_json(text))

    def as_json(self) -> str:
        """All that `from_json` needs."""
        given = self.section if self.is_spec_s else CollectivesOfRun()
        return given.model_dump_json(by_alias=True, exclude_defaults=True)

    def of(self, members: Sequence[int]) -> tuple[int, ...]:
        """All that its collectives depend on of a group's ranks: who they are, or how many."""
        return tuple(members) if self.is_spec_s else (len(members),)

    def collective(
        self, shape: Shape, members: Sequence[int], planner: Planner = schedule_of
    ) -> CarriedCollective:
        """A collective of these ranks of the run, in group order. Where the spec's algorithm does
        not fit them, it is done as if there were none."""
        if not shape.size_bytes:
            return CarriedCollective(GLOO, {})
        entry, fell_back = entry_of(self.section, shape.kind), ""
        if entry:
            try:
                return self._planned(shape, entry, members, planner)
            except (DoesNotFit, MscclError) as error:
                fell_back = f"{shape.kind} of {shape.ranks} ranks: {error}"
        if shape.kind is Kind.REDUCE_SCATTER:
            found = self._planned(shape, RING, members, planner)
            return CarriedCollective(found.schedule, found.record, fell_back)
        return CarriedCollective(GLOO, {}, fell_back)

    def _planned(
        self, shape: Shape, entry: Mapping[str, Any], members: Sequence[int], planner: Planner
    ) -> CarriedCollective:
        found = planner(self.section, shape, entry, members)
        if not isinstance(found, ProgramSchedule):  # of a single rank
            return CarriedCollective(found, {})
        record = {
            "program": dict(entry),
            "algorithm": found.algorithm,
            "chunks": len(found.chunks),
            "slots": [0, found.slots],
            "element_bytes": shape.element_bytes,
        }
        if not self.is_spec_s:
            record["section"] = OF_ITS_OWN
        return CarriedCollective(found, record)
