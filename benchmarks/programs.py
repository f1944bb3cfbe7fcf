"""Collectives as programs beside Gloo's own, beside each other, and by schedule.

    .venv/bin/python -m benchmarks.programs {gloo,crossover,themis} [--json]

All in the virtual kernel, so durations are exact; wall time depends on the machine and is compared
within one call, alternately, the lowest of each counting.

- gloo: Gloo's own ring, and the same ring with Gloo's own segments as a program: 8 ranks on a
  switch, 8 MB, ten iterations. Durations of the last iteration, and wall time of the whole runs.
- crossover: ring and double binary tree on a fat-tree of 16 hosts, by size, measured and predicted.
- themis: an all-reduce of 64 chunks on tori of 2x2x2, 4x4, 4x4x4 and 8x8, rings along each axis,
  one chunk per axis at a time: fixed order, Themis first come first served, Themis smallest first;
  durations, and what the ports of each axis sent.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from math import prod
from pathlib import Path
from typing import Any

from analysis.runs.run import load_run
from testing.runs import run, run_with

ROUNDS = 2
SIZES = ("4KB", "16KB", "64KB", "128KB", "256KB", "512KB", "1MB", "2MB", "4MB", "8MB", "16MB")

GLOO = """
name: gloo
fabric: {kind: flat, hosts: 8, link: {rate: 100Gbps, delay: 1us, mtu: 9000}}
workload:
  kind: collectives
  ranks: 8
  iterations: 10
  operations: [{kind: all_reduce, size: 8192000}]
collectives: {backend: %s, all_reduce: {algorithm: gloo-ring}}
capture: {points: []}
"""
THEMIS = """
name: themis
fabric:
  kind: torus
  dims: {dims}
  link: {{rate: 100Gbps, delay: 500ns, mtu: 9000}}
  queue: {{kind: droptail, buffer: 64MB}}
transport: {{congestion_control: cubic, initial_window: 1000}}
workload:
  kind: collectives
  ranks: {ranks}
  iterations: 1
  operations:
    - {{kind: all_reduce, size: {size}, program: {{algorithm: hierarchical, inside: ring,
       across: ring, chunks: 64, dimension_order: {order}}}}}
collectives: {{active_per_dimension: 1, in_flight: 64, within_dimension: {within}}}
capture: {{points: []}}
predict: [flow]
"""
THEMIS_FABRICS = {
    "2x2x2": ((2, 2, 2), "32MiB", 1.71),
    "4x4": ((4, 4), "32MiB", 1.60),
    "4x4x4": ((4, 4, 4), "32MiB", 2.26),
    "8x8": ((8, 8), "32MiB", 1.78),
}
"""Sizes of the dimensions, the all-reduce's size, and by how much Themis lowers the largest load of
a dimension as ASTRA-sim's algorithm computes it for 64 chunks."""
SCHEDULES = {
    "fixed": ("fixed", "fifo"),
    "themis, fifo": ("themis", "fifo"),
    "themis, smallest first": ("themis", "smallest-first"),
}


def crossover_spec() -> str:
    """Each size by both algorithms."""
    operations = "\n".join(
        f"    - {{kind: all_reduce, size: {size}, "
        f"program: {{algorithm: {name}, chunks: {chunks}}}}}"
        for size in SIZES
        for name, chunks in (("ring", 1), ("double-binary-tree", 16))
    )
    return f"""
name: crossover
fabric: {{kind: fat-tree, k: 4}}
workload:
  kind: collectives
  ranks: 16
  iterations: 2
  operations:
{operations}
collectives: {{smallest_chunk: 16KB}}
capture: {{points: []}}
predict: [alpha-beta, flow]
"""


def last(result: dict[str, Any]) -> list[dict[str, Any]]:
    """The collectives of the last iteration."""
    most = max(row["iteration"] for row in result["collectives"])
    return [row for row in result["collectives"] if row["iteration"] == most]


def gloo() -> dict[str, Any]:
    durations: dict[str, int] = {}
    walls: dict[str, list[float]] = {"gloo": [], "programs": []}
    for _ in range(ROUNDS):
        for backend, taken in walls.items():
            result, wall_s = run(GLOO % backend)
            taken.append(wall_s)
            (row,) = last(result)
            durations[backend] = row["duration_ns"]
    return {
        "duration_ns": durations,
        "duration_ratio": round(durations["programs"] / durations["gloo"], 4),
        "wall_s": {name: [round(s, 1) for s in taken] for name, taken in walls.items()},
        "wall_ratio": round(min(walls["programs"]) / min(walls["gloo"]), 2),
    }


def crossover() -> dict[str, Any]:
    rows = last(run(crossover_spec())[0])
    found = {}
    for size, ring, tree in zip(SIZES, rows[::2], rows[1::2], strict=True):
        found[size] = {
            name: {
                "measured_us": round(row["duration_ns"] / 1000, 1),
                **{
                    predictor: round(answer["duration_ns"] / 1000, 1)
                    for predictor, answer in row["predicted"].items()
                },
            }
            for name, row in (("ring", ring), ("double-binary-tree", tree))
        }
    return found


def axis_bytes(directory: Path) -> dict[str, int]:
    """What the ports of each axis sent, by their counters."""
    found = load_run(directory)
    sent: dict[str, int] = {}
    for record in found.links:
        axis = found.fabric.links[record.link].link_class
        sent[axis] = sent.get(axis, 0) + record.bytes
    return sent


def themis(fabrics: Sequence[str]) -> dict[str, Any]:
    """Each fabric by each schedule: durations, and the largest load of an axis."""
    found = {}
    for name in fabrics:
        dims, size, expected = THEMIS_FABRICS[name]
        rows = {}
        for schedule, (order, within) in SCHEDULES.items():
            text = THEMIS.format(
                dims=list(dims), ranks=prod(dims), size=size, order=order, within=within
            )
            (row,), sent = run_with(text, lambda result, where: (last(result), axis_bytes(where)))
            rows[schedule] = {
                "measured_us": round(row["duration_ns"] / 1000, 1),
                "flow_us": round(row["predicted"]["flow"].get("duration_ns", 0) / 1000, 1),
                "axis_bytes": sent,
            }
        largest = max(rows["fixed"]["axis_bytes"].values())
        for row in rows.values():
            row["load_ratio"] = round(largest / max(row["axis_bytes"].values()), 3)
            row["faster"] = round(rows["fixed"]["measured_us"] / row["measured_us"], 3)
        found[name] = {"expected_load_ratio": expected, **rows}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=("gloo", "crossover", "themis"))
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--fabric", choices=THEMIS_FABRICS, action="append", help="themis on this")
    options = parser.parse_args()
    calls: dict[str, Callable[[], dict[str, Any]]] = {
        "gloo": gloo,
        "crossover": crossover,
        "themis": lambda: themis(options.fabric or tuple(THEMIS_FABRICS)),
    }
    found = calls[options.what]()
    if options.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        print(f"{name:24} {value}")


if __name__ == "__main__":
    main()
