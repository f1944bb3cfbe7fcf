"""Does congestion control matter for training over RoCE? Khan et al. (HOTI 2022), with real ranks.

    .venv/bin/python -m benchmarks.roce_congestion --runs DIR

Its two-level Clos, scaled down from 8 leaves of 16 hosts: leaves at 200 Gb/s, half as much upwards,
5 us to hosts and 12.5 us to spines. Training's collectives, then the two cases in which control
should matter: an incast, and a victim, a flow that has nothing to do with the incast but for the
links that pauses stop. All over lossless queues. Runs are kept in DIR by the hash of their spec.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testing.kept_runs import kept_run
from testing.roce_streams import Flow, run_streams

CLOS = """
name: khan-clos
fabric:
  kind: leaf-spine
  leaves: {leaves}
  spines: {spines}
  hosts_per_leaf: {hosts}
  link: {{rate: 200Gbps, delay: 5us, mtu: 4300}}
  links: {{leaf-spine: {{delay: 12500ns}}}}
  queue: {queue}
"""
LOSSLESS = "{{kind: lossless, xoff: 1MB, xon: 900KB, buffer: 32MB{marks}}}"
LINE = ", kmin: 600KB, kmax: 2400KB, pmax: 0.2"
STEP = ", k: 600KB"
RUN = """
transport: {transport}
payload: timing
workload: {workload}
collectives: {collectives}
capture: {{points: []}}
predict: []
virtual: {{memory: 3GB}}
"""
STREAMS = """
transport: {transport}
capture: {{points: []}}
predict: []
"""


@dataclass(frozen=True, slots=True)
class Scheme:
    """A column: what queue pairs and ports do about congestion."""

    name: str
    transport: str
    marks: str = ""


def schemes(window_bytes: int) -> tuple[Scheme, ...]:
    """`window_bytes` is the path's bandwidth times its delay."""
    common = "kind: roce, path_mtu: 4096, qp_timeout: 67ms"
    return (
        Scheme("PFC, window of a BDP", f"{{{common}, window: {window_bytes}}}"),
        Scheme("DCQCN", f"{{{common}, congestion_control: dcqcn}}", LINE),
        Scheme("DCQCN, marks by a step", f"{{{common}, congestion_control: dcqcn}}", STEP),
        Scheme("TIMELY", f"{{{common}, congestion_control: timely, timely: {TIMELY}}}"),
        Scheme("HPCC", f"{{{common}, congestion_control: hpcc}}"),
    )


TIMELY = "{min_rtt: 71us, low: 100us, high: 500us}"
"""The path's own round trip is 70 us, above the usual lower threshold of 50."""

ALGORITHMS = (
    "{{backend: programs, all_to_all: {{algorithm: direct}}, all_reduce: {{algorithm: "
    "hierarchical, dimensions: [{hosts}, {leaves}], inside: ring, across: ring}}}}"
)
"""The paper's: a ring along both dimensions, and messages from each rank to each."""

WORKLOADS = {
    "all-reduce, 2-D": "operations: [{{kind: all_reduce, size: 8MiB}}]",
    "all-to-all": "operations: [{{kind: all_to_all, size: 8MiB}}]",
    "DLRM": "",
}
MESSAGE = 262_144


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--leaves", type=int, default=4)
    parser.add_argument("--hosts-per-leaf", type=int, default=8)
    parser.add_argument("--only", nargs="*", help="names of workloads, incast, victim")
    options = parser.parse_args(arguments)
    shape = {
        "leaves": options.leaves,
        "spines": max(1, options.hosts_per_leaf // 2),
        "hosts": options.hosts_per_leaf,
        "ranks": options.leaves * options.hosts_per_leaf,
    }
    window = 200 * 70_000 // 8
    print("| workload | scheme | time, us | pauses | paused, us | marks | CNPs | queue, KB |")
    print("|---|---|---|---|---|---|---|---|")
    for name, operations in WORKLOADS.items():
        if options.only and name not in options.only:
            continue
        for scheme in schemes(window):
            text = _fabric(shape, scheme) + RUN.format(
                transport=scheme.transport,
                workload=_workload(operations.format(), shape["ranks"]),
                collectives=ALGORITHMS.format(**shape),
            )
            directory = kept_run(text, options.runs)
            _print(name, scheme.name, _training_us(_result(directory)), directory)
    for name, flows in _streams(shape).items():
        if options.only and name not in options.only:
            continue
        for scheme in schemes(window):
            text = _fabric(shape, scheme) + STREAMS.format(transport=scheme.transport)
            found = run_streams(text, flows, options.runs)
            measured = found.flows[-1:] if name.startswith("victim") else found.flows
            slowest = max(each.duration_ns for each in measured) / 1e3
            _print(name, scheme.name, slowest, found.directory)


def _workload(operations: str, ranks: int) -> str:
    if not operations:
        return f"{{kind: dlrm, ranks: {ranks}, iterations: 2}}"
    return f"{{kind: collectives, ranks: {ranks}, {operations}}}"


def _fabric(shape: dict[str, int], scheme: Scheme) -> str:
    return CLOS.format(queue=LOSSLESS.format(marks=scheme.marks), **shape)


def _streams(shape: dict[str, int]) -> dict[str, list[Flow]]:
    """All hosts of the other leaves but the first of each send to host 0, 2 MiB or 16 MiB each. The
    victim is a flow of 2 MiB from such a first host to host 1: with a short incast from the
    beginning, with a long one after 2 ms."""
    hosts = shape["hosts"]
    senders = [n for n in range(hosts, shape["ranks"]) if n % hosts]
    incast = [Flow(source, 0, 8 * MESSAGE, MESSAGE) for source in senders]
    longer = [Flow(source, 0, 64 * MESSAGE, MESSAGE) for source in senders]
    victim = Flow(hosts, 1, 8 * MESSAGE, MESSAGE)
    late = Flow(hosts, 1, 8 * MESSAGE, MESSAGE, start_ns=2_000_000)
    return {
        "incast": incast,
        "victim": [*incast, victim],
        "long incast": longer,
        "victim of a long one": [*longer, late],
    }


def _result(directory: Path) -> Any:
    result = json.loads((directory / "result.json").read_text())
    assert result["valid"], result["invalid_reasons"]
    return result


def _training_us(result: Any) -> float:
    """Of the last iteration, or of the collective where there is one alone."""
    rows = result["iterations"] if len(result["collectives"]) > 1 else result["collectives"]
    return float(rows[-1]["duration_ns"]) / 1e3


def _print(workload: str, scheme: str, time_us: float, directory: Path) -> None:
    summary = _result(directory)["summary"]
    links = [json.loads(line) for line in (directory / "links.jsonl").open()]
    switches = [each for each in links if not each["node"].startswith("h")]
    paused_us = sum(each["paused_ns"] for each in links) / 1e3
    longest = max(each["max_backlog_bytes"] or 0 for each in switches) / 1e3
    print(
        f"| {workload} | {scheme} | {time_us:,.1f} | {summary['pauses']:,} | {paused_us:,.0f} "
        f"| {summary['ecn_marks']:,} | {summary['cnps_sent']:,} | {longest:,.0f} |",
        flush=True,
    )
    assert summary["drops"] == summary["retries"] == 0


if __name__ == "__main__":
    main()
