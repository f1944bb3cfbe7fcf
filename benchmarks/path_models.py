"""Routing kinds over RoCE, by the predictor `packet`: many fabrics, collectives and seeds.

    .venv/bin/python -m benchmarks.path_models

All links have 100 Gb/s and 500 ns, queues 4 MB. Each figure is the median of so many seeds, in
microseconds, and the worst of them. `benchmarks/paths.py` runs some of it in the virtual kernel;
the engine is within 0.2% of that (tests/routing/test_packet.py).

`--table grey` has one uplink of the first leaf lose packets, by routing kind: what an all-to-all
takes, and what share of the packets that left the leaf went over that link.

`--table corrupt` has it corrupt 1 packet in 100,000, with 1 GB so that there are as many, and queue
pairs whose window is 64 KB. It also counts the packets that went there, and those that were lost.

`--table failures` has the same uplink carry nothing for a while, and MRC beside RoCE. No route is
computed anew for it.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from analysis.predict.models.packet import Packet
from analysis.predict.planned_run import predict_workload
from analysis.predict.setting import setting_of_spec
from topologies.spec.spec import Spec, parse_spec

ROUTINGS = {
    "static": "static",
    "ecmp": "ecmp",
    "spray, random": "{kind: spray, choose: random}",
    "spray, round robin": "{kind: spray, choose: round-robin}",
    "spray, least queue": "{kind: spray, choose: least-queue}",
    "flowlet, 50 us": "{kind: flowlet, gap: 50us}",
    "adaptive": "adaptive",
}
_ROCE = "kind: roce, path_mtu: 4096, loss_recovery: "
RECOVERIES = {"go-back-N": f"{_ROCE}go-back-n", "selective": f"{_ROCE}selective-repeat"}
SOON = {"selective, time-out 131 us": f"{_ROCE}selective-repeat, qp_timeout: 131us"}
MRC = {"MRC": "kind: mrc"}
WINDOWED = {f"{name}, 64 KB": f"{keys}, window: 64KB" for name, keys in RECOVERIES.items()}
FABRICS = {
    "k=4": ("kind: fat-tree, k: 4", 16),
    "leaf-spine": ("kind: leaf-spine, leaves: 4, spines: 4, hosts_per_leaf: 4", 16),
    "leaf-spine 2:1": ("kind: leaf-spine, leaves: 4, spines: 2, hosts_per_leaf: 4", 16),
    "k=8": ("kind: fat-tree, k: 8", 128),
}
_OPERATIONS = "{{kind: collectives, ranks: {ranks}, operations: [{{kind: {kind}, size: {size}}}]}}"
WORKLOADS = {
    "all-to-all": (_OPERATIONS, "all_to_all", "{algorithm: direct}"),
    "ring all-reduce": (_OPERATIONS, "all_reduce", "{algorithm: ring}"),
    "tree all-reduce": (_OPERATIONS, "all_reduce", "{algorithm: double-binary-tree}"),
    "DLRM step": ("{{kind: dlrm, ranks: {ranks}}}", "all_reduce", "{algorithm: ring}"),
}
_SPEC = """
name: paths
seed: {seed}
fabric: {{{fabric}, link: {{rate: 100Gbps, delay: 500ns, mtu: 4200}},
  queue: {{kind: droptail, buffer: 4MB}}, routing: {routing}}}
