"""The cost of a packet's hop in the packet engine, with all of TCP, at 16, 128 and 1,024 hosts, and
with all of RoCE at 16 and 128.

    .venv/bin/python -m benchmarks.packet_engine [--rounds N] [--largest HOSTS] [--beside CLONE]
    .venv/bin/python -m benchmarks.packet_engine --only set-up      # of programs, a message
    .venv/bin/python -m benchmarks.packet_engine --only callbacks   # of a network that is driven
    .venv/bin/python -m benchmarks.packet_engine --only hierarchical [--ranks N] [--size BYTES]

On fat-trees (MTU 1500, 100 Gb/s, 1 us a link), over TCP a permutation (every rank sends to the one
half the ranks on), over RoCE a ring all-reduce with lossless queues and DCQCN: processor time of
the engine by passages of ports, those of acknowledgements counted, and of what is beside it in
Python. The least of the rounds counts, since whatever else runs on the
machine only adds. `--beside` names a clone of this repository at e2b4e87, the last commit with the
model in Python, which then follows the same 16 hosts; both say the same nanoseconds, or it is an
error. A hierarchical all-reduce is a program of squares of ranks (64 x 64, 64 MB a rank), direct
in each dimension, with a dimension within leaves, by `packet` and `packet-skipping`: processor time
of both processes, the most memory that each has had, how long it takes, and what leaps state of it.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

import groundwire
from analysis.predict.engines.joint_programs import JointPrograms
from analysis.predict.engines.packet.programs import EncodedPrograms
from analysis.predict.models.packet import Packet
from analysis.predict.models.packet_skipping import PacketSkipping
from analysis.predict.planned_run import predict_workload
from analysis.predict.scenario import GroupedCall, PostCall
from analysis.predict.setting import setting_of_spec
from topologies.spec.spec import parse_spec
from workloads.models.planned import planned_calls

_SIZES = {16: (4, "8MB"), 128: (8, "4MB"), 1024: (16, "1MB")}
"""By hosts: k of the fat-tree, and what a rank sends."""

_PREDICTORS = {each.name: each for each in (Packet, PacketSkipping)}

_MODEL = """
import sys, time
from analysis.predict.models.tcp import LinuxTcp
from analysis.predict.setting import setting_of_spec
from analysis.predict.whole_run import predict_run
from topologies.spec.spec import parse_spec
spec = parse_spec(sys.stdin.read())
began = time.process_time()
found = predict_run(spec, setting_of_spec(spec), LinuxTcp())
print(time.process_time() - began, *(int(each) for each in found.collectives.values()))
"""


@dataclass(frozen=True, slots=True)
class Cost:
    """Processor seconds of the engine and of all that is beside it, and passages of ports."""

    engine_s: float
    python_s: float
    hops: int
    collectives_ns: tuple[int, ...]


_ROCE_SIZES = {16: (4, "8MB"), 128: (8, "4MB")}


def _roce_spec(hosts: int) -> str:
    k, size = _ROCE_SIZES[hosts]
    return f"""
name: ring
fabric:
  kind: fat-tree
  k: {k}
  link: {{rate: 100Gbps, delay: 1us, mtu: 1500}}
  queue: {{kind: lossless, kmin: 100KB, kmax: 400KB}}
transport: {{kind: roce, congestion_control: dcqcn}}
workload:
  kind: collectives
  ranks: {hosts}
  operations: [{{kind: all_reduce, size: {size}}}]
collectives: {{backend: programs, all_reduce: {{algorithm: ring}}}}
"""


def _spec(hosts: int) -> str:
    k, size = _SIZES[hosts]
    return f"""
