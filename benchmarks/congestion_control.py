"""Does congestion control matter for training when the fabric is lossless?

    .venv/bin/python benchmarks/congestion_control.py [--iterations N] [--json] [--out DIR]

The question of arXiv 2207.10898 on a 16-host fat-tree (k=4, 100 Gb/s, 500 ns, MTU 9000, ECMP) in
the virtual kernel: all-reduce, all-to-all, and both together (a DLRM step without compute, in which
the embeddings' AlltoAll and the gradients' AllReduce overlap), under six ways to keep queues short.
`incast` is beside them as the pattern for which nobody doubts that it matters. Every figure is from
one table's runs; `slowdown` is against the fastest of its workload. Marks, pauses and drops are of
all ports over the whole run, store traffic included.

Thresholds: RED as DCQCN at 100 Gb/s (Zhu et al. 2015, as HPCC's runs scale it), K above C * RTT / 7
(Alizadeh et al. 2010), headroom from the link, 1 MB of buffer a port where packets may be lost.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from groundwire.commands.run import KernelChoice, run_showing
from topologies.spec.spec import Spec, parse_spec

K, PORT_BUFFER = "100KB", "1MB"
_LOSSLESS = {"kind": "lossless", "xoff": "256KB", "xon": "200KB", "buffer": "32MB"}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "lossless only": ("cubic", _LOSSLESS),
    "DCTCP": ("dctcp", {"kind": "dctcp", "k": K, "buffer": PORT_BUFFER}),
    "lossless + DCTCP": ("dctcp", _LOSSLESS | {"k": K}),
    "RED/ECN + cubic": (
        "cubic",
        {"kind": "red", "kmin": "100KB", "kmax": "400KB", "pmax": 0.2, "buffer": PORT_BUFFER},
    ),
    "drop-tail + cubic": ("cubic", {"kind": "droptail", "buffer": PORT_BUFFER}),
    "drop-tail + bbr": ("bbr", {"kind": "droptail", "buffer": PORT_BUFFER}),
}


def workloads(ranks: int, iterations: int) -> dict[str, dict[str, Any]]:
    """Name -> the workload section of its spec."""

    def collective(**operation: Any) -> dict[str, Any]:
        return {
            "kind": "collectives",
            "ranks": ranks,
            "iterations": iterations,
            "operations": [operation],
        }

    return {
        "all-reduce 8MB": collective(kind="all_reduce", size="8MB"),
        "all-to-all 8MB": collective(kind="all_to_all", size="8MB"),
        "both (DLRM)": {"kind": "dlrm", "ranks": ranks, "iterations": iterations},
        "incast 1MB": collective(kind="incast", size="1MB"),
    }


def spec_of(name: str, workload: dict[str, Any], variant: str) -> Spec:
    """The spec of one cell of the table."""
    control, queue = VARIANTS[variant]
    return parse_spec(
        json.dumps(
            {
                "name": name,
                "fabric": {
                    "kind": "fat-tree",
                    "k": 4,
                    "link": {"rate": "100Gbps", "delay": "500ns", "mtu": 9000},
                    "queue": queue,
                },
                "transport": {"congestion_control": control, "min_rto": "5ms"},
                "workload": workload,
                "compute": {"device": "none"},
                "capture": {"points": []},
                "predict": [],
            }
        ),
        variant,
    )


def run(
    name: str, workload: dict[str, Any], variant: str, directory: Path, console: Console
) -> dict[str, Any]:
    """One cell of the table: its times by iteration, and what the ports counted."""
    spec = spec_of(directory.name, workload, variant)
    result: Any = run_showing(spec, KernelChoice.virtual, directory, console).result
    if workload["kind"] == "dlrm":
        times = [iteration["duration_ns"] for iteration in result["iterations"]]
    else:
        times = [
            collective["duration_ns"]
            for collective in result["collectives"]
            if collective["kind"] != "barrier"
        ]
    summary = result["summary"]
    return {
        "workload": name,
        "variant": variant,
        "valid": result["valid"],
        "median_us": statistics.median(times) / 1000,
        "worst_us": max(times) / 1000,
        **{key: summary[key] for key in ("pauses", "ecn_marks", "drops", "retransmits")},
    }


def table(rows: list[dict[str, Any]]) -> Table:
    """The rows, each with its slowdown against the fastest of its workload."""
    best: dict[str, float] = {}
    for row in rows:
        best[row["workload"]] = min(best.get(row["workload"], row["median_us"]), row["median_us"])
    made = Table("workload", "congestion control")
    for heading in ("median us", "worst us", "slowdown", "pauses", "marks", "drops", "retransmits"):
        made.add_column(heading, justify="right")
    last = None
    for row in rows:
        if last is not None and row["workload"] != last:
            made.add_section()
        made.add_row(
            row["workload"] if row["workload"] != last else "",
            row["variant"] + ("" if row["valid"] else " (invalid)"),
            f"{row['median_us']:.1f}",
            f"{row['worst_us']:.1f}",
            f"{row['median_us'] / best[row['workload']]:.2f}",
            *(str(row[key]) for key in ("pauses", "ecn_marks", "drops", "retransmits")),
        )
        last = row["workload"]
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--iterations", type=int, default=3)
    parser.add_argument("--ranks", type=int, default=16)
    parser.add_argument("--only", action="append", help="a workload, such as 'incast 1MB'")
    parser.add_argument("--out", type=Path, help="keep the run directories here")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    console = Console(stderr=True)
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        out = arguments.out or Path(scratch)
        for name, workload in workloads(arguments.ranks, arguments.iterations).items():
            if arguments.only and name not in arguments.only:
                continue
            for variant in VARIANTS:
                console.print(f"[bold]{name}[/], {variant}", highlight=False)
                words = f"{name} {variant}".replace("(", " ").replace(")", " ").replace("/", " ")
                directory = out / "-".join(words.replace("+", " ").lower().split())
                rows.append(run(name, workload, variant, directory, console))
    if arguments.json:
        print(json.dumps(rows, indent=1))
    else:
        Console(width=120).print(table(rows))


if __name__ == "__main__":
    main()
