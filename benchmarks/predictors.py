"""Collectives per second of each predictor against scale, beside ns-3 in the same run.

    python benchmarks/predictors.py [--ranks 8,32,128] [--kind all_to_all] [--ns3-ranks 8,16]
    python benchmarks/predictors.py --iterations 4,8,16 [--predictor packet,flow]

Every predictor is asked for one collective on a fabric of the given number of hosts. The first
answer looks up routes and paths and is timed apart; what is reported is the median of the answers
after it, each for another size. The growth exponent is the slope of log(seconds) over log(ranks)
through the scales from 128 ranks on at which a predictor needs more than a millisecond; of ns-3,
whose scales are few because it takes long, through all. ns-3 (when installed) is timed as a whole
process and as its simulation alone.

`--iterations` times whole iterations of DLRM instead, of so many ranks on a fat-tree with DCTCP, in
seconds of a processor: the processor may have other work.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from ipaddress import IPv4Address

import numpy as np
from rich.console import Console
from rich.table import Table

from analysis.predict.interface import Predictor, Setting, load_predictor
from analysis.predict.models.packet import Packet
from analysis.predict.planned_run import predict_workload
from analysis.predict.setting import setting_of_spec
from collectives.call import CollectiveCall, CollectiveError
from topologies.fabrics.fabric import Fabric, Link, Node, NodeKind, Port
from topologies.routing.routes import compute_routes
from topologies.spec.queue_section import DropTail
from topologies.spec.spec import parse_spec

_HOSTS_PER_LEAF = 16
_ANSWERS = 3
_LARGE = 128


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of a predictor's first answer and of those after it, at one scale."""

    predictor: str
    kind: str
    ranks: int
    first_s: float
    again_s: float
    predicted_us: float
    simulating_s: float | None = None
    """The simulation of ns-3 alone, without the start of its process."""


@dataclass(frozen=True, slots=True)
class Iteration:
    """The time that predicting an iteration took, and how many packets were followed, by predictors
    that follow packets."""

    predictor: str
    ranks: int
    processor_s: float
    predicted_us: float
    packets: int | None


