"""Predictions of programs over RoCE on lossless fabrics, by the bars of TCP's standard suite.

    .venv/bin/python -m benchmarks.roce.predictions --runs DIR

16 ranks, 100 Gb/s, 500 ns a link, path MTU 4096, priority flow control with XOFF at 1 MB. Tori are
not there: packets between two of their hosts come and go by different ports, which RoCE refuses.
The second of two iterations counts. Runs are kept in DIR by the hash of their spec.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from testing.kept_runs import kept_run

LINK = "link: {rate: 100Gbps, delay: 500ns, mtu: 4200}"
QUEUE = "queue: {kind: lossless, xoff: 1MB, xon: 900KB, buffer: 64MB}"
FABRICS = {
    "flat": f"{{kind: flat, hosts: 16, {LINK}, {QUEUE}}}",
    "leaf-spine": f"{{kind: leaf-spine, leaves: 4, spines: 2, hosts_per_leaf: 4, {LINK}, {QUEUE}}}",
    "fat-tree": f"{{kind: fat-tree, k: 4, {LINK}, {QUEUE}}}",
}
PROGRAMS = {
    "all_reduce": ("ring", "halving-doubling"),
    "all_to_all": ("direct",),
    "all_gather": ("ring",),
    "broadcast": ("tree",),
}
SIZES = ("64KB", "1MB", "8MB")
SPEC = """
name: roce-predictions
fabric: {fabric}
transport: {{kind: roce, path_mtu: 4096, qp_timeout: 67ms}}
payload: timing
workload: {{kind: collectives, ranks: 16, iterations: 2, operations: [{operations}]}}
collectives: {{backend: programs}}
capture: {{points: []}}
predict: [flow, alpha-beta]
"""
BARS = "`flow` 3% geomean, 8% worst; `alpha-beta` on one switch 5% geomean"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=Path, required=True)
    options = parser.parse_args(arguments)
    found = {name: _rows(fabric, options.runs) for name, fabric in FABRICS.items()}
    print(f"Bars of TCP's suite: {BARS}.\n")
    print("| fabric | collectives | pauses | flow: geomean, worst | alpha-beta: geomean, worst |")
    print(f"|{'---|' * 5}")
    for name, (pauses, rows) in found.items():
        cells = [_both(_error(row, model) for row in rows) for model in ("flow", "alpha-beta")]
        print(f"| {name} | {len(rows)} | {pauses:,} | {cells[0]} | {cells[1]} |")
    everything = [row for _, rows in found.values() for row in rows]
    print(
        f"| all | {len(everything)} | | {_both(_error(row, 'flow') for row in everything)} "
        f"| {_both(_error(row, 'alpha-beta') for row in everything)} |"
    )
    print("\nSigned errors of `flow`, and of `alpha-beta`\n")
    names = [f"{name}, {size}" for name in FABRICS for size in SIZES]
    print(f"| program | {' | '.join(names)} |\n|{'---|' * (1 + len(names))}")
    for number in range(0, len(found["flat"][1]), len(SIZES)):
        cells = [
            f"{_error(row, 'flow'):+.1%}, {_error(row, 'alpha-beta'):+.1%}"
            for _, rows in found.values()
            for row in rows[number : number + len(SIZES)]
        ]
        row = found["flat"][1][number]
        print(f"| {row['kind']}, {row['algorithm']} | {' | '.join(cells)} |")


def _rows(fabric: str, runs: Path) -> tuple[int, list[dict[str, Any]]]:
    """The pauses of a run, and its second iteration's collectives, in order."""
    operations = ", ".join(
        f"{{kind: {kind}, size: {size}, program: {{algorithm: {algorithm}}}}}"
        for kind, algorithms in PROGRAMS.items()
        for algorithm in algorithms
        for size in SIZES
    )
    directory = kept_run(SPEC.format(fabric=fabric, operations=operations), runs)
    result = json.loads((directory / "result.json").read_text())
    assert result["valid"], result["invalid_reasons"]
    assert result["summary"]["retries"] == result["summary"]["drops"] == 0
    rows = [row for row in result["collectives"] if row["iteration"] == 1]
    return result["summary"]["pauses"], rows


def _error(row: dict[str, Any], model: str) -> float:
    return float(row["predicted"][model]["duration_ns"] / row["duration_ns"] - 1)


def _both(errors: Iterable[float]) -> str:
    """Geometric mean and worst as docs/prediction.md has them: half and twice are equally wrong."""
    found = [abs(math.log1p(error)) for error in errors]
    return f"{math.expm1(sum(found) / len(found)):.1%}, {math.expm1(max(found)):.1%}"


if __name__ == "__main__":
    main()
