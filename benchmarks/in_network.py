"""Switches that compute, beside algorithms of hosts: the tables of docs/in-network-figures.md.

    .venv/bin/python -m benchmarks.in_network [--runs DIR] [--hosts 16,64,128] [--json]

All in the virtual kernel, on fat-trees of 100 Gb/s links: durations are exact, and the same in
every run. Runs are kept in DIR; what is there is not run again.

- latency: all-reduces of 8 and 4096 bytes over so many hosts, second of two iterations.
- modes: low latency and streaming by size on 16 hosts, beside a ring, with the goodput of streams.
- jobs: two jobs that stream through the same leaves, by the rule of who waits.
- bytes: what a host's port sends and receives for one all-reduce, by port counters: the difference
  of runs of three iterations and of one.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from testing.kept_runs import kept_run

ROOT = Path(__file__).resolve().parent.parent
ALGORITHMS = {
    "in the switches": "{algorithm: aggregation}",
    "recursive doubling": "{algorithm: recursive-doubling}",
    "ring": "{algorithm: ring}",
    "Gloo's own": None,
}
RULES = ("one-a-switch", "one-a-port", "any")
PUBLISHED = {8: 2.1, 4096: 3.24}
"""SHArP 2016, 128 hosts: 6.01 to 2.83 us and 46.93 to 14.48 us."""
SMALL = (8, 4096)
LOW_LATENCY_UP_TO = 524_288
RING_UP_TO = 4_194_304
SIZES = (
    (8, 1024, 4096, 16_384),
    (65_536, 262_144),
    (98_304, 196_608, 393_216, 524_288),
    (1_048_576, 4_194_304),
    (16_777_216,),
)
"""The payloads of the table of modes; those of one tuple share a run."""
MODES = {
    "low latency": "{algorithm: aggregation}",
    "streaming": "{algorithm: aggregation, mode: streaming}",
    "ring": "{algorithm: ring}",
}
BYTES, FEW_BYTES = 1_000_000, 65_536
"""A payload of 1 KiB is an operation of its own: of these there need not be many."""
RATE_GBPS, MTU = 100, 9000


def spec(hosts: int, operations: Sequence[tuple[int, str | None]], iterations: int = 2) -> str:
    """Sizes, and by which algorithm: None is Gloo's own."""
    lines = "\n".join(
        f"    - {{kind: all_reduce, size: {size}"
        + (f", program: {program}}}" if program is not None else "}")
        for size, program in operations
    )
    return f"""
name: in-network
fabric: {{kind: fat-tree, k: {4 if hosts <= 16 else 8}}}
workload:
  kind: collectives
  ranks: {hosts}
  iterations: {iterations}
  operations:
{lines}
aggregation: {{slots: 64, payload: 1KiB}}
capture: {{points: []}}
predict: [alpha-beta, flow]
"""


def jobs_spec(rule: str) -> str:
    """Two jobs on half of the hosts of each of two leaves, with spines of their own; the second one
    starts 20 us later."""
    halves = {"left": ("h0", "h1", "h4", "h5"), "right": ("h2", "h3", "h6", "h7")}
    lines = "".join(
        f"""
  - name: {name}
    start: {20 * number}us
    placement: {{{", ".join(f"{rank}: {host}" for rank, host in enumerate(hosts))}}}
    workload:
      kind: collectives
      ranks: 4
      iterations: 2
      operations: [{{kind: all_reduce, size: 1MB}}]"""
        for number, (name, hosts) in enumerate(halves.items())
    )
    return f"""
name: two-jobs
fabric: {{kind: leaf-spine, leaves: 2, spines: 2, hosts_per_leaf: 4}}
jobs:{lines}
aggregation: {{mode: streaming, streams: {rule}}}
collectives: {{backend: programs, all_reduce: {{algorithm: aggregation}}}}
capture: {{points: []}}
predict: [flow]
"""


def last(directory: Path) -> list[dict[str, Any]]:
    """The collectives of the last iteration of a run that is valid."""
    result = json.loads((directory / "result.json").read_text())
    assert result["valid"], result
    most = max(row["iteration"] for row in result["collectives"])
    return [row for row in result["collectives"] if row["iteration"] == most]


def latency(hosts: int, runs: Path) -> dict[str, Any]:
    """Microseconds by size and algorithm, and how many times less the switches take."""
    asked = [(size, program) for size in SMALL for program in ALGORITHMS.values()]
    rows = last(kept_run(spec(hosts, asked), runs))
    found: dict[str, Any] = {}
    for place, size in enumerate(SMALL):
        of_size = rows[place * len(ALGORITHMS) : (place + 1) * len(ALGORITHMS)]
        by_name = dict(zip(ALGORITHMS, of_size, strict=True))
        us = {name: row["duration_ns"] / 1000 for name, row in by_name.items()}
        found[str(size)] = {
            "us": us,
            "predicted_us": {
                name: {p: one["duration_ns"] / 1000 for p, one in row["predicted"].items()}
                for name, row in by_name.items()
            },
            "ratio": {name: taken / us["in the switches"] for name, taken in us.items()},
            "published_at_128": PUBLISHED[size],
        }
    return found


