"""Does congestion control matter for training over RoCE? Khan et al. (HOTI 2022), with real ranks.

    .venv/bin/python -m benchmarks.roce.congestion --runs DIR

Its two-level Clos, scaled down from 8 leaves of 16 hosts: leaves at 200 Gb/s, half as much upwards,
5 us to hosts and 12.5 us to spines. Its variant has the hosts of a server joined by a switch of
2,400 Gb/s and 25 ns, as NVSwitches do. Training's collectives and steps on both, then the two cases
in which control should matter: an incast, and a victim, a flow that has nothing to do with the
incast but for the links that pauses stop. All over lossless queues. Full size is `--leaves 8
--hosts-per-leaf 16`. Runs are kept in DIR by the hash of their spec.
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
NVSWITCH = """
name: khan-nvswitch
fabric:
  kind: rails
  servers: {servers}
  hosts_per_server: {together}
  servers_per_leaf: {per_leaf}
  spines: {spines}
  link: {{rate: 200Gbps, delay: 5us, mtu: 4300}}
  links: {{scale-up: {{rate: 2400Gbps, delay: 25ns}}, spine: {{delay: 12500ns}}}}
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
virtual: {{memory: {memory}, ranks_per_process: {ranks}}}
"""
TOGETHER = 32
"""So many ranks and fewer are threads of one process: the same queue pairs and paths for less time.
From more, a process has as many as their queue pairs leave room for."""
STREAMS = """
transport: {transport}
capture: {{points: []}}
predict: []
virtual: {{memory: {memory}}}
"""


@dataclass(frozen=True, slots=True)
class Scheme:
    """A column: what queue pairs and ports do about congestion."""

    name: str
    transport: str
    marks: str = ""


PAPERS = ("PFC", "DCQCN", "DCTCP", "TIMELY", "HPCC")
"""The first words of the paper's schemes, which a run has that names none."""


def schemes(window_bytes: int) -> tuple[Scheme, ...]:
    """`window_bytes` is the path's bandwidth times its delay."""
    common = "kind: roce, path_mtu: 4096, qp_timeout: 67ms"
    return (
        Scheme("PFC, window of a BDP", f"{{{common}, window: {window_bytes}}}"),
        Scheme("DCQCN", f"{{{common}, congestion_control: dcqcn}}", LINE),
        Scheme("DCTCP", f"{{{common}, congestion_control: dctcp}}", STEP),
        Scheme("TIMELY", f"{{{common}, congestion_control: timely, timely: {TIMELY}}}"),
        Scheme("HPCC", f"{{{common}, congestion_control: hpcc}}"),
        Scheme(
            "clamp_target, DCQCN",
            f"{{{common}, congestion_control: dcqcn, dcqcn: {{clamp_target: true}}}}",
            LINE,
        ),
        Scheme("step, DCQCN", f"{{{common}, congestion_control: dcqcn}}", STEP),
    )


TIMELY = "{min_rtt: 71us, low: 100us, high: 500us}"
"""The path's own round trip is 70 us, above the usual lower threshold of 50."""

ALL_TO_ALL = "backend: programs, all_to_all: {algorithm: direct}"
ALL_REDUCE = "algorithm: hierarchical, dimensions: [{inside}, {across}], inside: ring, across: ring"
"""The paper's: a ring along both dimensions, and messages from each rank to each."""


