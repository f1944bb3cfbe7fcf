"""Predictions of programs on fabrics and sizes that no model was made with: run once.

    .venv/bin/python -m benchmarks.program_predictions --runs DIR [--json]

Such a set is one only once: what has been looked at is replaced here before a model is changed.

Windows do not limit (`initial_window: 1000`, buffers of 256 MB), as in the standard suite. The
second of two iterations counts. Prints a table: the signed error of each predictor for each
collective and iteration, then geometric mean and worst by predictor.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any

from testing.kept_runs import kept_run

PORT = "link: {%s, mtu: 9000}, queue: {kind: droptail, buffer: 256MB}"
COMMON = """
transport: {congestion_control: cubic, initial_window: 1000}
capture: {points: []}
predict: [alpha-beta, flow]
"""
BENCHMARKS = {
    "flat, 7 hosts, 50 Gb/s": (
        "{kind: flat, hosts: 7, " + PORT % "rate: 50Gbps, delay: 1500ns" + "}",
        7,
        "{}",
        (
            "{kind: all_reduce, size: 700KB, program: {algorithm: double-binary-tree, chunks: 5}}",
            "{kind: all_reduce, size: 1400KB, program: {algorithm: ring, channels: 2, chunks: 2}}",
            "{kind: all_reduce, size: 420KB, program: {algorithm: tree, chunks: 3}}",
            "{kind: all_gather, size: 2100KB, program: {algorithm: direct, chunks: 3}}",
            "{kind: reduce, size: 900KB, program: {algorithm: double-binary-tree, chunks: 4}}",
            "{kind: all_to_all, size: 1400KB, program: {algorithm: bruck, chunks: 2}}",
        ),
    ),
    "rails, 3 servers of 4, 40 Gb/s": (
        "{kind: rails, servers: 3, hosts_per_server: 4, links: {scale-up: {rate: 400Gbps, "
        "delay: 100ns}}, " + PORT % "rate: 40Gbps, delay: 800ns" + "}",
        12,
        "{in_flight: 6}",
        (
            "{kind: all_reduce, size: 3600KB, program: {algorithm: hierarchical, across: ring, "
            "chunks: 7}}",
            "{kind: all_reduce, size: 1200KB, program: {algorithm: hierarchical, "
            "across: double-binary-tree, full_size: true, chunks: 3}}",
            "{kind: reduce_scatter, size: 2400KB, program: {algorithm: hierarchical, chunks: 2}}",
            "{kind: all_gather, size: 2400KB, program: {algorithm: hierarchical, inside: ring, "
            "chunks: 5}}",
        ),
    ),
    "mesh 3x3, 100 Gb/s": (
        "{kind: mesh, dims: [3, 3], " + PORT % "rate: 100Gbps, delay: 600ns" + "}",
        9,
        "{in_flight: 5}",
        (
            "{kind: all_reduce, size: 1800KB, program: {algorithm: mesh, chunks: 4}}",
            "{kind: all_gather, size: 900KB, program: {algorithm: line, chunks: 2}}",
            "{kind: broadcast, size: 1MB, program: {algorithm: tree, chunks: 6}}",
        ),
    ),
}
DLRM = """
  kind: dlrm
  ranks: 7
  iterations: 2
  batch_size: 640
  sparse_features: 14
  embedding_dimension: 48
  pooling: 30
  dense_features: 300
  bottom_mlp: [640, 320, 48]
  top_mlp: [640, 1280, 640, 1]
  bucket: 800KB
"""
TRAINING = {
    f"dlrm, {order}, {in_flight} in flight": f"""
  backend: programs
  all_reduce: {{algorithm: double-binary-tree, chunks: 6}}
  all_to_all: {{algorithm: direct, chunks: 3, priority: {int(order != "fifo")}}}
  in_flight: {in_flight}
  order: {order}
"""
    for order, in_flight in (("fifo", 5), ("lifo", 4), ("priority", 3))
}


def specs() -> dict[str, str]:
    """Each run's text, by what it shows."""
    found = {}
    for name, (fabric, ranks, section, operations) in BENCHMARKS.items():
        listed = "\n".join(f"    - {operation}" for operation in operations)
        found[name] = (
            f"name: unseen\nfabric: {fabric}\nworkload:\n  kind: collectives\n  ranks: {ranks}\n"
            f"  iterations: 2\n  operations:\n{listed}\ncollectives: {section}\n{COMMON}"
        )
    fabric = BENCHMARKS["flat, 7 hosts, 50 Gb/s"][0]
    for name, section in TRAINING.items():
        found[name] = (
            f"name: unseen\nfabric: {fabric}\nworkload:{DLRM}collectives:{section}{COMMON}"
        )
    return found


def rows_of(name: str, result: dict[str, Any]) -> list[dict[str, Any]]:
    """The last iteration's collectives, and itself where ranks compute."""
    found = []
    for row in [*result["collectives"], *result["iterations"]]:
        iteration = row.get("iteration", row.get("index"))
        what = row.get("id", "iteration")
        if iteration != 1 or (what == "iteration" and not row.get("compute_ns")):
            continue
        label = f"{row['kind']}, {row['algorithm']}" if "algorithm" in row else what
        if "id" in row and name.startswith("dlrm"):
            label = row["id"].partition(".")[2]
        errors = {
            predictor: answer["duration_ns"] / row["duration_ns"] - 1
            for predictor, answer in row["predicted"].items()
        }
        found.append({"run": name, "what": label, "ns": row["duration_ns"], "errors": errors})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=Path, required=True, help="where runs are kept")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    for name, text in specs().items():
        result = json.loads((kept_run(text, options.runs) / "result.json").read_text())
        assert result["valid"], result["invalid_reasons"]
        rows += rows_of(name, result)
        print(f"{name}: done", file=sys.stderr)
    if options.json:
        print(json.dumps(rows))
        return
    print("| run | what | measured, us | flow | alpha-beta |\n|---|---|---|---|---|")
    for row in rows:
        errors = " | ".join(f"{row['errors'][name]:+.1%}" for name in ("flow", "alpha-beta"))
        print(f"| {row['run']} | {row['what']} | {row['ns'] / 1000:,.1f} | {errors} |")
    for predictor in ("flow", "alpha-beta"):
        errors_of = [abs(row["errors"][predictor]) for row in rows]
        geomean = math.exp(sum(math.log1p(error) for error in errors_of) / len(errors_of)) - 1
        worst = max(errors_of)
        print(f"\n{predictor}: geometric mean {geomean:.1%}, worst {worst:.1%} of {len(rows)}")


if __name__ == "__main__":
    main()
