"""The same programs over RoCE and over TCP, beside Gloo's own algorithms: collectives on one
switch, a DLRM step on several fabrics.

    .venv/bin/python -m benchmarks.roce.beside_tcp --runs DIR

Times are exact, in the virtual kernel. Runs are kept in DIR by the hash of their spec.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from testing.kept_runs import kept_run

SPEC = """
name: roce-beside-tcp
fabric: {fabric}
transport: {transport}
placement: strided
workload: {workload}
collectives: {collectives}
capture: {{points: []}}
predict: [flow]
"""
LINK = "link: {rate: 100Gbps, delay: 500ns, mtu: 4200}"
SWITCH = f"{{kind: flat, hosts: 8, {LINK}, queue: {{kind: droptail, buffer: 64MB}}}}"
FAT_TREE = f"{{kind: fat-tree, k: 4, {LINK}, queue: QUEUE}}"
LEAF_SPINE = f"{{kind: leaf-spine, leaves: 4, spines: 2, hosts_per_leaf: 4, {LINK}, queue: QUEUE}}"
DEEP = "{kind: droptail, buffer: 64MB}"
LOSSLESS = "{kind: lossless, xoff: 300KB, xon: 280KB, buffer: 16MB}"
SHALLOW = "{kind: droptail, buffer: 300KB}"
FABRICS = {
    "one switch": SWITCH,
    "fat-tree, deep": FAT_TREE.replace("QUEUE", DEEP),
    "fat-tree, lossless": FAT_TREE.replace("QUEUE", LOSSLESS),
    "fat-tree, 300 KB": FAT_TREE.replace("QUEUE", SHALLOW),
    "leaf-spine, deep": LEAF_SPINE.replace("QUEUE", DEEP),
    "leaf-spine, lossless": LEAF_SPINE.replace("QUEUE", LOSSLESS),
}
"""Ranks are spread over pods and leaves."""
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
FEW, MANY = 2, 6
"""Iterations of a step's two runs, whose difference is what steps cost."""
COLUMNS = {"RoCE": (ROCE, PROGRAMS), "TCP": (TCP, PROGRAMS), "TCP, Gloo's own": (TCP, GLOO)}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--fabrics", nargs="*", default=list(FABRICS), choices=FABRICS)
    options = parser.parse_args(arguments)
    if options.fabrics == list(FABRICS):
        _collectives(options.runs)
    _steps(options.runs, options.fabrics)


def _collectives(runs: Path) -> None:
    found = {name: _result(runs, COLLECTIVES, *of) for name, of in COLUMNS.items()}
    last = {name: _last(result["collectives"]) for name, result in found.items()}
    print("Collectives, in us; the second of two iterations\n")
    print(f"| collective | bytes | {' | '.join(COLUMNS)} | flow for RoCE |\n|{'---|' * 6}")
    for rows in zip(*last.values(), strict=True):
        times = " | ".join(f"{row['duration_ns'] / 1000:,.2f}" for row in rows)
        error = _error(rows[0]["predicted"]["flow"]["duration_ns"], rows[0]["duration_ns"])
        print(f"| {rows[0]['kind']} | {rows[0]['size_bytes']} | {times} | {error} |")
    print()


def _steps(runs: Path, fabrics: Sequence[str]) -> None:
    print("A DLRM step; the last of its iterations\n")
    print(
        "| fabric | | iteration, us | exposed communication, us | flow | retries, retransmits, "
        "pauses | largest process, MB | processor time a packet and hop, us |"
    )
    print(f"|{'---|' * 8}")
    for fabric in fabrics:
        for name, of in COLUMNS.items():
            _step(runs, fabric, name, *of)


def _step(runs: Path, fabric: str, name: str, transport: str, collectives: str) -> None:
    found = {}
    for iterations in (FEW, MANY):
        workload = f"{{kind: dlrm, ranks: 8, iterations: {iterations}}}"
        text = SPEC.format(
            fabric=FABRICS[fabric], transport=transport, workload=workload, collectives=collectives
        )
        found[iterations] = _costed(text, runs)
    result, cost = found[MANY]
    iteration, summary = result["iterations"][-1], result["summary"]
    error = _error(iteration["predicted"]["flow"]["duration_ns"], iteration["duration_ns"])
    again = [summary.get(key, 0) for key in ("retries", "retransmits", "pauses")]
    fewer = found[FEW][1]
    per_packet_us = 1e6 * (cost["cpu_s"] - fewer["cpu_s"]) / (cost["packets"] - fewer["packets"])
    print(
        f"| {fabric} | {name} | {iteration['duration_ns'] / 1000:,.2f} "
        f"| {iteration['exposed_comm_ns'] / 1000:,.2f} | {error} "
        f"| {', '.join(map(str, again))} | {cost['largest_mb']:,.0f} | {per_packet_us:.1f} |",
        flush=True,
    )


def _costed(text: str, runs: Path) -> tuple[Any, dict[str, float]]:
    """A run's result, and what it took: seconds of the processor, its largest process, and how many
    packets ports sent."""
    directory = runs / hashlib.sha256(text.encode()).hexdigest()[:12]
    told = directory / "cost.json"
    if not told.exists():
        shutil.rmtree(directory, ignore_errors=True)
        child = os.fork()
        if not child:
            kept_run(text, runs)
            os._exit(0)
        _, status, usage = os.wait4(child, 0)
        assert status == 0
        packets = sum(json.loads(line)["packets"] for line in (directory / "links.jsonl").open())
        cost = {
            "cpu_s": usage.ru_utime + usage.ru_stime,
            "largest_mb": usage.ru_maxrss / 1000,
            "packets": packets,
        }
        told.write_text(json.dumps(cost))
    result = json.loads((directory / "result.json").read_text())
    assert result["valid"], result["invalid_reasons"]
    return result, json.loads(told.read_text())


def _result(runs: Path, workload: str, transport: str, collectives: str) -> Any:
    text = SPEC.format(
        fabric=SWITCH, transport=transport, workload=workload, collectives=collectives
    )
    result = json.loads((kept_run(text, runs) / "result.json").read_text())
    assert result["valid"], result["invalid_reasons"]
    return result


def _last(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if row["iteration"] == 1]


def _error(predicted_ns: int, measured_ns: int) -> str:
    return f"{predicted_ns / measured_ns - 1:+.1%}"


if __name__ == "__main__":
    main()
