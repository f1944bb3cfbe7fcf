"""Collectives as programs beside Gloo's own, and beside each other.

    .venv/bin/python -m benchmarks.programs {gloo,crossover} [--json]

All in the virtual kernel, so durations are exact; wall time depends on the machine and is compared
within one call, alternately, the lowest of each counting.

- gloo: Gloo's own ring, and the same ring with Gloo's own segments as a program: 8 ranks on a
  switch, 8 MB, ten iterations. Durations of the last iteration, and wall time of the whole runs.
- crossover: ring and double binary tree on a fat-tree of 16 hosts, by size, measured and predicted;
  what the busiest link needs for the bytes that the run's ECMP gave it; and at what size the two
  cross, by straight lines between sizes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from analysis.predict.models.flow import Flow
from analysis.predict.run_predictions import call_of
from analysis.predict.setting import setting_of
from analysis.runs.collectives import collectives_of
from analysis.runs.run import load_run
from testing.runs import run, run_with
from topologies.units import parse_size_bytes

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
    found = run_with(crossover_spec(), _by_size)
    sizes = [parse_size_bytes(size) for size in SIZES]
    names = found[SIZES[0]]["ring"]
    return found | {
        f"crossing, {name}": _crossing(
            sizes, [{a: row[name] for a, row in found[size].items()} for size in SIZES]
        )
        for name in names
        if name != "busiest_link_us"
    }


def _by_size(result: dict[str, Any], directory: Path) -> dict[str, Any]:
    """The last iteration's rows by size and algorithm, in microseconds."""
    loaded = load_run(directory)
    setting, flow = setting_of(loaded), Flow()
    measured = {each.id: each for each in collectives_of(loaded)}
    rows = last(result)
    found = {}
    for size, ring, tree in zip(SIZES, rows[::2], rows[1::2], strict=True):
        found[size] = {
            name: {
                "measured_us": round(row["duration_ns"] / 1000, 1),
                **{
                    predictor: round(answer["duration_ns"] / 1000, 1)
                    for predictor, answer in row["predicted"].items()
                },
                "busiest_link_us": round(
                    float(flow.busy_ns(setting, call_of(measured[row["id"]]))[1].max()) / 1000, 1
                ),
            }
            for name, row in (("ring", ring), ("double-binary-tree", tree))
        }
    return found


def _crossing(sizes: list[int], rows: list[Mapping[str, float]]) -> int | None:
    """The size in bytes from which on the ring is the faster; None where it never is."""
    gaps = [row["double-binary-tree"] - row["ring"] for row in rows]
    for at in range(1, len(gaps)):
        if gaps[at - 1] <= 0 < gaps[at]:
            part = -gaps[at - 1] / (gaps[at] - gaps[at - 1])
            return round(sizes[at - 1] + part * (sizes[at] - sizes[at - 1]))
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=("gloo", "crossover"))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    calls: dict[str, Callable[[], dict[str, Any]]] = {"gloo": gloo, "crossover": crossover}
    found = calls[options.what]()
    if options.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        print(f"{name:24} {value}")


if __name__ == "__main__":
    main()
