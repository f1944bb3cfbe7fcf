"""Predictions of programs on fabrics and sizes that no model was made with: run once.

    .venv/bin/python -m benchmarks.program_predictions [--json]

Windows do not limit (`initial_window: 1000`, buffers of 256 MB), as in the standard suite. The
second of two iterations counts. Prints a table: the signed error of each predictor for each
collective and iteration, then geometric mean and worst by predictor.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from typing import Any

from testing.runs import run

PORT = "link: {%s, mtu: 9000}, queue: {kind: droptail, buffer: 256MB}"
COMMON = """
transport: {congestion_control: cubic, initial_window: 1000}
capture: {points: []}
predict: [alpha-beta, flow]
"""
BENCHMARKS = {
    "flat, 6 hosts, 40 Gb/s": (
        "{kind: flat, hosts: 6, " + PORT % "rate: 40Gbps, delay: 2us" + "}",
        6,
        "{}",
        (
            "{kind: all_reduce, size: 300KB, program: {algorithm: double-binary-tree, chunks: 3}}",
            "{kind: all_reduce, size: 3MB, program: {algorithm: ring, channels: 2}}",
            "{kind: all_reduce, size: 3MB, program: {algorithm: direct}}",
            "{kind: all_to_all, size: 900KB, program: {algorithm: bruck}}",
            "{kind: all_to_all, size: 3MB, program: {algorithm: pairwise, chunks: 2}}",
            "{kind: reduce_scatter, size: 3MB, program: {algorithm: ring, both_directions: true}}",
        ),
    ),
    "leaf-spine, 4 leaves of 3, 50 Gb/s": (
        "{kind: leaf-spine, leaves: 4, spines: 3, hosts_per_leaf: 3, "
        + PORT % "rate: 50Gbps, delay: 700ns"
        + "}",
        12,
        "{in_flight: 3}",
        (
            "{kind: all_reduce, size: 2400KB, program: {algorithm: hierarchical, chunks: 6}}",
            "{kind: all_reduce, size: 600KB, program: {algorithm: tree, chunks: 4}}",
            "{kind: all_gather, size: 1200KB, program: {algorithm: direct, chunks: 5}}",
            "{kind: all_to_all, size: 2400KB, program: {algorithm: two-step, ranks_per_node: 3}}",
            "{kind: broadcast, size: 5MB, program: {algorithm: double-binary-tree, chunks: 8}}",
        ),
    ),
    "torus 2x3x2, 25 Gb/s": (
        "{kind: torus, dims: [2, 3, 2], " + PORT % "rate: 25Gbps, delay: 1us" + "}",
        12,
        "{in_flight: 4, active_per_dimension: 1}",
        (
            "{kind: all_reduce, size: 2400KB, program: {algorithm: hierarchical, inside: ring, "
            "across: ring, chunks: 8, dimension_order: themis}}",
            "{kind: all_reduce, size: 2400KB, program: {algorithm: torus}}",
            "{kind: reduce_scatter, size: 2400KB, program: {algorithm: hierarchical, inside: ring, "
            "across: ring, chunks: 4}}",
        ),
    ),
}
DLRM = """
  kind: dlrm
  ranks: 6
  iterations: 2
  batch_size: 768
  sparse_features: 12
  embedding_dimension: 32
  pooling: 20
  dense_features: 200
  bottom_mlp: [768, 384, 32]
  top_mlp: [768, 1536, 768, 1]
  bucket: 512KB
"""
TRAINING = {
    f"dlrm, {order}, {in_flight} in flight": f"""
  backend: programs
  all_reduce: {{algorithm: ring, chunks: 5}}
  all_to_all: {{algorithm: direct, chunks: 2, priority: {int(order != "fifo")}}}
  in_flight: {in_flight}
  order: {order}
"""
    for order, in_flight in (("fifo", 3), ("lifo", 3), ("priority", 2))
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
    fabric = BENCHMARKS["flat, 6 hosts, 40 Gb/s"][0]
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
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    for name, text in specs().items():
        rows += rows_of(name, run(text)[0])
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
