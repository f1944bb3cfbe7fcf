"""A study's progress on stderr: one changing line on a terminal, lines now and then elsewhere."""

from __future__ import annotations

import time
from dataclasses import replace

from rich.console import Console
from rich.live import Live
from rich.text import Text

from groundwire.studies.watch import StudyProgress

_EVERY_S = 10.0


class StudyDisplay:
    """Shows how many jobs are done, running and failed, and the time that is left. A failure is a
    line of its own, at once."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._said = 0.0
        self._last: tuple[StudyProgress, float] | None = None
        self._live = Live(
            console=console, transient=True, refresh_per_second=2, get_renderable=self._now
        )

    def __enter__(self) -> StudyDisplay:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._live.stop()

    def report(self, progress: StudyProgress) -> None:
        """Show it."""
        event = progress.event
        if event is not None and event.state == "failed":
            self._console.print(
                f"failed: {event.job.label}: {event.failure}",
                highlight=False,
                markup=False,
                soft_wrap=True,
            )
        now = time.monotonic()
        self._last = progress, now
        if self._console.is_terminal:
            return  # it is drawn twice a second
        line = study_line(progress)
        ended = progress.kept + progress.done + progress.failed == progress.total
        if event is None or ended or now - self._said >= _EVERY_S:
            self._said = now
            self._console.print(line, highlight=False, soft_wrap=True)

    def _now(self) -> Text:
        """The line with the clock as it is now, on which nothing may have happened for long."""
        if self._last is None:
            return Text("")
        progress, told_s = self._last
        passed_s = time.monotonic() - told_s
        left_s = None if progress.left_s is None else max(0.0, progress.left_s - passed_s)
        aged = replace(progress, elapsed_s=progress.elapsed_s + passed_s, left_s=left_s)
        return Text(study_line(aged), no_wrap=True, overflow="ellipsis")


def study_line(progress: StudyProgress) -> str:
    """The state of a study on one line."""
    parts = [f"{progress.elapsed_s:6.1f} s  {progress.kept + progress.done} of {progress.total}"]
    parts[0] += " jobs done" + (f" ({progress.kept} before)" if progress.kept else "")
    parts.append(f"{progress.running} running")
    parts.append(f"{progress.failed} failed")
    if progress.left_s is not None and progress.left_s > 0:
        parts.append(f"about {_minutes(progress.left_s)} left")
    return ", ".join(parts)


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
