"""Tables of figures that fit a terminal: a column has one unit, figures stay whole, names fold."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table

WIDTH_IN_FILES = 80
_LEAST_NAME = 12
_NONE = "-"


class Figures(Table):
    """A table whose first columns are names, and whose others are figures."""

    def __init__(self, *names: str, title: str | None = None) -> None:
        super().__init__(
            title=title,
            title_justify="left",
            box=box.SIMPLE_HEAD,
            show_edge=False,
            pad_edge=False,
            padding=(0, 1, 0, 0),
        )
        for name in names:
            self.add_column(name, overflow="fold")

    def figure(self, *heading: str) -> None:
        """Add a column of figures; a heading of several lines has the unit in its last."""
        self.add_column("\n".join(heading), justify="right", no_wrap=True)

    def text(self, heading: str) -> None:
        """Add a column of text, which folds."""
        self.add_column(heading, overflow="fold")

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Headings stand on the line below them, however many lines each has."""
        most = max((str(column.header).count("\n") for column in self.columns), default=0)
        for column in self.columns:
            heading = str(column.header)
            column.header = "\n" * (most - heading.count("\n")) + heading
        yield from super().__rich_console__(console, options)

    def natural_width(self, console: Console) -> int:
        """How wide it is with nothing folded."""
        return Measurement.get(console, console.options.update(max_width=10_000), self).maximum

    def least_width(self, console: Console) -> int:
        """How wide it has to be for figures to stay whole."""
        folding = [column for column in self.columns if not column.no_wrap]
        spared = 0
        for column in folding:
            cells = [len(line) for cell in column.cells for line in str(cell).splitlines()]
            spared += max(0, max(cells, default=0) - _LEAST_NAME)
        return self.natural_width(console) - spared


class OutputConsole(Console):
    """Standard output. Lines wider than the terminal are printed whole, not cut."""

    def print(self, *objects: Any, **options: Any) -> None:
        """As rich's; a table of figures gets the width that its figures need."""
        width = max(
            (each.least_width(self) for each in objects if isinstance(each, Figures)), default=0
        )
        if width <= self.width:
            super().print(*objects, **options)
            return
        usual, self._width = self._width, width
        try:
            super().print(*objects, **options)
        finally:
            self._width = usual

    def print_fitting(self, variants: Sequence[Figures]) -> None:
        """Print the first of some tables for which the width suffices, else the last."""
        fitting = (each for each in variants if each.natural_width(self) <= self.width)
        self.print(next(fitting, variants[-1]))

    def on_broken_pipe(self) -> None:
        """Whoever read has gone, as `head` does; the command ends with the code that is due."""
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def output_console() -> OutputConsole:
    """Standard output; as wide as a terminal usually is where it is a file or a pipe."""
    console = OutputConsole()
    return console if console.is_terminal else OutputConsole(width=WIDTH_IN_FILES)


@dataclass(frozen=True, slots=True)
class Scale:
    """The unit of a column: `cell` gives a value of the base unit in it."""

    unit: str
    factor: int
    digits: int

    def cell(self, value: int | None) -> str:
        """A number without its unit, `-` for None."""
        return _NONE if value is None else f"{value / self.factor:,.{self.digits}f}"


_TIMES = (Scale("us", 10**3, 2), Scale("ms", 10**6, 3), Scale("s", 10**9, 3))
_SIZES = (Scale("B", 1, 0), Scale("KB", 10**3, 2), Scale("MB", 10**6, 2), Scale("GB", 10**9, 2))
_WIDEST = 10**6


def time_scale(durations_ns: Iterable[int | None]) -> Scale:
    """Microseconds, unless the longest would have seven digits before the point."""
    longest = max((each for each in durations_ns if each is not None), default=0)
    return next((each for each in _TIMES if longest < _WIDEST * each.factor), _TIMES[-1])


def size_scale(sizes_bytes: Iterable[int | None]) -> Scale:
    """The largest unit of which the smallest size has at least one."""
    smallest = min((each for each in sizes_bytes if each), default=0)
    return next((each for each in reversed(_SIZES) if smallest >= each.factor), _SIZES[0])


def microseconds(duration_ns: int | None) -> str:
    """Nanoseconds as microseconds with the digits that matter."""
    return "-" if duration_ns is None else f"{duration_ns / 1000:,.2f}"


def percent(error: float | None) -> str:
    return "-" if error is None else f"{error * 100:+.1f}%"


def share(error: float | None) -> str:
    """Without a sign."""
    return "-" if error is None else f"{error:.1%}"
