"""A table: named columns with units, rows of plain values. Every output format starts from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from topologies.extras import install_line

Value = str | int | float | bool | None


class Unit(Enum):
    """The quantity of a column's numbers; the value is the unit in which the table stores them."""

    TEXT = "text"
    COUNT = "count"
    NUMBER = "number"
    SHARE = "share of 1"
    ERROR = "relative error"
    DURATION = "ns"
    SIZE = "bytes"
    RATE = "b/s"
    GBPS = "Gb/s"


@dataclass(frozen=True)
class Column:
    """`key` names the column in files and data frames, unit included (`duration_ns`); `title` is
    for people."""

    key: str
    title: str
    unit: Unit = Unit.TEXT


@dataclass(frozen=True)
class Table:
    """Rows have a value per column; None is "not measured"."""

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Value, ...], ...]

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(
                    f"table {self.name}: {len(row)} values, {len(self.columns)} columns"
                )

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(column.key for column in self.columns)

    def column(self, key: str) -> tuple[Value, ...]:
        """The values of one column. Raises KeyError."""
        if key not in self.keys:
            raise KeyError(f"table {self.name} has no column {key!r}: {', '.join(self.keys)}")
        index = self.keys.index(key)
        return tuple(row[index] for row in self.rows)

    def records(self) -> list[dict[str, Value]]:
        """A dictionary per row."""
        return [dict(zip(self.keys, row, strict=True)) for row in self.rows]

    def frame(self) -> Any:
        """The table as a pandas.DataFrame. Raises ImportError without the extra `tables`."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError(
                f"data frames need pandas, which is not installed: {install_line('tables')}"
            ) from error
        return pandas.DataFrame(list(self.rows), columns=list(self.keys))


def table(
    name: str, title: str, columns: Sequence[Column], rows: Sequence[Sequence[Value]]
) -> Table:
    """A table from any sequences."""
    return Table(name, title, tuple(columns), tuple(tuple(row) for row in rows))
