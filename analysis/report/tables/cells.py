"""Values of a table as text for people."""

from __future__ import annotations

from analysis.report.tables.figures import (
    count,
    duration,
    number,
    rate,
    share,
    signed_percent,
    size,
)
from analysis.report.tables.table import Column, Table, Unit, Value


def cell(column: Column, value: Value) -> str:
    """A value in its column's unit."""
    if value is None:
        return "–"
    if isinstance(value, str) or column.unit is Unit.TEXT:
        return str(value)
    match column.unit:
        case Unit.COUNT:
            return count(value)
        case Unit.SHARE:
            return share(value)
        case Unit.ERROR:
            return signed_percent(value)
        case Unit.DURATION:
            return duration(value)
        case Unit.SIZE:
            return size(value)
        case Unit.RATE:
            return rate(value)
        case _:
            return number(value)


def heading(column: Column) -> str:
    """A column's title, with its unit where the cells do not carry one."""
    return f"{column.title} (Gb/s)" if column.unit is Unit.GBPS else column.title


def is_numeric(column: Column) -> bool:
    return column.unit is not Unit.TEXT


def without(table: Table, *keys: str) -> Table:
    """The table less some columns, for a page that says the same elsewhere."""
    kept = [i for i, key in enumerate(table.keys) if key not in keys]
    return Table(
        table.name,
        table.title,
        tuple(table.columns[i] for i in kept),
        tuple(tuple(row[i] for i in kept) for row in table.rows),
    )
