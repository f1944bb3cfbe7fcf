"""What the measured time of collectives is made of, as a table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from rich.table import Table

from analysis.compare.decomposition import PARTS, Decomposition
from groundwire.commands.console.cells import microseconds
from topologies.units import format_size

_NOTHING = 5e-4
"""A smaller share than this prints as 0.0%."""


def decompositions_table(parts: Sequence[Decomposition]) -> Table:
    """Means by kind and size, as shares of the measured time. A part that no collective has is left
    out."""
    present = [
        (heading, name)
        for heading, name in PARTS
        if any(abs(getattr(part, name) or 0) > _NOTHING * part.measured_ns for part in parts)
    ]
    table = Table(
        "kind",
        title="What the measured time is made of",
        title_justify="left",
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    for heading in ("size", "measured us", *(heading for heading, _ in present)):
        table.add_column(heading, justify="right")
    groups: dict[tuple[str, int, int], list[Decomposition]] = defaultdict(list)
    for part in parts:
        c = part.collective
        groups[c.label, c.size_bytes, len(c.ranks)].append(part)
    for (kind, size_bytes, _), members in sorted(groups.items()):
        measured = sum(member.measured_ns for member in members) / len(members)
        cells = [kind, format_size(size_bytes), microseconds(round(measured))]
        for _, name in present:
            values = [v for member in members if (v := getattr(member, name)) is not None]
            if not values:
                cells.append("-")
                continue
            mean = sum(values) / len(values)
            cells.append(f"{mean / measured if measured else 0.0:.1%}")
        table.add_row(*cells)
    return table
