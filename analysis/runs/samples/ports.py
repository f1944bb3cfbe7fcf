"""ports.jsonl: what sampled ports sent and what waited at them, over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated

from annotated_types import Ge
from pydantic import TypeAdapter, ValidationError, model_validator
from pydantic.dataclasses import dataclass as checked_dataclass

from analysis.runs.run import Run, RunError, first_mistake, unreadable

_VISIBLE_SHARE = 0.02

_Counts = tuple[Annotated[int, Ge(0)], ...]


@dataclass(frozen=True)
class Sent:
    """Bytes that a port sent from `begin_ns` to `end_ns`."""

    begin_ns: int
    end_ns: int
    size_bytes: int


@checked_dataclass(frozen=True)
class PortSeries:
    """Samples of one port in order of time, on the clock of the logs. A sample that equals its
    predecessor is left out, so a value holds until the next one.

    `sent_bytes`, `drops` and `marks` count from the port's making; `backlog_bytes` is what waited
    at the sample, `peak_bytes` the most since the sample before; `paused_classes` has a bit for
    each class that the port might not send. Times are whole multiples of `interval_ns` apart.
    """

    port: str
    interval_ns: Annotated[int, Ge(1)]
    times_ns: tuple[int, ...]
    sent_bytes: _Counts
    backlog_bytes: _Counts
    peak_bytes: _Counts
    drops: _Counts
    marks: _Counts
    paused_classes: _Counts

    @model_validator(mode="after")
    def _check(self) -> PortSeries:
        columns = (self.sent_bytes, self.backlog_bytes, self.peak_bytes, self.drops, self.marks)
        if any(len(each) != len(self.times_ns) for each in (*columns, self.paused_classes)):
            raise ValueError(f"expected {len(self.times_ns)} values in each column, as of times_ns")
        if not self.times_ns or any(a >= b for a, b in pairwise(self.times_ns)):
            raise ValueError("expected times_ns to grow, with one at least")
        return self

    @property
    def max_backlog_bytes(self) -> int:
        return max(self.peak_bytes)

    @property
    def marked(self) -> int:
        """Packets marked in all."""
        return self.marks[-1]

    def sent(self) -> list[Sent]:
        """The spans in which the port sent something, each at most an interval long."""
        samples = zip(self.times_ns, self.sent_bytes, strict=True)
        return [
            Sent(at - self.interval_ns, at, size - before)
            for (_, before), (at, size) in pairwise(samples)
            if size > before
        ]


_SERIES = TypeAdapter(PortSeries)


def port_series(run: Run) -> tuple[PortSeries, ...]:
    """The series of every sampled port that carried something, by name; none when the run sampled
    nothing.

    Raises RunError for a line that is no series.
    """
    return series_of(run.directory / "ports.jsonl")


def series_of(path: Path) -> tuple[PortSeries, ...]:
    """The series in a file, by name of the port; none where there is no file.

    Raises RunError for a line that is no series.
    """
    if not path.exists():
        return ()
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(path, error) from error
    found = []
    for number, line in enumerate(lines, start=1):
        try:
            found.append(_SERIES.validate_json(line))
        except ValidationError as error:
            raise RunError(f"{path}: line {number}: {first_mistake(error)}") from None
    return tuple(sorted(found, key=lambda series: series.port))


def ports_that_queued(series: Sequence[PortSeries]) -> list[PortSeries]:
    """The series with marks or a visible backlog beside the deepest one, deepest first."""
    deepest = max((each.max_backlog_bytes for each in series), default=0)
    return sorted(
        (s for s in series if s.marked or s.max_backlog_bytes > _VISIBLE_SHARE * deepest),
        key=lambda s: -s.max_backlog_bytes,
    )
