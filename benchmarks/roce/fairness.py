"""How flows under congestion control share a port: fairness, convergence, queue.

    .venv/bin/python -m benchmarks.roce.fairness --runs DIR

Senders and a receiver on one switch, in the virtual kernel. Each controller on a short path of
large packets, and on one on which what its paper assumes holds: many packets on their way. Runs are
kept in DIR by the hash of their spec.

With `--draws 8` each case runs eight times instead, with another seed, which marks follow, and
flows that begin at random within 100 us: how many of the draws are fair.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from testing.roce_streams import Flow, Streams, jain, run_streams

STAR = """
name: roce-fairness
fabric: {{kind: flat, hosts: {hosts}, link: {{rate: {gbps}Gbps, delay: {delay}, mtu: 4300}},
  queue: {queue}}}
transport: {{kind: roce, path_mtu: {mtu}, qp_timeout: 67ms, congestion_control: {control}}}
capture: {{points: []}}
predict: []
counters: {{interval: 10us, ports: [s0]}}
virtual: {{memory: 3GB}}
"""
RED = "{{kind: red, kmin: {kmin}KB, kmax: {kmax}KB, pmax: 0.2, weight: 1, buffer: 256MB}}"
SLICE_NS = 500_000
MESSAGE = 65_536
FAIR = 0.99
SPREAD_NS = 100_000
"""The spread of the flows' starts, in draws."""


@dataclass(frozen=True, slots=True)
class Case:
    """A controller on a path. `aim` is what the queue is to be, in words."""

    name: str
    control: str
    gbps: int
    delay: str
    mtu: int
    aim: str
    bytes_each: int


CASES = (
    Case("DCQCN", "dcqcn", 100, "1us", 4096, "100 to 400 KB", 96 << 20),
    Case("DCQCN", "dcqcn", 25, "1us", 1024, "25 to 100 KB", 24 << 20),
    Case(
        "DCQCN, clamp_target",
        "dcqcn, dcqcn: {clamp_target: true}",
        100,
        "1us",
        4096,
        "100 to 400 KB",
        224 << 20,
    ),
    Case(
        "DCQCN, clamp_target",
        "dcqcn, dcqcn: {clamp_target: true}",
        25,
        "1us",
        1024,
        "25 to 100 KB",
        56 << 20,
    ),
    Case(
        "DCQCN, its paper's clocks",
        "dcqcn, dcqcn: {additive_increase: 100Mbps, increase_interval: 55us, "
        "decrease_interval: 50us, alpha_interval: 55us, cnp_interval: 50us, fast_stages: 5}",
        25,
        "1us",
        1024,
        "25 to 100 KB",
        24 << 20,
    ),
    Case("TIMELY", "timely", 100, "1us", 4096, "50 to 500 us", 128 << 20),
    Case("TIMELY", "timely", 10, "5us", 1024, "50 to 500 us", 12 << 20),
    Case("HPCC", "hpcc", 100, "1us", 4096, "near 0", 48 << 20),
    Case(
        "HPCC, AI of 5% / 8",
        "hpcc, hpcc: {additive_increase: 625Mbps}",
        100,
        "2500ns",
        1024,
        "near 0",
        96 << 20,
    ),
)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--only", default="", help="cases with this in their name or path")
    parser.add_argument("--flows", nargs="*", type=int, default=[2, 8])
    parser.add_argument("--draws", type=int, default=0, help="so many runs of each case instead")
    options = parser.parse_args(arguments)
    cases = [case for case in CASES if options.only in f"{case.name} {_path(case)}"]
    if options.draws:
        _draw(cases, options.flows, options.draws, options.runs)
        return
    print("Flows that begin together, and one more that begins late\n")
    print(
        "| controller | path | flows | Jain | goodput Gb/s | converged after, us "
        "| late flow converged after, us | queue, KB: mean, largest late | its aim |"
    )
    print(f"|{'---|' * 9}")
    for case in cases:
        for flows in options.flows:
            _share(case, flows, options.runs)