transport: {{{recovery}}}
workload: {workload}
collectives: {{backend: programs, all_to_all: {{algorithm: direct}}{entry}}}
{faults}
"""
_GREY = "faults: [{{kind: loss, link: leaf0-spine0, at: 0ns, value: {}}}]"
_CORRUPT = "faults: [{kind: corrupt, link: leaf0-spine0, at: 0ns, value: 0.00001}]"
GREY_LOSSES = ("none", "0.1%", "1%", "10%")
_DEAD = "{{kind: loss, link: leaf0-spine0, at: {}us, duration: {}us, value: 100%}}"
_FLAPS = ", ".join(_DEAD.format(at_us, 50) for at_us in range(50, 1050, 100))
FAILURES = {
    "none": "",
    "dead for 1 ms": f"faults: [{_DEAD.format(50, 1000)}]",
    "dead for 50 of each 100 us": f"faults: [{_FLAPS}]",
}


@dataclass(frozen=True, slots=True)
class Found:
    """The answers of seeds: microseconds, the share of the first uplink among its leaf's, and in
    all seeds the packets of both of its directions, and how many of them did not come."""

    times_us: tuple[float, ...]
    share: float
    packets: int
    lost: int

    @property
    def text(self) -> str:
        """Median and worst."""
        return f"{statistics.median(self.times_us):,.0f} ({max(self.times_us):,.0f})"


@dataclass(frozen=True, slots=True)
class Row:
    """An iteration to measure, by the names of its parts, with seeds 1 to `seeds`."""

    fabric: str
    workload: str
    routing: str
    recovery: str
    seeds: int
    faults: str = ""
    size: str | None = None

    def spec(self, seed: int) -> Spec:
        """The spec of a seed."""
        fabric, ranks = FABRICS[self.fabric]
        work, kind, program = WORKLOADS[self.workload]
        size = self.size or ("4MB" if ranks < 64 else "16MB")
        return parse_spec(
            _SPEC.format(
                seed=seed,
                fabric=fabric,
                routing=ROUTINGS[self.routing],
                recovery=(RECOVERIES | SOON | WINDOWED | MRC)[self.recovery],
                workload=work.format(ranks=ranks, kind=kind, size=size),
                entry="" if kind == "all_to_all" else f", {kind}: {program}",
                faults=self.faults,
            )
        )

    def measure(self) -> Found:
        """The first iteration, of all seeds."""
        times, shares, packets, lost = [], [], 0, 0
        for seed in range(1, self.seeds + 1):
            spec = self.spec(seed)
            predictor = Packet()
            found = predict_workload(spec, setting_of_spec(spec), predictor)
            times.append(found.iterations[0].duration_ns / 1000)
            assert predictor.last is not None
            passed = predictor.last.columns["port.packets"]
            up = [
                int(passed[2 * link.index + (link.a.node != "leaf0")])
                for link in spec.plan.fabric.links
                if "leaf0" in (link.a.node, link.b.node) and link.link_class == "leaf-spine"
            ]
            both = [
                2 * link.index + end
                for link in spec.plan.fabric.links
                if {link.a.node, link.b.node} == {"leaf0", "spine0"}
                for end in (0, 1)
            ]
            packets += sum(int(passed[port]) for port in both)
            lost += sum(int(predictor.last.columns["port.drops"][port]) for port in both)
            shares.append(up[0] / sum(up) if up and sum(up) else 0.0)
        return Found(tuple(times), statistics.mean(shares), packets, lost)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--table", choices=["paths", "grey", "corrupt", "failures"], default="paths"
    )
    parser.add_argument("--seeds", type=int, default=8, metavar="N")
    parser.add_argument("--fabrics", nargs="*", default=list(FABRICS), metavar="NAME")
    options = parser.parse_args(arguments)
    if options.table == "grey":
        _grey(options.seeds)
        return
    if options.table == "corrupt":
        _corrupt(options.seeds)
        return
    if options.table == "failures":
        _failures(options.seeds)
        return
    print(f"| fabric | workload | routing | {' | '.join(RECOVERIES)} |\n|---|---|---|---|---|")
    for fabric, workload, routing in itertools.product(options.fabrics, WORKLOADS, ROUTINGS):
        seeds = options.seeds if FABRICS[fabric][1] < 64 else 1
        cells = [Row(fabric, workload, routing, each, seeds).measure().text for each in RECOVERIES]
        print(f"| {fabric} | {workload} | {routing} | {' | '.join(cells)} |", flush=True)


def _at_leaf(
    routing: str, recovery: str, seeds: int, faults: str, size: str | None = None
) -> Found:
    return Row("leaf-spine", "all-to-all", routing, recovery, seeds, faults, size).measure()


def _grey_faults(loss: str) -> str:
    return "" if loss == "none" else _GREY.format(loss)


def _grey(seeds: int) -> None:
    print(f"| recovery | routing | its share | {' | '.join(GREY_LOSSES)} |")
    print(f"|{'---|' * (3 + len(GREY_LOSSES))}")
    for recovery, routing in itertools.product(RECOVERIES | SOON, ROUTINGS):
        found = [_at_leaf(routing, recovery, seeds, _grey_faults(loss)) for loss in GREY_LOSSES]
        cells = " | ".join(each.text for each in found)
        print(f"| {recovery} | {routing} | {found[-1].share:.0%} | {cells} |", flush=True)


def _corrupt(seeds: int) -> None:
    print("| transport | routing | none | corrupt | packets of the link | lost |")
    print(f"|{'---|' * 6}")
    kinds = ("static", "ecmp", "spray, least queue", "flowlet, 50 us", "adaptive")
    for recovery, routing in [*itertools.product(WINDOWED, kinds), ("MRC", "ecmp")]:
        well, bad = (_at_leaf(routing, recovery, seeds, faults, "1GB") for faults in ("", _CORRUPT))
        cells = f"{well.text} | {bad.text} | {bad.packets:,} | {bad.lost}"
        print(f"| {recovery} | {routing} | {cells} |", flush=True)


def _failures(seeds: int) -> None:
    print(f"| transport | routing | {' | '.join(FAILURES)} |")
    print(f"|{'---|' * (2 + len(FAILURES))}")
    rows = [*itertools.product(RECOVERIES, ROUTINGS), ("MRC", "ecmp")]
    for recovery, routing in rows:
        found = [_at_leaf(routing, recovery, seeds, faults) for faults in FAILURES.values()]
        cells = " | ".join(each.text for each in found)
        print(f"| {recovery} | {routing} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
