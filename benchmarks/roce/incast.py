"""Incasts over RoCE by controller: completion, the queue beside what it is to be, pauses.

    .venv/bin/python -m benchmarks.roce.incast --runs DIR

8 or 64 hosts of a switch at 100 Gb/s send to one, 256 KiB each, which ends before controllers have
told much, or 4 MiB. Queues are lossless, so that priority flow control is beneath all of them. Runs
are kept in DIR by the hash of their spec.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from testing.roce_streams import Flow, Streams, run_streams

STAR = """
name: roce-incast
fabric:
  kind: flat
  hosts: {hosts}
  link: {{rate: 100Gbps, delay: 1us, mtu: 4300}}
  queue: {{kind: lossless, xoff: 300KB, xon: 280KB, buffer: 64MB{marks}}}
transport: {{kind: roce, path_mtu: 4096, qp_timeout: 67ms{control}}}
capture: {{points: []}}
predict: []
counters: {{interval: 10us, ports: [s0]}}
virtual: {{memory: {memory}}}
"""
SIZES = {"256 KiB": 262_144, "4 MiB": 4_194_304}
MESSAGE = 65_536
WIRE_PER_BYTE = (4096 + 82) / 4096
"""Headers, preamble and gap."""


@dataclass(frozen=True, slots=True)
class Scheme:
    """`aim` is what the queue is to be, in words."""

    name: str
    control: str
    aim: str
    marks: str = ""


SCHEMES = (
    Scheme("PFC, window of a BDP", ", window: 65536", "none"),
    Scheme(
        "DCQCN",
        ", congestion_control: dcqcn",
        "100 to 400",
        ", kmin: 100KB, kmax: 400KB, pmax: 0.2",
    ),
    Scheme("DCTCP-like marks", ", congestion_control: dcqcn", "100", ", k: 100KB"),
    Scheme("TIMELY", ", congestion_control: timely", "580 to 6,200"),
    Scheme("HPCC", ", congestion_control: hpcc", "near 0"),
)
"""The window is the path's bandwidth times its delay of 4.7 us, and a message. TIMELY's queue is
that of its thresholds of 50 and 500 us, less the path's own time."""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--senders", nargs="*", type=int, default=[8, 64])
    parser.add_argument("--sizes", nargs="*", default=list(SIZES), choices=list(SIZES))
    parser.add_argument("--memory", default="5GB", help="of a guest; decides no result")
    options = parser.parse_args(arguments)
    print(
        "| senders | each | scheme | slowest, us | median, us | at line rate, us "
        "| queue, KB: largest | mean later | its aim | pauses | paused, us | marks | CNPs |"
    )
    print(f"|{'---|' * 13}")
    for senders in options.senders:
        for size in options.sizes:
            size_bytes = SIZES[size]
            for scheme in SCHEMES:
                text = STAR.format(
                    hosts=senders + 1,
                    marks=scheme.marks,
                    control=scheme.control,
                    memory=options.memory,
                )
                flows = [Flow(n, senders, size_bytes, MESSAGE) for n in range(senders)]
                found = run_streams(text, flows, options.runs)
                print(f"| {senders} | {size} | {_row(scheme, found)} |", flush=True)


def _row(scheme: Scheme, found: Streams) -> str:
    assert found.result["valid"], found.result["invalid_reasons"]
    summary = found.result["summary"]
    assert summary["drops"] == summary["retries"] == 0
    receiver = len(found.flows)
    times_us = [each.duration_ns / 1e3 for each in found.flows]
    wire_us = sum(each.flow.size_bytes for each in found.flows) * WIRE_PER_BYTE * 8 / 100e3
    port = f"s0-eth{receiver}"
    half_ns, end_ns = 500 * median(times_us), 1000 * median(times_us)
    later = [size for at, size in found.queue(port) if half_ns <= at <= end_ns]
    links = found.links()
    largest = max(each["max_backlog_bytes"] or 0 for each in links if each["node"] == "s0")
    paused_us = sum(each["paused_ns"] for each in links) / 1e3
    cells = (
        *(scheme.name, f"{max(times_us):,.0f}", f"{median(times_us):,.0f}", f"{wire_us:,.0f}"),
        *(f"{largest / 1e3:,.0f}", f"{sum(later) / max(1, len(later)) / 1e3:,.0f}", scheme.aim),
        *(f"{summary['pauses']:,}", f"{paused_us:,.0f}"),
        *(f"{summary['ecn_marks']:,}", f"{summary['cnps_sent']:,}"),
    )
    return " | ".join(cells)


if __name__ == "__main__":
    main()
