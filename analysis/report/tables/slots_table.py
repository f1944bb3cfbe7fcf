"""The table of slots: how far aggregation nodes used theirs."""

from __future__ import annotations

from analysis.metrics.in_network.slots import slot_uses
from analysis.report.tables.table import Column, Table, Unit, table
from analysis.runs.run import Run


def slots_table(run: Run) -> Table:
    """A row per aggregation node: its slots, the operations that had one, the most at once, and for
    how long slots were held, of all operations together."""
    columns = (
        Column("switch", "switch"),
        Column("slots", "slots", Unit.COUNT),
        Column("operations", "operations", Unit.COUNT),
        Column("most", "most at once", Unit.COUNT),
        Column("held_ns", "held", Unit.DURATION),
    )
    rows = [
        (use.switch, use.slots, len(use.start_ns), use.most, use.held_ns) for use in slot_uses(run)
    ]
    return table("slots", "Slots of aggregation nodes", columns, rows)
