"""One path, RoCE and TCP: bandwidth by rate and message, the latency of 8 bytes, and losses.

    .venv/bin/python -m benchmarks.roce.paths --runs DIR

Two hosts and a switch, 1 us a link. Times are exact, in the virtual kernel. Runs are kept in DIR by
the hash of their spec.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from subprocess import CalledProcessError

from testing.kept_runs import kept_run
from testing.roce_streams import Flow, run_streams

PATH = """
name: roce-path
fabric: {{kind: flat, hosts: 2, link: {{rate: {gbps}Gbps, delay: 1us, mtu: 4200}},
  queue: {{kind: droptail, buffer: 64MB}}}}
transport: {transport}
capture: {{points: []}}
predict: []
"""
ROCE = "{kind: roce, path_mtu: 4096}"
SELECTIVE = "{kind: roce, path_mtu: 4096, loss_recovery: selective-repeat}"
TRANSPORTS = {
    "RoCE, time-out 1 ms": ROCE,
    "RoCE, time-out 67 ms": "{kind: roce, path_mtu: 4096, qp_timeout: 67ms}",
    "RoCE, selective repeat, time-out 1 ms": SELECTIVE,
    "RoCE, selective repeat, time-out 131 us": SELECTIVE[:-1] + ", qp_timeout: 131us}",
    "TCP, SACK": "{kind: tcp}",
}
GBPS = (100, 400, 800)
MESSAGES = (65_536, 262_144, 1_048_576, 4_194_304, 16_777_216)
TOTAL = 67_108_864
APART_NS = 20_000_000
PAYLOAD, HEADERS = 4096, 82
"""The bytes of a full packet: payload, and headers: base header 12, invariant CRC 4, UDP 8, IPv4
20, Ethernet 18, preamble and gap 20."""
FIRST_HEADERS = 16
"""The address and key that the first packet of a WRITE has besides."""
ACK = 4 + HEADERS
LOSSES = ("0%", "0.001%", "0.01%", "0.1%", "1%")
BULK = """workload: {kind: collectives, ranks: 2, iterations: 4,
  operations: [{kind: broadcast, size: 64MiB}]}
collectives: {backend: programs, broadcast: {algorithm: tree}}
"""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=Path, required=True, metavar="DIR")
    parser.add_argument("--losses", action="store_true", help="losses alone")
    options = parser.parse_args(arguments)
    if not options.losses:
        _bandwidth(options.runs)
    _losses(options.runs)


def _bandwidth(runs: Path) -> None:
    """A MiB of WRITEs is under way at a time, and four WRITEs at least. A flow's goodput is from
    its fourth acknowledgement to its last: while the path is full."""
    print("Goodput of a queue pair, Gb/s, and its share of what headers leave\n")
    print("| Gb/s | message, bytes | goodput | share | 8 B and back, ns | by physics, ns |")
    print(f"|{'---|' * 6}")
    for gbps in GBPS:
        flows = [
            Flow(0, 1, max(TOTAL, 8 * size), size, start_ns=number * APART_NS)
            for number, size in enumerate(MESSAGES)
        ]
        flows.append(Flow(0, 1, 8, 8, start_ns=len(flows) * APART_NS))
        streams = run_streams(PATH.format(gbps=gbps, transport=ROCE), flows, runs)
        *long, small = streams.flows
        physics_ns = 4 * 1_000 + 2 * 8 * (8 + FIRST_HEADERS + HEADERS + ACK) / gbps
        for each in long:
            size = each.flow.message_bytes
            times = each.acknowledged_ns[3:]
            goodput_bps = 8e9 * size * (len(times) - 1) / (times[-1] - times[0])
            limit = 1e9 * gbps * size / (size + size / PAYLOAD * HEADERS + FIRST_HEADERS)
            print(
                f"| {gbps} | {size:,} | {goodput_bps / 1e9:.2f} | {goodput_bps / limit:.2%} "
                f"| {small.duration_ns:,} | {physics_ns:,.1f} |",
                flush=True,
            )


def _losses(runs: Path) -> None:
    """The same program over both: a broadcast to one other rank, a message of 64 MiB."""
    print("\nGoodput of messages of 64 MiB with losses, Gb/s: the mean of three; 100 Gb/s\n")
    print(f"| loss | {' | '.join(TRANSPORTS)} |\n|{'---|' * (1 + len(TRANSPORTS))}")
    for loss in LOSSES:
        faults = f"faults: [{{kind: loss, link: h0-s0, at: 0ns, value: {loss}}}]\n"
        cells = []
        for transport in TRANSPORTS.values():
            text = PATH.format(gbps=100, transport=transport) + BULK
            try:
                directory = kept_run(text + (faults if loss != "0%" else ""), runs)
            except CalledProcessError:
                cells.append("ends with an error")
                continue
            result = json.loads((directory / "result.json").read_text())
            assert result["valid"], result["invalid_reasons"]
            spans = [row["duration_ns"] for row in result["collectives"][1:]]
            cells.append(f"{8 * TOTAL * len(spans) / sum(spans):.2f}")
        print(f"| {loss} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
