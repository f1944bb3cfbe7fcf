"""A design's progress on stderr: how many points are searched, and which run has begun or ended."""

from __future__ import annotations

import time

from rich.console import Console
from rich.status import Status

from groundwire.studies.engine import JobEvent

_EVERY_S = 5.0


class DesignDisplay:
    """A line that changes on a terminal; elsewhere a line now and then, and one for each run."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._status = Status("", console=console)
        self._said = time.monotonic()

    def __enter__(self) -> DesignDisplay:
        if self._console.is_terminal:
            self._status.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._status.stop()

    def searching(self, done: int, total: int) -> None:
        """So many points are done."""
        text = f"{done} of {total} points"
        if self._console.is_terminal:
            self._status.update(text)
        elif time.monotonic() - self._said >= _EVERY_S:
            self._said = time.monotonic()
            self._console.print(text, highlight=False)

    def emulating(self, event: JobEvent) -> None:
        """A run has begun, is done or has failed."""
        text = f"{event.job.label}: {event.state}"
        if event.failure is not None:
            text += f": {event.failure}"
        if self._console.is_terminal and event.state == "running":
            self._status.update(text)
        else:
            self._console.print(text, highlight=False, markup=False, soft_wrap=True)