name: permutation
fabric: {{kind: fat-tree, k: {k}, link: {{rate: 100Gbps, delay: 1us, mtu: 1500}}}}
workload:
  kind: collectives
  ranks: {hosts}
  operations: [{{kind: permutation, size: {size}, shift: {hosts // 2}}}]
"""


def measure(text: str) -> Cost:
    """One run, after the spec is read."""
    spec = parse_spec(text)
    setting, predictor = setting_of_spec(spec), Packet()
    began = time.process_time()
    found = predict_workload(spec, setting, predictor)
    python_s = time.process_time() - began
    assert predictor.last is not None
    times = tuple(int(each.duration_ns) for each in found.collectives.values())
    return Cost(predictor.last.processor_s, python_s, predictor.last.hops, times)


def model_s(clone: Path, hosts: int, expected: tuple[int, ...]) -> float:
    """Processor seconds of the model in Python. Raises SystemExit where it says other times."""
    done = subprocess.run(
        [sys.executable, "-c", _MODEL],
        input=_spec(hosts),
        cwd=clone,
        capture_output=True,
        text=True,
        check=True,
    )
    seconds, *times = done.stdout.split()
    if tuple(map(int, times)) != expected:
        raise SystemExit(f"the model says {times}, the engine {expected}")
    return float(seconds)


_PROGRAMS = {
    "ring": ((64, 128, 192), "ring", ""),
    "hierarchical, direct": ((64, 256), "hierarchical", ", dimensions: [{side}, {side}]"),
}
"""By name: ranks, the algorithm, and what else its section has."""


def set_up_table() -> Table:
    """Processor time of Python before the engine begins, of all-reduces that run as programs: to
    read the spec, which makes the program and checks it; and to compile it for the engine."""
    table = Table("program", title="Set-up of programs, by message")
    for heading in ("ranks", "messages", "spec us", "compiling us"):
        table.add_column(heading, justify="right")
    for name, (sizes, algorithm, more) in _PROGRAMS.items():
        for ranks in sizes:
            section = f"algorithm: {algorithm}{more.format(side=round(ranks**0.5))}"
            began = time.process_time()
            spec = parse_spec(
                f"""
name: program
fabric: {{kind: flat, hosts: {ranks}}}
workload:
  {{kind: collectives, ranks: {ranks}, operations: [{{kind: all_reduce, size: {ranks * 4096}B}}]}}
collectives: {{backend: programs, all_reduce: {{{section}}}}}
"""
            )
            (planned,) = planned_calls(spec)
            read = time.process_time()
            acts = dict.fromkeys(range(ranks), (PostCall(0),))
            calls = [GroupedCall(planned.call, "")]
            EncodedPrograms(JointPrograms(calls, acts, 1, follows_steps=True)).columns()
            compiled = time.process_time()
            count = planned.call.schedule.count(planned.call.shape)
            parts = (f"{1e6 * s / count:.0f}" for s in (read - began, compiled - read))
            table.add_row(name, f"{ranks:,}", f"{count:,}", *parts)
    return table


def callbacks_table(callbacks: int = 20_000) -> Table:
    """Processor time of a callback of a network that is driven, which has something scheduled."""
    left = callbacks
    with groundwire.drive(parse_spec(_spec(16))) as network:

        def again() -> None:
            nonlocal left
            left -= 1
            if left:
                network.schedule(100, again)

        network.schedule(100, again)
        began = time.process_time()
        network.run()
        python_s = time.process_time() - began
        engine_s = network.finish().processor_s
    table = Table("callbacks", "Python us", "engine us", title="A callback")
    table.add_row(f"{callbacks:,}", *(f"{1e6 * s / callbacks:.1f}" for s in (python_s, engine_s)))
    return table


def _hierarchical_spec(ranks: int, size: str) -> str:
    side = round(ranks**0.5)
    if side * side != ranks:
        raise SystemExit(f"--ranks: found {ranks}, allowed: squares, such as 256, 1024 and 4096")
    return f"""
name: hierarchical
fabric:
  kind: leaf-spine
  leaves: {side}
  spines: {side}
  hosts_per_leaf: {side}
  link: {{rate: 400Gbps, delay: 500ns, mtu: 9000}}
workload:
  kind: collectives
  ranks: {ranks}
  operations: [{{kind: all_reduce, size: {size}}}]
collectives:
  backend: programs
  all_reduce: {{algorithm: hierarchical, dimensions: [{side}, {side}]}}
"""


def hierarchical_table(ranks: int, size: str, predictors: Sequence[type[Packet]]) -> Table:
    """A row for each predictor: processor time and memory of a hierarchical all-reduce."""
    table = Table("predictor", title=f"A hierarchical all-reduce of {ranks:,} ranks, {size}")
    headings = ("messages", "hops", "spec s", "Python s", "engine s", "wall s")
    for heading in (*headings, "Python GB", "engine GB", "ms", "states ms"):
        table.add_column(heading, justify="right")
    for kind in predictors:
        wall, began = time.monotonic(), time.process_time()
        spec = parse_spec(_hierarchical_spec(ranks, size))
        (planned,) = planned_calls(spec)
        read = time.process_time()
        predictor = kind()
        found = predict_workload(spec, setting_of_spec(spec), predictor)
        python_s = time.process_time() - read
        assert predictor.last is not None
        engine = predictor.last
        (call,) = found.collectives.values()
        used = (
            resource.getrusage(whose).ru_maxrss / 1e6
            for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        )
        seconds = (read - began, python_s, engine.processor_s, time.monotonic() - wall)
        table.add_row(
            predictor.name,
            f"{planned.call.schedule.count(planned.call.shape):,}",
            f"{engine.hops:,}",
            *(f"{each:.1f}" for each in seconds),
            *(f"{each:.2f}" for each in used),
            f"{call.duration_ns / 1e6:.3f}",
            f"{sum(leap.error_ns for leap in engine.leaps) / 1e6:.3f}",
        )
    return table


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=["set-up", "callbacks", "hierarchical"])
    parser.add_argument("--ranks", type=int, default=4096, help="of `hierarchical`, a square")
    parser.add_argument("--size", default="64MB", help="of `hierarchical`, what a rank has")
    parser.add_argument("--predictor", choices=sorted(_PREDICTORS), help="of `hierarchical` (both)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--largest", type=int, default=1024)
    parser.add_argument("--beside", type=Path)
    arguments = parser.parse_args()
    if arguments.only == "hierarchical":
        asked = list(_PREDICTORS.values())
        if arguments.predictor is not None:
            asked = [_PREDICTORS[arguments.predictor]]
        Console(width=140).print(hierarchical_table(arguments.ranks, arguments.size, asked))
        return
    if arguments.only is not None:
        Console().print(set_up_table() if arguments.only == "set-up" else callbacks_table())
        return
    table = Table("transport", "hosts", title="A packet's hop")
    for heading in ("hops", "engine us a hop", "engine s", "Python beside it s", "model / engine"):
        table.add_column(heading, justify="right")
    for hosts in (each for each in _SIZES if each <= arguments.largest):
        costs = [measure(_spec(hosts)) for _ in range(arguments.rounds)]
        least = min(costs, key=lambda cost: cost.engine_s)
        ratio = ""
        if arguments.beside is not None and hosts == min(_SIZES):
            model = model_s(arguments.beside, hosts, least.collectives_ns)
            ratio = f"{model / least.engine_s:.0f}"
        table.add_row("tcp", *_row(hosts, costs), ratio)
    for hosts in (each for each in _ROCE_SIZES if each <= arguments.largest):
        costs = [measure(_roce_spec(hosts)) for _ in range(arguments.rounds)]
        table.add_row("roce", *_row(hosts, costs), "")
    Console().print(table)


def _row(hosts: int, costs: Sequence[Cost]) -> tuple[str, ...]:
    least = min(costs, key=lambda cost: cost.engine_s)
    return (
        f"{hosts:,}",
        f"{least.hops:,}",
        f"{least.engine_s / least.hops * 1e6:.3f}",
        f"{least.engine_s:.2f}",
        f"{min(cost.python_s for cost in costs):.2f}",
    )


if __name__ == "__main__":
    main()
