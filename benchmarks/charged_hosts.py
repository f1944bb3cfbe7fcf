"""How far is `packet` from the virtual kernel where hosts are charged for their sockets?

    sudo .venv/bin/python benchmarks/charged_hosts.py [--directory DIR] [--table FILE]

Collectives of 2, 4 and 8 ranks, with the costs of presets and others, Gloo's and NCCL's programs:
each run has its predictions. Finished runs stay in DIR: interrupted and started again, it goes on
where it was. Prints the table as Markdown.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from groundwire import pipeline
from topologies.spec.spec import parse_dict

_OPERATIONS: list[dict[str, Any]] = [
    {"kind": "all_reduce", "size": "64B"},
    {"kind": "all_gather", "size": "64KB"},
    {"kind": "broadcast", "size": "1MB"},
    {"kind": "reduce", "size": "1MB"},
    {"kind": "all_reduce", "size": "4MB"},
    {"kind": "all_to_all", "size": "4MB"},
    {"kind": "reduce_scatter", "size": "1MB"},
    {"kind": "gather", "size": "1MB"},
    {"kind": "barrier"},
    {"kind": "send_recv", "size": "1MB"},
]
_CASES: dict[str, tuple[int, str, dict[str, Any], dict[str, Any]]] = {
    "epyc-2": (2, "100Gbps", {"preset": "epyc-vm"}, {}),
    "epyc-8": (8, "25Gbps", {"preset": "epyc-vm"}, {}),
    "copies-4": (4, "100Gbps", {"copy_rate": "3GB/s", "wakeup": "5us", "syscall": "1us"}, {}),
    "xeon-4": (4, "40Gbps", {"preset": "xeon-e5-2620v4"}, {}),
    "nccl-4": (4, "100Gbps", {"preset": "epyc-vm"}, {"backend": "nccl"}),
}
"""Ranks, rate of links, costs, and how collectives run."""


def measured(name: str, directory: Path) -> Iterator[tuple[str, int, float, float]]:
    """(kind, bytes, ns that the run took, ns that `packet` says) of a case's collectives."""
    ranks, rate, host, collectives = _CASES[name]
    place = directory / name
    if not (place / "result.json").exists():
        spec: dict[str, Any] = {
            "name": name,
            "fabric": {"kind": "flat", "hosts": ranks, "link": {"rate": rate, "delay": "1us"}},
            "workload": {
                "kind": "collectives",
                "ranks": ranks,
                "operations": _OPERATIONS[:2] if collectives else _OPERATIONS,
            },
            "compute": {"device": "none"},
            "capture": {"points": []},
            "predict": ["packet"],
            "host": host,
        }
        if collectives:
            spec |= {"collectives": collectives, "payload": "timing"}
        pipeline.run(parse_dict(spec, name), kernel="virtual", out=place)
    for row in json.loads((place / "result.json").read_text())["collectives"]:
        predicted = row["predicted"]["packet"]["duration_ns"]
        yield row["kind"], row["size_bytes"], row["duration_ns"], predicted


def main() -> None:
    """Run what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, default=Path("charged-hosts"))
    parser.add_argument("--table", type=Path)
    options = parser.parse_args()
    lines = [
        "| case | collective | bytes | run, us | packet, us | off |",
        "|---|---|---|---|---|---|",
    ]
    errors = []
    for name in _CASES:
        for kind, size, ran, said in measured(name, options.directory):
            errors.append(abs(said / ran - 1))
            cells = f"{size:,} | {ran / 1e3:,.2f} | {said / 1e3:,.2f} | {said / ran - 1:+.1%}"
            lines.append(f"| {name} | {kind} | {cells} |")
    exact = sum(error < 1e-4 for error in errors)
    lines += [
        "",
        f"{len(errors)} collectives: {statistics.mean(errors):.1%} in the mean, "
        f"{max(errors):.1%} at worst, {exact} within 0.01%.",
    ]
    text = "\n".join(lines)
    if options.table is not None:
        options.table.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