def _draw(cases: Sequence[Case], flows_of: Sequence[int], draws: int, runs: Path) -> None:
    """Rows of how fair each draw of each case is."""
    print(
        "| controller | path | flows | Jain: least, median | draws of 0.99 or more "
        "| of the mean: least, most | goodput Gb/s |"
    )
    print(f"|{'---|' * 7}")
    for case in cases:
        for flows in flows_of:
            found = [_drawn(case, flows, draw, runs) for draw in range(draws)]
            fair = [jain(shares) for shares in found]
            parts = [share * flows / sum(shares) for shares in found for share in shares]
            goodput = [sum(shares) / 1e9 for shares in found]
            print(
                f"| {case.name} | {_path(case)} | {flows} | {min(fair):.4f}, {median(fair):.4f} "
                f"| {sum(each >= FAIR for each in fair)} of {draws} "
                f"| {min(parts):.2f}, {max(parts):.2f} "
                f"| {min(goodput):.1f} to {max(goodput):.1f} |",
                flush=True,
            )


def _drawn(case: Case, flows: int, draw: int, runs: Path) -> list[float]:
    """Shares in the second half of a draw, in bits/s."""
    starts = random.Random(draw)
    each = case.bytes_each * 2 // flows
    together = [
        Flow(n, flows, each, MESSAGE, start_ns=starts.randrange(SPREAD_NS)) for n in range(flows)
    ]
    streams = run_streams(f"seed: {draw}\n{_text(case, flows + 1)}", together, runs)
    _refuse_losses(streams)
    end_ns = min(one.acknowledged_ns[-1] for one in streams.flows)
    return streams.shares_bps(end_ns // 2, end_ns)


def _text(case: Case, hosts: int) -> str:
    queue = RED.format(kmin=case.gbps, kmax=4 * case.gbps).replace("{{", "{").replace("}}", "}")
    return STAR.format(
        hosts=hosts,
        gbps=case.gbps,
        delay=case.delay,
        queue=queue,
        mtu=case.mtu,
        control=case.control,
    )


def _share(case: Case, flows: int, runs: Path) -> None:
    each = case.bytes_each * 2 // flows
    together = [Flow(n, flows, each, MESSAGE) for n in range(flows)]
    streams = run_streams(_text(case, flows + 1), together, runs)
    _refuse_losses(streams)
    end_ns = min(one.acknowledged_ns[-1] for one in streams.flows)
    window = end_ns // 2, end_ns
    shares = streams.shares_bps(*window)
    port = [
        size for at, size in streams.queue(f"s0-eth{flows}") if window[0] <= at <= window[1]
    ] or [0]
    late_ns = 5_000_000
    joined = [*together[:-1], Flow(flows - 1, flows, each, MESSAGE, start_ns=late_ns)]
    later = run_streams(_text(case, flows + 1), joined, runs)
    print(
        f"| {case.name} | {_path(case)} | {flows} | {jain(shares):.4f} | {sum(shares) / 1e9:.1f} "
        f"| {_converged(streams, 0)} | {_converged(later, late_ns)} "
        f"| {sum(port) / len(port) / 1e3:,.0f}, {max(port) / 1e3:,.0f} | {case.aim} |",
        flush=True,
    )


def _converged(streams: Streams, from_ns: int) -> str:
    """Until the middle of the first slice from which Jain's index stays at 0.95 or more on average:
    that slice and the next three have it."""
    end_ns = min(one.acknowledged_ns[-1] for one in streams.flows)
    starts = range(from_ns, end_ns - SLICE_NS, SLICE_NS // 5)
    found = [jain(streams.shares_bps(at, at + SLICE_NS)) >= 0.95 for at in starts]
    for number, at in enumerate(starts):
        if all(found[number : number + 15]) and number + 15 <= len(found):
            return f"{(at + SLICE_NS // 2 - from_ns) / 1e3:,.0f}"
    return "not"


def _path(case: Case) -> str:
    return f"{case.gbps} Gb/s, {case.delay} a link, {case.mtu} B"


def _refuse_losses(streams: Streams) -> None:
    assert streams.result["valid"]
    assert streams.result["summary"]["drops"] == 0


if __name__ == "__main__":
    main()
