"""The same programs over RoCE and over TCP, on one switch, beside Gloo's own algorithms.

    .venv/bin/python -m benchmarks.roce --runs DIR

Times are exact, in the virtual kernel. Runs are kept in DIR by the hash of their spec.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from testing.kept_runs import kept_run

SPEC = """
name: roce-beside-tcp
fabric:
  kind: flat
  hosts: 8
  link: {{rate: 100Gbps, delay: 500ns, mtu: 4200}}
  queue: {{kind: droptail, buffer: 64MB}}
transport: {transport}
workload: {workload}
collectives: {collectives}
capture: {{points: []}}
predict: [flow]
"""
ROCE = "{kind: roce, path_mtu: 4096}"
TCP = "{kind: tcp}"
PROGRAMS = "{backend: programs, all_reduce: {algorithm: ring}, all_to_all: {algorithm: direct}}"
GLOO = "{backend: gloo}"
OPERATIONS = ", ".join(
    f"{{kind: {kind}, size: {size}}}"
    for kind in ("all_reduce", "all_to_all")
    for size in ("64KiB", "1MiB", "8MiB")
)
COLLECTIVES = f"{{kind: collectives, ranks: 8, iterations: 2, operations: [{OPERATIONS}]}}"
DLRM = "{kind: dlrm, ranks: 8, iterations: 2}"
COLUMNS = {"RoCE": (ROCE, PROGRAMS), "TCP": (TCP, PROGRAMS), "TCP, Gloo's own": (TCP, GLOO)}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=Path, required=True)
    options = parser.parse_args(arguments)
    found = {name: _result(options.runs, COLLECTIVES, *of) for name, of in COLUMNS.items()}
    last = {name: _last(result["collectives"]) for name, result in found.items()}
    print("Collectives, in us; the second of two iterations\n")
    print(f"| collective | bytes | {' | '.join(COLUMNS)} | flow for RoCE |\n|{'---|' * 6}")
    for rows in zip(*last.values(), strict=True):
        times = " | ".join(f"{row['duration_ns'] / 1000:,.2f}" for row in rows)
        error = _error(rows[0]["predicted"]["flow"]["duration_ns"], rows[0]["duration_ns"])
        print(f"| {rows[0]['kind']} | {rows[0]['size_bytes']} | {times} | {error} |")
    print("\nA DLRM step, in us; the second of two iterations\n")
    print(f"| | iteration | exposed communication | flow |\n|{'---|' * 4}")
    for name, of in COLUMNS.items():
        iteration = _result(options.runs, DLRM, *of)["iterations"][-1]
        error = _error(iteration["predicted"]["flow"]["duration_ns"], iteration["duration_ns"])
        exposed_ns = iteration["exposed_comm_ns"]
        print(
            f"| {name} | {iteration['duration_ns'] / 1000:,.2f} | {exposed_ns / 1000:,.2f} "
            f"| {error} |"
        )


def _result(runs: Path, workload: str, transport: str, collectives: str) -> Any:
    text = SPEC.format(transport=transport, workload=workload, collectives=collectives)
    result = json.loads((kept_run(text, runs) / "result.json").read_text())
    assert result["valid"], result["invalid_reasons"]
    return result


def _last(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if row["iteration"] == 1]


def _error(predicted_ns: int, measured_ns: int) -> str:
    return f"{predicted_ns / measured_ns - 1:+.1%}"


if __name__ == "__main__":
    main()