def modes(runs: Path) -> dict[str, Any]:
    """Microseconds by size: both modes and a ring; the share of the goodput bound of a stream."""
    found: dict[str, Any] = {}
    goodput = RATE_GBPS * (MTU - 52) / (MTU + 38)
    for sizes in SIZES:
        asked = [
            (size, name)
            for size in sizes
            for name in MODES
            if size <= {"low latency": LOW_LATENCY_UP_TO, "ring": RING_UP_TO}.get(name, size)
        ]
        operations = [(size, MODES[name]) for size, name in asked]
        rows = last(kept_run(spec(16, operations), runs))
        for (size, name), row in zip(asked, rows, strict=True):
            found.setdefault(str(size), {})[name] = row["duration_ns"] / 1000
        for size in sizes:
            stream = found[str(size)]["streaming"]
            found[str(size)]["of goodput"] = size * 8 / 1000 / stream / goodput
    return found


def jobs(runs: Path) -> dict[str, Any]:
    """Microseconds that two jobs take by the rule of streams: their second all-reduces."""
    found: dict[str, Any] = {}
    for rule in RULES:
        result = json.loads((kept_run(jobs_spec(rule), runs) / "result.json").read_text())
        assert result["valid"], result
        found[rule] = {
            job["name"]: {
                "us": job["duration_ns"] / 1000,
                "flow": job["predicted"]["flow"]["duration_ns"] / 1000,
                "streams": [
                    row["duration_ns"] / 1000
                    for row in result["collectives"]
                    if row["job"] == job["name"]
                ],
            }
            for job in result["jobs"]
        }
    return found


def host_bytes(runs: Path) -> dict[str, Any]:
    """Bytes that a host's port sends and receives for an all-reduce, beside what theory says."""
    found = {}
    n = 16
    for name, program, size, theory in (
        ("streaming", "{algorithm: aggregation, mode: streaming}", BYTES, 1.0),
        ("low latency", "{algorithm: aggregation}", FEW_BYTES, 1.0),
        ("ring", "{algorithm: ring}", BYTES, 2 * (n - 1) / n),
    ):
        once, thrice = (
            _of_ports(kept_run(spec(n, [(size, program)], iterations), runs))
            for iterations in (1, 3)
        )
        sent, come = ((more - few) / 2 / size for few, more in zip(once, thrice, strict=True))
        found[name] = {"size": size, "sent / S": sent, "received / S": come, "theory": theory}
    return found


def _of_ports(directory: Path) -> tuple[float, float]:
    """Mean bytes that the ports of hosts sent and received, as Linux counts frames."""
    ports = [json.loads(line) for line in (directory / "links.jsonl").read_text().splitlines()]
    sent = [port["bytes"] for port in ports if port["node"].startswith("h")]
    come = [port["bytes"] for port in ports if port["peer"].startswith("h")]
    return sum(sent) / len(sent), sum(come) / len(come)


def tables(found: dict[str, Any]) -> str:
    """The tables in Markdown."""
    lines = []
    if "latency" in found:
        names = list(ALGORITHMS)
        lines += [
            "| hosts | size | " + " | ".join(names) + " | to recursive doubling | published, 128 |",
            "|" + "---|" * (len(names) + 4),
        ]
        for hosts, sizes in found["latency"].items():
            for size, of_size in sizes.items():
                cells = [f"{of_size['us'][name]:.2f}" for name in names]
                ratio = of_size["ratio"]["recursive doubling"]
                lines.append(
                    f"| {hosts} | {size} | {' | '.join(cells)} | {ratio:.2f} | "
                    f"{of_size['published_at_128']} |"
                )
    if "modes" in found:
        titles = ("size", "low latency", "streaming", "ring", "of goodput", "ring / streaming")
        lines += ["", f"| {' | '.join(titles)} |", "|" + "---|" * len(titles)]
        for size, row in found["modes"].items():
            low = f"{row['low latency']:.2f}" if "low latency" in row else ""
            ring = f"{row['ring']:.2f}" if "ring" in row else ""
            gain = f"{row['ring'] / row['streaming']:.2f}" if "ring" in row else ""
            lines.append(
                f"| {size} | {low} | {row['streaming']:.2f} | {ring} | "
                f"{row['of goodput']:.1%} | {gain} |"
            )
    if "jobs" in found:
        lines += [
            "",
            "| streams | job | first stream | second stream | job | `flow` |",
            "|" + "---|" * 6,
        ]
        for rule, of_jobs in found["jobs"].items():
            for name, job in of_jobs.items():
                cells = [f"{us:.2f}" for us in (*job["streams"], job["us"], job["flow"])]
                lines.append(f"| {rule} | {name} | {' | '.join(cells)} |")
    if "bytes" in found:
        lines += ["", "| | S | sent / S | received / S | payload |", "|---|---|---|---|---|"]
        for name, row in found["bytes"].items():
            lines.append(
                f"| {name} | {row['size']} | {row['sent / S']:.4f} | {row['received / S']:.4f} | "
                f"{row['theory']:.4f} |"
            )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "in-network")
    parser.add_argument("--hosts", default="16,64,128", help="of the table of latencies")
    parser.add_argument("--only", choices=("latency", "modes", "bytes", "jobs"))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found: dict[str, Any] = {}
    if options.only in (None, "latency"):
        found["latency"] = {n: latency(int(n), options.runs) for n in options.hosts.split(",")}
    if options.only in (None, "bytes"):
        found["bytes"] = host_bytes(options.runs)
    if options.only in (None, "jobs"):
        found["jobs"] = jobs(options.runs)
    if options.only in (None, "modes"):
        found["modes"] = modes(options.runs)
    print(json.dumps(found) if options.json else tables(found))


if __name__ == "__main__":
    main()
