"""Engines: what does the jobs of a study, and what it tells meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from groundwire.studies.jobs import Job


@dataclass(frozen=True, slots=True)
class JobEvent:
    """A job has begun at a worker, again where the one before died; is done; or has failed."""

    job: Job
    state: Literal["running", "done", "failed"]
    worker: str = ""
    failure: str | None = None


Engine = Callable[[Sequence[Job], Path, Callable[[JobEvent], None]], None]
"""Does jobs: each that is done leaves its complete directory, named by its key, in the directory of
cases, and is told of. Jobs that fail are told of, and end no others. A KeyboardInterrupt leaves no
process behind."""


class EngineError(RuntimeError):
    """Jobs cannot be done here, or at these workers, at all."""
