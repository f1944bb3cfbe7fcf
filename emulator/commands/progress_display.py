"""What a session is doing, on stderr: a line for each stage, a bar for the iterations."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from emulator.progress import Progress as Event


class ProgressDisplay:
    """Shows events as they come. On a terminal there is a bar; elsewhere every event is a line."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started = time.monotonic()
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task: TaskID | None = None

    def __enter__(self) -> ProgressDisplay:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def stage(self, name: str, detail: str) -> None:
        """A step begins or is done."""
        elapsed = time.monotonic() - self._started
        self._console.print(f"[dim]{elapsed:6.1f} s[/dim]  {detail}", highlight=False)

    def report(self, event: Event) -> None:
        """Show one event."""
        if event.iteration is None or event.iterations is None:
            if event.detail:
                self.stage(event.stage, event.detail)
            return
        clock = f", {event.clock_ns / 1e9:.6f} s on its clock" if event.clock_ns else ""
        text = f"iteration {event.iteration + 1} of {event.iterations}{clock}"
        if not self._console.is_terminal:
            self.stage("iteration", text)
            return
        if self._task is None:
            self._task = self._bar.add_task(text, total=event.iterations)
        self._bar.update(self._task, description=text, completed=event.iteration)
