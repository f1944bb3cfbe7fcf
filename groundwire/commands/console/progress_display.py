"""Progress of a session, on stderr: a line for each stage, a bar for the iterations."""

from __future__ import annotations

import sys
import time
from datetime import datetime, timedelta
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from emulator.progress import BEGINNINGS, PROGRAM_STREAMS
from emulator.progress import Progress as Event
from groundwire.commands.console.plain_text import unstyled
from groundwire.commands.console.time_left import TimeLeft
from groundwire.commands.console.traffic_left import TrafficLeft

_QUIET_LIMIT_S = 15.0
_PROGRAM_QUIET_S = 10.0
_WORTH_TELLING_S = 5.0
"""An iteration that takes less is over before anybody has read how long it takes."""
_GROWN = 1.5
"""So much more to send is told anew."""
# The least that stands beside the text on a terminal: a bar of 4, "120/128", "0:01:23", and spaces.
_BESIDE_TEXT = 21


def iteration_in_words(index: int, iterations: int) -> str:
    """By its number in ids and tables, which counts from 0, and as which of how many."""
    return f"iteration {index} ({index + 1} of {iterations})"


class ProgressDisplay:
    """Shows events as they come. On a terminal there is a bar that follows the run's clock;
    elsewhere every event is a line, and so is the clock when nothing else has happened for long."""

    def __init__(self, console: Console, output: TextIO | None = None) -> None:
        """`output` gets what programs write to their standard output (default: ours)."""
        self._console = console
        self._output = output
        self._started = time.monotonic()
        self._said = self._started
        self._left = TimeLeft()
        self._traffic = TrafficLeft()
        self._estimated: tuple[int, int] | None = None
        self._iteration: Event | None = None
        self._began_ns: int | None = None
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TimeElapsedColumn(),
            console=console,
            expand=True,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            disable=not console.is_terminal,
        )
        self._task: TaskID | None = None

    def __enter__(self) -> ProgressDisplay:
        self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.stop()

    def stage(self, name: str, detail: str) -> None:
        """A step begins or is done."""
        self._iteration = None
        self._say(detail)

    def report(self, event: Event) -> None:
        """Show one event."""
        if event.stage in BEGINNINGS and self._began_ns is None:
            self._began_ns = event.clock_ns
        if event.stage in PROGRAM_STREAMS:
            self._pass_on(event)
        elif event.iteration is not None and event.iterations is not None:
            self._left.begin(event.iteration, event.iterations, time.monotonic())
            self._iteration = event
            self._show_iteration(event.clock_ns, always=True)
        elif event.stage == "clock":
            self._show_iteration(event.clock_ns, always=False)
            self._show_sent(event)
            self._show_clock(event)
        elif event.stage == "sent":
            self._show_sent(event)
        elif event.stage == "traffic":
            assert event.of_iteration is not None and event.to_send_bytes is not None
            self._traffic.told(event.of_iteration, event.to_send_bytes)
        elif event.detail:
            self.stage(event.stage, event.detail)

    def _pass_on(self, event: Event) -> None:
        """A line of a program's output, as it is."""
        self._said = time.monotonic()
        stream = sys.stderr if event.stage == "stderr" else self._output or sys.stdout
        print(event.detail, file=stream, flush=True)

    def _show_iteration(self, clock_ns: int | None, always: bool) -> None:
        """Print how far the iterations are. Unless `always`, some time passes between two lines."""
        began, now_s = self._iteration, time.monotonic()
        if began is None or began.iteration is None or began.iterations is None:
            return
        text = iteration_in_words(began.iteration, began.iterations)
        clock = "" if clock_ns is None else f", {self._since_begin(clock_ns)}"
        left = ""
        left_s = self._left.estimate_s(now_s)
        if left_s is not None:
            ends = datetime.now() + timedelta(seconds=left_s)
            left = f", about {left_s:.0f} s left (until {ends:%H:%M:%S})"
        if not self._console.is_terminal:
            if always or now_s - self._said >= _QUIET_LIMIT_S:
                self._say(text + clock + left)
            return
        text = f"iteration {began.iteration}"  # the bar says of how many
        # A narrow terminal has to tell above all when it ends.
        if len(text + clock + left) + _BESIDE_TEXT <= self._console.width:
            text += clock
        text += left
        if self._task is None:
            self._task = self._bar.add_task(text, total=began.iterations)
        self._bar.update(self._task, description=text, completed=began.iteration)

    def _show_clock(self, event: Event) -> None:
        """How far a program is, which has no iterations that anybody knows."""
        quiet_s = time.monotonic() - self._said
        if self._iteration is None and event.clock_ns is not None and quiet_s >= _PROGRAM_QUIET_S:
            sent = (
                f", {event.sent_bytes / 1e6:,.1f} MB sent by all ports" if event.sent_bytes else ""
            )
            left_s = self._traffic.left_s()
            if left_s:
                sent += f", about {left_s:,.0f} s of iteration {self._traffic.iteration} left"
            self._say(self._since_begin(event.clock_ns) + sent)

    def _show_sent(self, event: Event) -> None:
        """Say how long an iteration will take, once, as soon as that is known."""
        if event.sent_bytes is None:
            return
        self._traffic.sent(event.sent_bytes, time.monotonic(), apart=event.stage == "sent")
        told, left_s = self._traffic, self._traffic.left_s()
        if left_s is None or told.iteration is None or left_s < _WORTH_TELLING_S:
            return
        if self._estimated is not None:
            iteration, size_bytes = self._estimated
            if iteration == told.iteration and told.to_send_bytes < _GROWN * size_bytes:
                return
        self._estimated = told.iteration, told.to_send_bytes
        self._say(told.in_words())

    def _since_begin(self, clock_ns: int) -> str:
        if self._began_ns is None:
            return f"{clock_ns / 1e9:.6f} s of the kernel's clock, before any rank"
        return f"{(clock_ns - self._began_ns) / 1e9:.6f} s since the ranks began"

    def _say(self, text: str) -> None:
        self._said = time.monotonic()
        elapsed = self._said - self._started
        line = f"[dim]{elapsed:6.1f} s[/dim]  {unstyled(text)}"
        self._console.print(line, highlight=False, soft_wrap=True)


class SweepProgress:
    """Shows runs, each case of a sweep with the progress of its own."""

    def __init__(self, console: Console, output: TextIO | None = None) -> None:
        """`output` as for ProgressDisplay."""
        self._console = console
        self._output = output
        self._display: ProgressDisplay | None = None

    def __enter__(self) -> SweepProgress:
        return self

    def __exit__(self, *exception: object) -> None:
        self._end()

    def report(self, event: Event) -> None:
        """Show one event; the stage "case" begins a run."""
        if event.stage == "case":
            self._end()
            self._console.print(f"[bold]{unstyled(event.detail)}[/]", highlight=False)
            return
        if self._display is None:
            self._display = ProgressDisplay(self._console, self._output)
            self._display.__enter__()
        self._display.report(event)

    def _end(self) -> None:
        if self._display is not None:
            self._display.__exit__()
            self._display = None
