"""Schedules that the ranks of a run make once.

A program of 64 ranks takes seconds to make and to prove right, and megabytes. Ranks that learn of a
collective when a script posts it would each do that. So whoever comes first makes it, and leaves
the part of each in a directory that all of them see.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from collectives.kinds import Shape
from collectives.schedule.gloo import GLOO
from collectives.schedule.program import ProgramSchedule
from collectives.schedule.schedule import Schedule
from collectives.settings import Planner, Request, plan, request_of, schedule_of
from topologies.spec.collectives_section import CollectivesSection

DIRECTORY_VARIABLE: Final = "GROUNDWIRE_SCHEDULES"
"""Names the directory, where a run has one. This run's ranks alone read and write it."""


class SharedSchedules:
    """Those of a directory, as one participant of a group sees them: by its own steps alone."""

    def __init__(self, directory: Path, participant: int) -> None:
        self._directory, self._participant = directory, participant
        self._known: dict[Request, ProgramSchedule] = {}

    def schedule_of(
        self,
        section: CollectivesSection,
        shape: Shape,
        entry: Mapping[str, Any] | None = None,
        members: Sequence[int] | None = None,
    ) -> Schedule:
        """A collective's schedule, as `settings.schedule_of` has it. Raises what that raises, and
        OSError."""
        request = request_of(section, shape, entry, members)
        if request is None:
            return GLOO
        if request not in self._known:
            self._known[request] = self._read(request)
        return self._known[request]

    def _read(self, request: Request) -> ProgramSchedule:
        place = self._directory / hashlib.sha256(repr(request).encode()).hexdigest()
        if not place.exists():
            self._make(request, place)
        found = pickle.loads((place / str(self._participant)).read_bytes())
        assert isinstance(found, ProgramSchedule)
        return found

    def _make(self, request: Request, place: Path) -> None:
        whole = plan(request)
        made = Path(tempfile.mkdtemp(dir=self._directory))
        for participant in range(whole.participant_count):
            part = pickle.dumps(whole.seen_by(participant))
            (made / str(participant)).write_bytes(part)
        try:
            made.rename(place)
        except OSError:  # another rank has made it meanwhile
            shutil.rmtree(made)
            if not place.exists():
                raise


def planner_of_process(participant: int) -> Planner:
    """How this process finds schedules: those of its run's directory, where it has one, or all by
    itself."""
    directory = os.environ.get(DIRECTORY_VARIABLE)
    return SharedSchedules(Path(directory), participant).schedule_of if directory else schedule_of
