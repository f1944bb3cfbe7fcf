"""One table of all runs: what was measured on a fabric, beside the mesh and what is published."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Case:
    """Something to be run on a fabric. `published` is how many times as fast as on the mesh the
    paper has it; None where it says nothing. `columns` are of this table alone."""

    name: str
    fabric: str
    spec: str
    published: float | None = None
    columns: dict[str, str] = field(default_factory=dict)
    moved_bytes: int = 0
    """The bytes that an endpoint moves by the algorithm, as the paper counts effective bandwidth;
    0: not told."""
    published_gbps: float | None = None
    whole: bool = False
    """The time is the iteration's, and not that of its collectives."""


@dataclass(frozen=True)
class Row:
    """The times of a case's last iteration. `busiest_us` is how long the busiest port sends in an
    iteration, by the counters of the whole run: connections that are made before are in it, some 20
    us."""

    case: Case
    us: float
    flow_us: float
    busiest_us: float


def measured(case: Case, directory: Path) -> Row:
    """Mean microseconds of the last iteration's collectives, or of the whole iteration."""
    result = json.loads((directory / "result.json").read_text())
    assert result["valid"], result
    kept = "index" if case.whole else "iteration"
    rows = result["iterations" if case.whole else "collectives"]
    most = max(row[kept] for row in rows)
    last: list[dict[str, Any]] = [row for row in rows if row[kept] == most]
    flow = [row["predicted"]["flow"]["duration_ns"] for row in last]
    ports = [json.loads(line) for line in (directory / "links.jsonl").read_text().splitlines()]
    busiest = max(port["bytes"] * 8e6 / port["rate_bps"] for port in ports) / (most + 1)
    us = sum(row["duration_ns"] for row in last) / len(last) / 1000
    return Row(case, us, sum(flow) / len(flow) / 1000, busiest)


def table(rows: Sequence[Row], scale: float) -> str:
    """In Markdown; effective bandwidths are `scale` times what was measured, in GB/s."""
    own = list(dict.fromkeys(name for row in rows for name in row.case.columns))
    moved = any(row.case.moved_bytes for row in rows)
    header = ["", "fabric", "us", "`flow`", "busiest link", *own]
    header += ["GB/s", "published"] * moved
    header += ["of the mesh", "published", "ours / published"]
    lines = [header, ["---"] * len(header)]
    mesh = {row.case.name: row.us for row in rows if row.case.fabric == "mesh"}
    for row in rows:
        case = row.case
        cells = [case.name, case.fabric, f"{row.us:.0f}", f"{row.flow_us:.0f}"]
        cells += [f"{row.busiest_us:.0f}", *(case.columns.get(name, "") for name in own)]
        if moved:
            of_text = "" if case.published_gbps is None else f"{case.published_gbps:.0f}"
            cells += [f"{case.moved_bytes / row.us * scale / 1000:.0f}", of_text]
        gain = mesh[case.name] / row.us if case.name in mesh else None
        if case.fabric == "mesh" or gain is None:
            cells += ["", "", ""]
        elif case.published is None:
            cells += [f"{gain:.2f}", "", ""]
        else:
            cells += [f"{gain:.2f}", f"{case.published:.2f}", f"{gain / case.published - 1:+.0%}"]
        lines.append(cells)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
