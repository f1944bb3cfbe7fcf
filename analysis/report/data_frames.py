"""Measurements of a run as data frames: one for each table, and one of its ports over time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from analysis.metrics.flow import Flows, read_flows
from analysis.report.tables.run_tables import tables
from analysis.report.tables.table import Column, Table, Unit, table
from analysis.runs.run import Run
from analysis.runs.samples.ports import port_series

if TYPE_CHECKING:
    from pandas import DataFrame

_OVER_TIME = "ports_over_time"


class Frames(Mapping[str, "DataFrame"]):
    """The data frames of a run by name, also as attributes: `frames.collectives`. Times are those
    of the target fabric, in nanoseconds; a column's name has its unit.

    Captures are read when `flows`, `wire` or another table of theirs is asked for.
    """

    def __init__(self, run: Run) -> None:
        self._run = run

    @cached_property
    def _tables(self) -> dict[str, Table]:
        found = read_flows(self._run)
        return tables(self._run, found if isinstance(found, Flows) else None)

    @cached_property
    def _without_captures(self) -> dict[str, Table]:
        return tables(self._run)

    def __getitem__(self, name: str) -> DataFrame:
        """Raises KeyError for a table that the run lacks, and ImportError without pandas."""
        if name == _OVER_TIME:
            return _over_time(self._run).frame()
        held = self._without_captures if name in self._without_captures else self._tables
        if name not in held:
            raise KeyError(f"this run has no table {name!r}: {', '.join(self)}")
        return held[name].frame()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self:
            raise AttributeError(f"this run has no table {name!r}: {', '.join(self)}")
        return self[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._tables
        yield _OVER_TIME

    def __len__(self) -> int:
        return len(self._tables) + 1

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self]

    def __repr__(self) -> str:
        return f"Frames of {self._run!r}: {', '.join(self)}"


def frames(run: Run) -> Frames:
    """The measurements of a run as data frames (docs/api.md).

    Raises ValueError for a run of several jobs, as each of them has its own; when a frame is asked
    for, RunError for a damaged run directory.
    """
    if run.jobs:
        names = ", ".join(job.name for job, _ in run.finished)
        raise ValueError(
            f"found a run of several jobs; expected the run of one of them ({names}): "
            "`run.jobs` has them"
        )
    return Frames(run)


def _over_time(run: Run) -> Table:
    columns = (
        Column("port", "port"),
        Column("node", "node"),
        Column("peer", "to"),
        Column("time_ns", "time", Unit.DURATION),
        Column("sent_bytes", "sent so far", Unit.SIZE),
        Column("backlog_bytes", "waits", Unit.SIZE),
        Column("peak_bytes", "most that waited", Unit.SIZE),
        Column("drops", "drops so far", Unit.COUNT),
        Column("marks", "marks so far", Unit.COUNT),
        Column("paused_classes", "paused classes", Unit.COUNT),
    )
    ends = {record.port: (record.node, record.peer) for record in run.port_counters}
    rows = [
        (each.port, *ends[each.port], at // run.environment.scale, *values)
        for each in port_series(run)
        for at, *values in zip(
            each.times_ns,
            each.sent_bytes,
            each.backlog_bytes,
            each.peak_bytes,
            each.drops,
            each.marks,
            each.paused_classes,
            strict=True,
        )
    ]
    return table(_OVER_TIME, "Ports over time", columns, rows)
