"""The parts of the measured time of collectives, as a table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from analysis.compare.decomposition import PARTS, Decomposition
from groundwire.commands.console.figures import Figures, size_scale, time_scale

_TITLE = "What the measured time is made of"
_NOTHING = 5e-4
"""A smaller share than this prints as 0.0%."""


def decompositions_tables(parts: Sequence[Decomposition]) -> tuple[Figures, Figures]:
    """Means by kind and size, as shares of the measured time: a column for each part, and all parts
    in words, which is narrower. A part that no collective has is left out."""
    present = [
        (heading, name)
        for heading, name in PARTS
        if any(abs(getattr(part, name) or 0) > _NOTHING * part.measured_ns for part in parts)
    ]
    groups: dict[tuple[str, int, int], list[Decomposition]] = defaultdict(list)
    for part in parts:
        c = part.collective
        groups[c.label, c.size_bytes, len(c.ranks)].append(part)
    size = size_scale(size_bytes for _, size_bytes, _ in groups)
    time = time_scale(part.measured_ns for part in parts)
    tables = Figures("kind", title=_TITLE), Figures("kind", title=_TITLE)
    for table in tables:
        table.figure("size", size.unit)
        table.figure("measured", time.unit)
    for heading, _ in present:
        tables[0].figure(heading)
    tables[1].text("parts")
    for (kind, size_bytes, _), members in sorted(groups.items()):
        measured = sum(member.measured_ns for member in members) / len(members)
        head = (kind, size.cell(size_bytes), time.cell(round(measured)))
        shares = [_share(members, name, measured) for _, name in present]
        tables[0].add_row(*head, *shares)
        words = (f"{heading} {share}" for (heading, _), share in zip(present, shares, strict=True))
        tables[1].add_row(*head, ", ".join(words))
    return tables


def _share(members: Sequence[Decomposition], name: str, measured: float) -> str:
    values = [v for member in members if (v := getattr(member, name)) is not None]
    if not values:
        return "-"
    mean = sum(values) / len(values)
    return f"{mean / measured if measured else 0.0:.1%}"
