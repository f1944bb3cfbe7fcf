"""The progress of jobs: how many are done, running and failed, and the time that is left."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from groundwire.studies.engine import JobEvent
from groundwire.studies.jobs import Job
from groundwire.studies.outcomes import is_done


@dataclass(frozen=True, slots=True)
class StudyProgress:
    """How far a study is. `kept` jobs were done before. `left_s` is the time until the others are
    done, if they take as long as those so far; None while nothing is known. `event` has just
    happened."""

    total: int
    kept: int
    done: int
    running: int
    failed: int
    elapsed_s: float
    left_s: float | None
    event: JobEvent | None = None


@dataclass
class JobsWatch:
    """Counts jobs by what is told of them."""

    jobs: Sequence[Job]
    cases: Path
    progress: Callable[[StudyProgress], None]
    failures: dict[str, str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _running: dict[str, str] = field(default_factory=dict)  # worker -> the key of its job
    _done: set[str] = field(default_factory=set)
    _kept: int = 0
    _total: int = 0
    _started: float = 0.0

    def begin(self) -> None:
        """Tell where it starts."""
        self._kept = sum(is_done(job, self.cases) for job in self.jobs)
        self._total = len(self.jobs)
        self._started = time.monotonic()
        self._report(None)

    def tell(self, event: JobEvent) -> None:
        """Count what has happened."""
        key = event.job.key
        with self._lock:  # beginnings are told by a thread of Dask's
            if event.state == "running":
                self._running[event.worker] = key
            else:
                self._running = {w: k for w, k in self._running.items() if k != key}
                self._done.add(key)
            if event.state == "failed":
                self.failures[key] = event.failure or "failed"
            self._report(event)

    def _report(self, event: JobEvent | None) -> None:
        elapsed_s = time.monotonic() - self._started
        ended = len(self._done)
        left = self._total - self._kept - ended
        self.progress(
            StudyProgress(
                self._total,
                self._kept,
                ended - len(self.failures),
                len(self._running),
                len(self.failures),
                elapsed_s,
                elapsed_s / ended * left if ended else None,
                event,
            )
        )
