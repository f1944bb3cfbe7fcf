"""The messages that went as copies of memory, as a table."""

from __future__ import annotations

from analysis.report.tables.table import Column, Table, Unit, table
from analysis.runs.copies import copies_by_collective
from analysis.runs.run import Run

COPIED = (
    Column("copied_bytes", "copied", Unit.SIZE),
    Column("copies", "copies", Unit.COUNT),
)
"""The columns of ports' and collectives' copies."""


def copies_table(run: Run) -> Table:
    """A row per collective with messages that went as copies; none where nothing did. Raises
    RunError."""
    columns = (
        Column("collective", "collective"),
        Column("group", "group"),
        *COPIED,
        Column("waited_ns", "waited for ports, in all", Unit.DURATION),
    )
    rows = [
        (id, group, found.size_bytes, found.copies, found.waited_ns)
        for (group, id), found in copies_by_collective(run).items()
    ]
    return table("copies", "Copies of memory", columns, rows)
