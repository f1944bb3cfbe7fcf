"""Holds what goes over NVLink as copies of memory beside packets and NCCL's own model: the
measurements of one server (`fabric.scale_up`, docs/spec-fabric.md#copies).

`python -m benchmarks.hardware.copies` follows each and writes the kept figures; with `--table` it
prints the tables of those that are kept. Times by packets and of the model are those of the kept
results of docs/hardware.md.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from itertools import groupby
from math import exp, log
from pathlib import Path
from typing import Any

from benchmarks.hardware.measurements import measurements
from benchmarks.hardware.predictions import KEPT as CHOICES
from benchmarks.hardware.simulations import KEPT as SIMULATED
from benchmarks.hardware.simulations import simulated

KEPT = Path(__file__).parents[1] / "results" / "2026-11-27-copies.json"

LARGE_BYTES = 256 << 20

_BY = ("model", "packets", "copies")

_Row = dict[str, Any]


def followed() -> list[_Row]:
    """Every measurement of one server, with its three times in us."""
    choices = json.loads(CHOICES.read_text(encoding="utf-8"))
    packets = json.loads(SIMULATED.read_text(encoding="utf-8"))
    found = []
    for one in measurements():
        if one.servers > 1:
            continue
        choice = choices[one.id]
        found.append(
            {
                "id": one.id,
                "bytes": one.size_bytes,
                "choice": f"{choice['algorithm']} {choice['protocol']}",
                "measured": one.time_us,
                "model": choice["time_us"],
                "packets": packets[one.id]["time_us"],
                "copies": simulated(one, choice, "copies")["time_us"],
            }
        )
        print(found[-1], flush=True)
    return found


def geomean_error(rows: Sequence[_Row], by: str) -> float:
    """exp(mean |ln(predicted / measured)|) - 1."""
    logs = [abs(log(row[by] / row["measured"])) for row in rows]
    return exp(sum(logs) / len(logs)) - 1


def tables(rows: Sequence[_Row]) -> str:
    """Two tables in Markdown: the errors of each table of measurements, and all rows."""
    parts: list[tuple[str, Sequence[_Row]]] = [
        (name, list(part)) for name, part in groupby(rows, lambda row: row["id"].split(".")[0])
    ]
    parts += [
        ("all", rows),
        ("from 256 MiB on", [row for row in rows if row["bytes"] >= LARGE_BYTES]),
        ("below 256 MiB", [row for row in rows if row["bytes"] < LARGE_BYTES]),
    ]
    lines = ["| rows | count | model | packets | copies |", "|---|---|---|---|---|"]
    for name, part in parts:
        errors = " | ".join(f"{geomean_error(part, by):.1%}" for by in _BY)
        lines.append(f"| {name} | {len(part)} | {errors} |")
    lines += [
        "",
        "| id | bytes | choice | measured | model | packets | copies | error of copies |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        times = " | ".join(f"{row[by]:,.1f}" for by in ("measured", *_BY))
        error = row["copies"] / row["measured"] - 1
        lines.append(
            f"| {row['id']} | {row['bytes']:,} | {row['choice']} | {times} | {error:+.1%} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    if sys.argv[1:] == ["--table"]:
        print(tables(json.loads(KEPT.read_text(encoding="utf-8"))))
    else:
        KEPT.write_text(json.dumps(followed(), indent=1) + "\n", encoding="utf-8")