def workloads(ranks: int, inside: int) -> dict[str, tuple[str, str]]:
    """Workload and algorithm of all-reduces, by name; `inside` are neighbours."""
    flat = "{{kind: collectives, ranks: {ranks}, operations: [{{kind: {kind}, size: 8MiB}}]}}"
    both = ALL_REDUCE.format(inside=inside, across=ranks // inside)
    step = f"{{data: {ranks // inside}, tensor: {inside}, pipeline: 1}}"
    return {
        "all-reduce, 2-D": (flat.format(ranks=ranks, kind="all_reduce"), both),
        "all-to-all": (flat.format(ranks=ranks, kind="all_to_all"), both),
        "DLRM": (f"{{kind: dlrm, ranks: {ranks}, iterations: 2}}", both),
        "transformer": (
            f"{{kind: training, parallelism: {step}, layers: 2, microbatches: 1, iterations: 2}}",
            "algorithm: ring",
        ),
    }


MESSAGE = 262_144


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--leaves", type=int, default=4)
    parser.add_argument("--hosts-per-leaf", type=int, default=8)
    parser.add_argument("--only", nargs="*", help="names of workloads, incast, victim")
    parser.add_argument("--fabrics", nargs="*", default=["clos", "nvswitch"])
    parser.add_argument("--schemes", nargs="*", help="what their names begin with")
    parser.add_argument("--memory", default="auto", help="of a guest; decides no result")
    options = parser.parse_args(arguments)
    leaves, hosts = options.leaves, options.hosts_per_leaf
    every = schemes(200 * 70_000 // 8)
    begin = tuple(options.schemes or PAPERS)
    chosen = [scheme for scheme in every if scheme.name.startswith(begin)]
    print(
        "| fabric | workload | scheme | time, us | exposed, us "
        "| pauses | paused, us | marks | CNPs | queue, KB |"
    )
    print(f"|{'---|' * 10}")
    for fabric in options.fabrics:
        together = hosts if fabric == "clos" else min(8, hosts)
        for name, (workload, all_reduce) in workloads(leaves * hosts, together).items():
            if options.only and name not in options.only:
                continue
            for scheme in chosen:
                text = _fabric(fabric, leaves, hosts, scheme) + RUN.format(
                    transport=scheme.transport,
                    workload=workload,
                    collectives=f"{{{ALL_TO_ALL}, all_reduce: {{{all_reduce}}}}}",
                    memory=options.memory,
                    ranks=leaves * hosts if leaves * hosts <= TOGETHER else "auto",
                )
                directory = kept_run(text, options.runs)
                last = _last(_result(directory))
                exposed = last.get("exposed_comm_ns", last["duration_ns"]) / 1e3
                time_us = last["duration_ns"] / 1e3, f"{exposed:,.1f}"
                _print(fabric, name, scheme.name, time_us, directory)
    for name, flows in _streams(leaves, hosts).items():
        if "clos" not in options.fabrics or (options.only and name not in options.only):
            continue
        for scheme in chosen:
            text = _fabric("clos", leaves, hosts, scheme)
            text += STREAMS.format(transport=scheme.transport, memory=options.memory)
            found = run_streams(text, flows, options.runs)
            measured = found.flows[-1:] if name.startswith("victim") else found.flows
            slowest = max(each.duration_ns for each in measured) / 1e3
            _print("clos", name, scheme.name, (slowest, "-"), found.directory)


def _fabric(kind: str, leaves: int, hosts: int, scheme: Scheme) -> str:
    queue = LOSSLESS.format(marks=scheme.marks)
    spines = max(1, hosts // 2)
    if kind == "clos":
        return CLOS.format(queue=queue, leaves=leaves, spines=spines, hosts=hosts)
    together = min(8, hosts)
    return NVSWITCH.format(
        queue=queue,
        servers=leaves * hosts // together,
        together=together,
        per_leaf=hosts // together,
        spines=spines,
    )


def _streams(leaves: int, hosts: int) -> dict[str, list[Flow]]:
    """All hosts of the other leaves but the first of each send to host 0, 2 MiB or 16 MiB each. The
    victim is a flow of 2 MiB from such a first host to host 1: with a short incast from the
    beginning, with a long one after 2 ms."""
    senders = [n for n in range(hosts, leaves * hosts) if n % hosts]
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


def _last(result: Any) -> Any:
    """The last iteration, or the collective where there is one alone."""
    return (result["iterations"] if len(result["collectives"]) > 1 else result["collectives"])[-1]


def _print(
    fabric: str, workload: str, scheme: str, time_us: tuple[float, str], directory: Path
) -> None:
    """A row; `time_us` is the time and how much of it is exposed communication."""
    summary = _result(directory)["summary"]
    links = [json.loads(line) for line in (directory / "links.jsonl").open()]
    switches = [each for each in links if not each["node"].startswith("h")]
    paused_us = sum(each["paused_ns"] for each in links) / 1e3
    longest = max(each["max_backlog_bytes"] or 0 for each in switches) / 1e3
    print(
        f"| {fabric} | {workload} | {scheme} | {time_us[0]:,.1f} | {time_us[1]} "
        f"| {summary['pauses']:,} "
        f"| {paused_us:,.0f} | {summary['ecn_marks']:,} | {summary['cnps_sent']:,} "
        f"| {longest:,.0f} |",
        flush=True,
    )
    assert summary["drops"] == summary["retries"] == 0


if __name__ == "__main__":
    main()