def leaf_spine(hosts: int) -> Setting:
    """A non-blocking leaf-spine; specs end at 1024 hosts, so this one is put together here."""
    leaves = max(1, -(-hosts // _HOSTS_PER_LEAF))
    spines = _HOSTS_PER_LEAF if leaves > 1 else 0
    nodes = [
        Node(f"h{i}", NodeKind.HOST, IPv4Address("10.0.0.1") + i, False, 0, (i,))
        for i in range(hosts)
    ]
    switch = IPv4Address("10.64.0.1")
    nodes += [Node(f"l{i}", NodeKind.SWITCH, switch + i, True, 1) for i in range(leaves)]
    nodes += [Node(f"s{i}", NodeKind.SWITCH, switch + 4096 + i, True, 2) for i in range(spines)]
    ends = [(f"h{i}", f"l{i // _HOSTS_PER_LEAF}") for i in range(hosts)]
    ends += [(f"l{leaf}", f"s{spine}") for leaf in range(leaves) for spine in range(spines)]
    ports: dict[str, int] = {}

    def port(node: str) -> Port:
        number = ports.get(node, 0)
        ports[node] = number + 1
        return Port(node, f"{node}-eth{number}", "02:00:00:00:00:00", DropTail())

    links = tuple(
        Link(i, port(a), port(b), 100 * 10**9, 500, 9000, "link") for i, (a, b) in enumerate(ends)
    )
    fabric = Fabric("leaf-spine", tuple(nodes), links, "ecmp")
    return Setting(fabric, compute_routes(fabric), tuple(f"h{i}" for i in range(hosts)))


def measure(name: str, kind: str, ranks: int, budget_s: float) -> Timing | None:
    """None when the predictor has no answer, or would take longer than the budget."""
    setting = leaf_spine(ranks)
    predictor: Predictor = load_predictor(name)
    calls = [
        CollectiveCall(kind, ranks * 65_536 * (i + 4), tuple(range(ranks)))
        for i in range(_ANSWERS + 1)
    ]
    took = []
    predicted = 0.0
    for call in calls:
        began = time.perf_counter()
        try:
            predicted = predictor.predict(setting, call)
        except CollectiveError as error:
            print(f"{name}, {kind}, {ranks} ranks: {error}")
            return None
        took.append(time.perf_counter() - began)
        if sum(took) > budget_s:
            break
    again = statistics.median(took[1:] or took)
    simulating_s = getattr(predictor, "last_run", {}).get("wall_s")
    return Timing(name, kind, ranks, took[0], again, predicted / 1000, simulating_s)


def measure_iteration(name: str, ranks: int) -> Iteration:
    """An iteration of DLRM on a fat-tree of as many hosts as it needs."""
    k = next(k for k in range(2, 100, 2) if k**3 // 4 >= ranks)
    spec = parse_spec(
        f"""
name: dlrm
fabric:
  kind: fat-tree
  k: {k}
  link: {{rate: 100Gbps, delay: 500ns, mtu: 9000}}
  queue: {{kind: dctcp, k: 100KB, buffer: 4MB}}
transport: {{congestion_control: dctcp}}
workload: {{kind: dlrm, ranks: {ranks}, iterations: 1}}
"""
    )
    setting = setting_of_spec(spec)
    predictor = load_predictor(name)
    began = time.process_time()
    (found,) = predict_workload(spec, setting, predictor).iterations
    took = time.process_time() - began
    followed = predictor.last if isinstance(predictor, Packet) else None
    packets = None if followed is None else followed.packets
    return Iteration(name, ranks, took, found.duration_ns / 1000, packets)


def iterations_table(scales: list[int], names: list[str]) -> Table:
    """Cost of whole iterations against ranks."""
    table = Table("predictor", title="Whole iterations of DLRM on a fat-tree")
    for heading in ("ranks", "processor s", "predicted us", "packets"):
        table.add_column(heading, justify="right")
    for name in names:
        for ranks in scales:
            one = measure_iteration(name, ranks)
            packets = "" if one.packets is None else f"{one.packets:,}"
            cells = f"{one.processor_s:.2f}", f"{one.predicted_us:,.1f}", packets
            table.add_row(name, str(ranks), *cells)
    return table


def growth(timings: list[Timing]) -> float | None:
    """Slope of log seconds over log ranks; None with fewer than two scales that take time."""
    slow = [
        (t.ranks, t.again_s if t.simulating_s is None else t.simulating_s)
        for t in timings
        if t.again_s > 1e-3 and (t.ranks >= _LARGE or t.simulating_s is not None)
    ]
    if len(slow) < 2:
        return None
    ranks, seconds = zip(*slow, strict=True)
    slope, _ = np.polyfit(np.log(ranks), np.log(seconds), 1)
    return float(slope)


def run(arguments: argparse.Namespace) -> Iterator[Timing]:
    for kind in arguments.kind:
        for name in arguments.predictor:
            scales = arguments.ns3_ranks if name == "ns3" else arguments.ranks
            for ranks in scales:
                timing = measure(name, kind, ranks, arguments.budget)
                if timing is None:
                    break
                yield timing
                if timing.first_s > arguments.budget:
                    break


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--ranks", type=_numbers, default=[8, 32, 128, 512, 1024, 2048, 4096])
    parser.add_argument("--ns3-ranks", type=_numbers, default=[8, 16])
    parser.add_argument("--kind", type=lambda t: t.split(","), default=["all_reduce", "all_to_all"])
    names = ["alpha-beta", "flow", "astra-analytical"] + (["ns3"] if find_spec("ns") else [])
    parser.add_argument("--predictor", type=lambda t: t.split(","), default=names)
    parser.add_argument(
        "--budget", type=float, default=60.0, help="seconds per predictor and scale"
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--iterations", type=_numbers, help="ranks of whole iterations of DLRM")
    arguments = parser.parse_args()
    if arguments.iterations:
        chosen = ["packet", "flow"] if arguments.predictor == names else arguments.predictor
        Console(width=120).print(iterations_table(arguments.iterations, chosen))
        return
    timings = list(run(arguments))
    if arguments.json:
        print(json.dumps([{f: getattr(t, f) for f in Timing.__slots__} for t in timings], indent=1))
        return
    console = Console(width=120)
    title = f"Predictors on {os.cpu_count()} cores, {platform.machine()}"
    table = Table("predictor", "collective", title=title)
    for heading in ("ranks", "first s", "then s", "collectives/s", "predicted us"):
        table.add_column(heading, justify="right")
    table.add_column("note")
    for t in timings:
        table.add_row(
            t.predictor,
            t.kind,
            str(t.ranks),
            f"{t.first_s:.3f}",
            f"{t.again_s:.4f}",
            f"{1 / t.again_s:,.1f}",
            f"{t.predicted_us:,.1f}",
            "" if t.simulating_s is None else f"{t.simulating_s:.2f} s of it simulating",
        )
    console.print(table)
    for kind in arguments.kind:
        for name in arguments.predictor:
            exponent = growth([t for t in timings if (t.predictor, t.kind) == (name, kind)])
            text = "-" if exponent is None else f"{exponent:.2f}"
            console.print(f"growth exponent of {name}, {kind}: {text}", highlight=False)
    if "ns3" in arguments.predictor:
        _ratios(console, timings)


def _ratios(console: Console, timings: list[Timing]) -> None:
    """How many collectives a predictor answers while ns-3 simulates one, once it has started."""
    ns3 = {(t.kind, t.ranks): t for t in timings if t.predictor == "ns3"}
    for t in timings:
        beside = ns3.get((t.kind, t.ranks))
        if beside is not None and beside.simulating_s is not None and t is not beside:
            ratio = beside.simulating_s / t.again_s
            text = f"{t.predictor} answers {ratio:,.0f} {t.kind} of {t.ranks} ranks"
            console.print(f"{text} while ns-3 simulates one", highlight=False)


if __name__ == "__main__":
    main()
